//! What a release engineer writes in `environments.yaml`, from end to end.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use bake_testing::needs;
use serde_json::Value;

use crate::house::{House, Said};

/// A house whose environment ends in this finalizer set.
fn house_with(set: &str) -> House {
    let house = House::new();
    let set = format!("finalizer_sets:\n  mine: {set}\n");
    house.rewrite(|text| set + &text.replace("  plugins:", "  finalizer_set: mine\n  plugins:"));
    house
}

/// What `bake image show` says of an image in a region.
fn image(house: &House, region: &str, name: &str) -> Value {
    let shown = house.run(&["image", "show", name, "--region", region, "--format", "json"]);
    serde_json::from_str(&shown.succeeds().stdout).unwrap()
}

fn result(said: &Said) -> Value {
    serde_json::from_str(said.stdout.lines().last().unwrap()).unwrap()
}

#[test]
fn images_are_copied_to_other_regions_with_their_own_tags() {
    needs!(root(), loops(), fixtures());
    let house = house_with(
        "[register_image, tag_artifacts: { tags: { creator: ~ }, image_tags: { kind: first }, copy_tags: { kind: 'copy in \
         {{ region }}' } }, distribute_images: { regions: [east, local, west] }]",
    );
    let said = house.run(&["--name", "delivered", "hello-bake", "--format", "json"]);
    said.succeeds();
    assert_eq!(result(&said)["images"][0]["region"], "local", "the image comes before its copies");
    said.tells(", 2 copies [run ");
    let outcomes: Vec<_> = result(&said)["copies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|copy| format!("{} {}", copy["region"].as_str().unwrap(), copy["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(outcomes, ["east copied", "local already_there", "west copied"]);
    assert_eq!(image(&house, "local", "delivered")["tags"]["kind"], "first");
    for region in ["east", "west"] {
        let copy = image(&house, region, "delivered");
        assert_eq!(copy["tags"]["kind"], format!("copy in {region}"));
        assert_eq!(copy["tags"]["appversion"], "hello-bake-2.0-0");
        assert!(copy["tags"].get("creator").is_none(), "taken away by `~`");
    }
    let run = result(&said)["run"].as_str().unwrap().to_owned();
    house.run(&["teardown", &run]).succeeds().tells("took back");
    assert!(
        house.run(&["runs"]).succeeds().stdout.contains(" taken back "),
        "a run of which nothing is left is not `baked`"
    );
    for region in ["local", "east", "west"] {
        house.run(&["image", "show", "delivered", "--region", region]).ends_with(20);
    }
    house.assert_clean();
}

#[test]
fn one_finalizer_runs_instead_of_another() {
    needs!(root(), loops(), fixtures());
    let house = house_with(
        "[register_image: { when: \"arch == 'vax'\", image_name: for-vax, else: { register_image: { name: usual, image_name: \
         for-the-rest } } }, tag_artifacts: { when: \"images.usual is defined\" }]",
    );
    let [.., name] = house.run(&["hello-bake"]).succeeds().image();
    assert_eq!(name, "for-the-rest");
    assert_eq!(image(&house, "local", "for-the-rest")["tags"]["appversion"], "hello-bake-2.0-0");
    house.run(&["image", "show", "for-vax"]).ends_with(20);
    house.assert_clean();
}

/// Answers one call and returns what it was.
fn answer_one(server: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut caller, _) = server.accept().unwrap();
        let mut heard = Vec::new();
        while !heard.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut more = [0; 1024];
            let length = caller.read(&mut more).unwrap();
            heard.extend_from_slice(&more[..length]);
        }
        caller.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8(heard).unwrap()
    })
}

#[test]
fn others_are_told_and_an_asgard_that_is_down_does_not_matter() {
    needs!(root(), loops(), fixtures());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let house = house_with(&format!(
        "[register_image, tag_artifacts, http_poke: {{ url: 'http://{address}/images?id={{{{ image.id }}}}', secret_headers: \
         {{ X-Token: open-sesame }} }}, asgard_poke: {{ url: 'http://127.0.0.1:1/{{{{ region }}}}', retry: 0 }}]"
    ));
    let heard = answer_one(server);
    let said = house.run(&["-vv", "hello-bake"]);
    said.ends_with(10).tells("warning: `finalize/asgard_poke/");
    let heard = heard.join().unwrap();
    assert!(heard.starts_with(&format!("POST /images?id={} ", said.image()[3])), "{heard}");
    assert!(heard.to_lowercase().contains("x-token: open-sesame"), "{heard}");
    assert!(!format!("{}{}", said.stdout, said.stderr).contains("open-sesame"), "{}", said.stderr);
    for file in ["journal.db", "journal.db-wal"] {
        let bytes = std::fs::read(house.path().join("state").join(file)).unwrap_or_default();
        assert!(!bytes.windows(11).any(|window| window == b"open-sesame"), "the secret is in `{file}`");
    }
    house.assert_clean();
}

#[test]
fn a_name_that_is_too_long_is_shortened_and_both_are_said() {
    needs!(root(), loops(), fixtures());
    let house = House::new();
    let said =
        house.run(&["--set", &format!("vars.team={}", "t".repeat(140)), "--name", "{{ vars.team }}-end", "hello-bake"]);
    let [.., name] = said.succeeds().image();
    assert_eq!(name.len(), 128);
    assert!(name.ends_with("ttt-end"), "{name}");
    said.tells(&format!("is called `{name}`")).tells(&format!("`{}-end`", "t".repeat(140)));
    house.assert_clean();
}

/// A folder with this `environments.yaml`; what looks at it needs no rights.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("environments.yaml"), text).unwrap();
    folder
}

fn look(folder: &tempfile::TempDir, words: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bake"));
    command.args(words).current_dir(folder).env_clear().env("USER", "ann");
    Said::of(command.output().unwrap())
}

const MISTAKES: &str = "\
mine:
  extends: local_apt_linux
  finalizer_set:
    - register_image: { image_name: \"{{ package.nmae }}\", when: \"arch = 'x'\" }
    - tag_artifacts: { tags: { \"aws:x\": \"1\", where: \"{{ image.id }}\" } }
";

#[test]
fn every_mistake_in_templates_is_found_by_a_look() {
    let folder = folder(MISTAKES);
    let said = look(&folder, &["env", "check"]);
    let told = said.ends_with(2).stderr.replace(folder.path().to_str().unwrap(), "[folder]");
    insta::assert_snapshot!(told, @"
    error: [folder]/environments.yaml:4:37: `image_name` of the finalizer `register_image`: cannot evaluate `{{ package.nmae }}`: there is no `nmae` in `package`; there are: appversion, architecture, epoch, name, release, version, version_with_epoch
    [folder]/environments.yaml:4:65: `when` of the finalizer `register_image`: cannot evaluate `arch = 'x'`: syntax error: unexpected input after expression (in <expression>:1)
    [folder]/environments.yaml:5:53: `tags.where` of the finalizer `tag_artifacts`: cannot evaluate `{{ image.id }}`: `image.id` is known only once an image is registered, which is too late here
    [folder]/environments.yaml:5:41: a tag of the finalizer `tag_artifacts`: the tag key `aws:x` begins with `aws:`, which is reserved
    hint: `bake env vars` lists what templates may name
    ");
}

/// What is certain to fail is said by `env check`, with its place, and not after an hour.
#[test]
fn what_can_be_known_is_said_before_a_bake() {
    let long = format!("[register_image, tag_artifacts: {{ tags: {{ long: {} }} }}]", "v".repeat(257));
    let many = (0..48).map(|n| format!("k{n}: v")).collect::<Vec<_>>().join(", ");
    let many = format!("[register_image, tag_artifacts: {{ image_tags: {{ {many} }} }}]");
    let two = "register_image, register_image: { name: two, image_name: two-of-them }";
    let cases = [
        ("[register_image, tag_artifacts: { tags: { 'bake:run': x } }]", "begins with `bake:`"),
        (&long, "has 257 characters"),
        (&many, "tags are too many"),
        ("[register_image: { image_name: ab }]", "fewer than 3 characters"),
        ("[]", "registers an image"),
        ("[tag_artifacts]", "registers an image"),
        ("[register_image, http_poke: { url: 'http://h/{{ images.twoo.id }}' }]", "there is no `twoo` in `images`"),
        (
            &format!("[{two}, http_poke: {{ url: 'http://h/{{{{ image.id }}}}' }}]"),
            "say which of `images.local`, `images.two`",
        ),
        ("[register_image: { timeout: 0s }]", "`timeout` is `0s`"),
        ("[register_image: { name: a/b }]", "`a/b` is no name"),
        ("[register_image, distribute_images: { regions: ['no region'] }]", "no region"),
        ("[register_image], steps: { volume/provison: { retry: 1 } }", "there is no step `volume/provison`"),
        ("[register_image], steps: { base: { after: snapshot } }", "not sound"),
        ("[register_image], vars: { a: '{{ package.name }}' }", "the variable `a`"),
    ];
    for (set, expected) in cases {
        let folder = folder(&format!("mine: {{ extends: local_apt_linux, finalizer_set: {set} }}\n"));
        let said = look(&folder, &["env", "check"]);
        said.ends_with(2).tells(expected);
    }
    // What is right stays right.
    let good = format!(
        "[{two}, http_poke: {{ url: 'http://h/{{{{ images.two.id }}}}' }}, asgard_poke: {{ url: 'http://h/{{{{ image.id }}}}' }}]"
    );
    look(&folder(&format!("mine: {{ extends: local_apt_linux, finalizer_set: {good} }}\n")), &["env", "check"])
        .succeeds();
}

#[test]
fn a_bake_that_makes_no_image_is_a_failure_and_leaves_nothing() {
    needs!(root(), loops(), fixtures());
    let house = house_with("[register_image: { when: \"arch == 'vax'\" }, tag_artifacts]");
    house.run(&["hello-bake"]).ends_with(20).tells("no image was made");
    for shelf in ["images", "snapshots", "volumes"] {
        assert_eq!(house.shelf(shelf), Vec::<String>::new(), "{shelf}");
    }
    house.assert_clean();
}

#[test]
fn what_templates_may_name_is_listed_with_its_origin_or_the_step_that_makes_it_known() {
    let text = "mine: { extends: local_apt_linux, vars: { team: red }, finalizer_set: [register_image: { image_name: '{{ \
                vars.team }}-{{ package.version }}' }] }\n";
    let said = look(&folder(text), &["env", "vars", "mine", "--suffix", "s1"]);
    let lines: Vec<_> = said.succeeds().stdout.lines().collect();
    let place = |line: &str| line[line.find("environments.yaml").unwrap()..].to_owned();
    assert!(lines.contains(&"vars.creator: ann    # $USER"), "{lines:#?}");
    assert!(lines.contains(&"vars.suffix: s1    # --suffix"), "{lines:#?}");
    let team = lines.iter().find(|line| line.starts_with("vars.team: red    # ")).unwrap();
    assert_eq!(place(team), "environments.yaml:1:49    used by register_image.image_name");
    let version = "package.version: (known after `volume/provision`)    used by register_image.image_name";
    assert!(lines.contains(&version), "{lines:#?}");
    let unresolved = look(&folder(text), &["env", "vars", "mine", "--unresolved"]);
    assert!(!unresolved.succeeds().stdout.contains("vars.") && unresolved.stdout.contains(version));
}

#[test]
fn a_predicate_is_explained() {
    let folder = folder("vars: { team: red }\n");
    let said = look(&folder, &["env", "eval", "vars.team == 'red' and arch == 'x86_64'"]);
    insta::assert_snapshot!(said.succeeds().stdout, @"
    arch: (known after `base`)
    vars.team: red
    = (not known yet)
    ");
    let said = look(&folder, &["env", "eval", "vars.team == 'red' and arch == 'x86_64'", "--with", "arch=x86_64"]);
    insta::assert_snapshot!(said.succeeds().stdout, @"
    arch: x86_64
    vars.team: red
    = true
    ");
    let said = look(&folder, &["env", "eval", "{{ vars.team }}-{{ package.name }}"]);
    insta::assert_snapshot!(said.succeeds().stdout, @"
    package.name: (known after `volume/provision`)
    vars.team: red
    = red-‹package.name›
    ");
    look(&folder, &["env", "eval", "vars.taem == 'red'"]).ends_with(2).tells("there is no `taem` in `vars`");
    look(&folder, &["env", "eval", "x", "--with", "nowhere=1"]).ends_with(2).tells("templates cannot name `nowhere`");
}

#[test]
fn flags_win_over_what_any_file_says() {
    let text =
        "mine: { extends: local_apt_linux, vars: { team: red }, plugins: { cloud: { local: { region: here } } } }\n";
    let folder = folder(text);
    let said =
        look(&folder, &["env", "show", "mine", "--set", "vars.team=blue", "--set", "plugins.cloud.local.region=there"]);
    let lines: Vec<_> = said.succeeds().stdout.lines().collect();
    assert!(lines.contains(&"vars.team: blue") && lines.contains(&"cloud.region: there"), "{lines:#?}");
}

#[test]
fn the_environments_of_the_readme_are_right() {
    let readme = include_str!("../README.md");
    let blocks: Vec<_> = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).collect();
    assert_eq!(blocks.len(), 2);
    for (text, _) in blocks {
        look(&folder(text), &["env", "check"]).succeeds();
    }
}

#[test]
fn aminators_configuration_is_imported_and_checks() {
    let folder = folder("");
    let aminator = concat!(env!("CARGO_MANIFEST_DIR"), "/../bake-import/tests/shipped");
    let said = look(&folder, &["env", "import", aminator, "--to", "imported.yaml"]);
    said.succeeds().tells("`distro` of").tells("wrote `imported.yaml`");
    look(&folder, &["--config", "imported.yaml", "env", "check"]).succeeds();
    look(&folder, &["env", "import", aminator, "--to", "imported.yaml"])
        .ends_with(20)
        .tells("cannot write `imported.yaml`");
    look(&folder, &["env", "import", "nowhere"]).ends_with(2).tells("nowhere");
}
