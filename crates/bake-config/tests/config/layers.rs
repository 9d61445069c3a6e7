//! Layers over layers, and where each value is said to come from.

use std::io;
use std::path::{Path, PathBuf};

use bake_config::{Config, ConfigErrors, Environment, Layers, Origin, Places, find_files};
use insta::assert_snapshot;

use crate::catalog::{catalog, environment};

fn variables(layers: Layers, variables: &[(&str, &str)]) -> Layers {
    layers.variables(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn load(layers: Layers) -> Environment {
    layers.load(&catalog()).and_then(|config| config.environment("e")).unwrap_or_else(|errors| panic!("{errors}"))
}

fn region(environment: &Environment) -> String {
    let node = environment.cloud.settings.get("region").expect("every test sets a region");
    format!("{} {}", node.as_text().unwrap(), node.origin)
}

/// Each layer wins over those below it, whatever the order of the calls.
#[test]
fn strength() {
    let at = |region: &str| format!("plugins: {{ cloud: {{ ec2: {{ region: {region} }} }} }}\n");
    let built_in = |layers: Layers| layers.built_in(environment("") + &at("a"));
    assert_eq!(region(&load(built_in(Layers::new()))), "a built-in:7:36");
    let files = |layers: Layers| layers.file("/etc/bake/environments.yaml", at("b")).file("environments.yaml", at("c"));
    assert_eq!(region(&load(built_in(files(Layers::new())))), "c environments.yaml:1:36");
    let named =
        |layers| variables(layers, &[("BAKE__PLUGINS__CLOUD__EC2__REGION", "d"), ("OTHER", "x"), ("BAKE_LOG", "x")]);
    assert_eq!(region(&load(named(built_in(files(Layers::new()))))), "d BAKE__PLUGINS__CLOUD__EC2__REGION");
    let set = |layers: Layers| layers.set("plugins.cloud.ec2.region", "f", Origin::named("--set"));
    assert_eq!(region(&load(set(named(files(built_in(Layers::new())))))), "f --set");
    let own = |layers: Layers| layers.set("e.plugins.cloud.ec2.region", "g", Origin::named("--set"));
    assert_eq!(region(&load(own(set(built_in(Layers::new()))))), "g --set", "an environment's own setting is closer");
}

/// Defaults are the weakest, then `plugins`, the environment's `plugins`, and the place in the set.
#[test]
fn settings_of_a_finalizer() {
    let tags = |environment: &str| {
        let config = Layers::new().file("f", environment).load(&catalog()).unwrap_or_else(|errors| panic!("{errors}"));
        let environment = config.environment("e").unwrap();
        environment.finalizer_set.groups[0].members[0].settings.to_json()["tags"].to_string()
    };
    let set = "  finalizer_set: [{ tag_artifacts: { tags: { a: set } } }]\n";
    let own = "  plugins: { finalizer: { tag_artifacts: { tags: { a: own, b: own } } } }\n";
    let global = "plugins: { finalizer: { tag_artifacts: { tags: { a: all, b: all, c: all } } } }\n";
    let text = format!("{}{global}", environment(&format!("{set}{own}")));
    assert_eq!(tags(&text), r#"{"creator":"{{ vars.creator }}","Owner":"nobody","a":"set","b":"own","c":"all"}"#);
}

/// Where a file says it does not matter: what a variable or a flag says is stronger.
#[test]
fn what_is_assigned_is_stronger_than_anything_written() {
    let text = environment(
        "  finalizer_set: [{ tag_artifacts: { tags: { a: set }, retry: 1 } }]
  plugins: { finalizer: { tag_artifacts: { tags: { a: own, b: own } } }, cloud: { ec2: { region: own } } }
  vars: { x: own }
",
    );
    let assigned = |sets: &[(&str, &str)]| {
        let layers = Layers::new().file("f", format!("{text}base: {{ extends: e }}\n"));
        load(sets.iter().fold(layers, |layers, (path, value)| layers.set(*path, *value, Origin::named("--set"))))
    };
    let tags = |sets: &[(&str, &str)]| {
        let json = assigned(sets).finalizer_set.groups[0].members[0].settings.to_json();
        format!("{} {}", json["tags"]["a"], json["tags"]["b"])
    };
    let (all, one) = ("plugins.finalizer.tag_artifacts.tags.a", "e.plugins.finalizer.tag_artifacts.tags.a");
    assert_eq!(tags(&[]), r#""set" "own""#);
    assert_eq!(tags(&[(all, "flag")]), r#""flag" "own""#, "stronger than the environment and the use in the set");
    assert_eq!(tags(&[(one, "flag")]), r#""flag" "own""#);
    assert_eq!(tags(&[(one, "one"), (all, "all")]), r#""one" "own""#, "of two flags the closer one wins");
    assert_eq!(
        assigned(&[("plugins.finalizer.tag_artifacts.retry", "7")]).finalizer_set.groups[0].members[0].retry,
        Some(7)
    );
    assert_eq!(region(&assigned(&[("plugins.cloud.ec2.region", "flag")])), "flag --set");
    assert_eq!(assigned(&[]).vars["x"].text, "own");
    assert_eq!(assigned(&[("vars.x", "flag")]).vars["x"].text, "flag");
    let variable = variables(Layers::new().file("f", text.as_str()), &[("BAKE__VARS__x", "variable")]);
    assert_eq!(load(variable).vars["x"].origin, Origin::named("BAKE__VARS__x"));
}

/// An environment takes over what is assigned to its base, too.
#[test]
fn what_is_assigned_to_a_base_reaches_those_that_extend_it() {
    let text = environment("  extends: base\n  vars: { x: own }\n") + "base: { vars: { x: base } }\n";
    let layers = |path: &str| Layers::new().file("f", text.as_str()).set(path, "flag", Origin::named("--set"));
    assert_eq!(load(layers("base.vars.x")).vars["x"].text, "flag");
    assert_eq!(load(layers("base.vars.x").set("e.vars.x", "closer", Origin::named("--set"))).vars["x"].text, "closer");
}

#[test]
fn what_is_appended_by_a_flag_is_appended_once_to_everything_weaker() {
    let text = environment(
        "  finalizer_set: [distribute_images: { regions+: [c] }]
  plugins: { finalizer: { distribute_images: { regions+: [b] } } }
",
    ) + "plugins: { finalizer: { distribute_images: { regions: [a] } } }\nf: { extends: e }\n";
    let path = "plugins.finalizer.distribute_images.regions+";
    let layers = variables(
        Layers::new().file("f", text).set(path, "[e]", Origin::named("--set")),
        &[("BAKE__PLUGINS__FINALIZER__DISTRIBUTE_IMAGES__regions+", "[d]")],
    );
    let layers = layers.set(format!("e.{path}"), "[f]", Origin::named("--set"));
    let config = layers.load(&catalog()).unwrap_or_else(|errors| panic!("{errors}"));
    for name in ["e", "f"] {
        let json = config.environment(name).unwrap().finalizer_set.groups[0].members[0].settings.to_json();
        assert_eq!(json["regions"].to_string(), r#"["a","b","c","d","e","f"]"#);
    }
}

/// What is assigned apart is checked like everything else, and only what exists can be assigned to.
#[test]
fn what_is_assigned_is_checked() {
    let wrong = |path: &str, value: &str| {
        let layers =
            Layers::new().file("f", environment("  vars: { x: y }\n")).set(path, value, Origin::named("--set"));
        layers.load(&catalog()).map_or_else(|errors| errors.to_string(), |_| "no error".to_owned())
    };
    assert_snapshot!(wrong("plugins.cloud.ec2.encrypted", "on"), @"
    --set: `encrypted` is `on`; it takes `true` or `false`
      hint: did you mean `true`?
    ");
    assert_snapshot!(wrong("plugins", "x"), @"
    --set: `plugins` takes a table, a text is written
      hint: write a table: `plugins: { KEY: … }`
    ");
    assert_snapshot!(wrong("e.plugins.cloud.ec3.region", "x"), @"
    --set: there is no cloud `ec3`
      hint: did you mean `ec2`? known: ec2, local
    ");
    assert_snapshot!(wrong("f.vars.x", "x"), @"
    --set: there is no environment `f` in any file
      hint: did you mean `e`? known: e
    ");
    assert_snapshot!(wrong("e.vars.x", "[y]"), @"
    --set: `vars.x` is a list; it takes a text
      hint: write one text; quote it if it starts with `[` or `{`
    ");
    assert_snapshot!(wrong("var.x", "y"), @"
    --set: `var` is neither a known key nor an environment
      hint: did you mean `vars`? known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir, host_root; an environment is a table
    ");
}

#[test]
fn files_merge() {
    let base = environment("  finalizer_set: [register_image, distribute_images]\n")
        + "plugins: { finalizer: { distribute_images: { regions: [a, b, c], accounts: [\"000000000001\"] } } }\n";
    let regions = |over: &str| {
        let config = Layers::new().file("base", base.as_str()).file("over", over).load(&catalog())?;
        let json = config.environment("e")?.finalizer_set.groups[1].members[0].settings.to_json();
        Ok::<_, ConfigErrors>(format!("{} {}", json["regions"], json["accounts"]))
    };
    let over =
        |setting: &str| regions(&format!("plugins: {{ finalizer: {{ distribute_images: {{ {setting} }} }} }}\n"));
    assert_eq!(over("regions: [q]").unwrap(), r#"["q"] ["000000000001"]"#, "lists replace, tables merge");
    assert_eq!(over("regions+: [q]").unwrap(), r#"["a","b","c","q"] ["000000000001"]"#);
    assert_eq!(over("regions: ~").unwrap(), r#"null ["000000000001"]"#);
    assert_snapshot!(over("regions: q").unwrap_err(), @"
    over:1:55: `regions` is a text here, laid over a list
      base:7:55: a list here
      hint: write a list: `regions: [ITEM]`
    over:1:55: `regions` is `q`; it takes a list, each item a text
      hint: write a list: `[q]`
    ");
    assert_eq!(regions("e: { finalizer_set+: [asgard_poke] }\n").unwrap(), r#"["a","b","c"] ["000000000001"]"#);
}

#[test]
fn mistakes_of_all_files() {
    let layers =
        Layers::new().file("one.yaml", "a: [\n").file("two.yaml", "b: 1\nb: 2\n").files([PathBuf::from("/none.yaml")]);
    assert_snapshot!(layers.load(&catalog()).unwrap_err(), @"
    /none.yaml: cannot read the file: No such file or directory (os error 2)
    one.yaml:2:1: while parsing a node, did not find expected node content
      hint: look here and above for a quote, a bracket or a `:` that is missing or too much
    two.yaml:2:1: the key `b` is in this table twice
      two.yaml:1:1: first here
      hint: keep one of the two
    ");
}

#[test]
fn variables_name_what_exists() {
    let load = |name: &str, value: &str| {
        variables(Layers::new().file("f", environment("  vars: { Name: x }\n")), &[(name, value)]).load(&catalog())
    };
    let text = |result: Result<Config, ConfigErrors>| match result {
        Ok(_) => "no error".to_owned(),
        Err(errors) => errors.to_string(),
    };
    assert_eq!(load("BAKE__STATE_DIR", "/x").unwrap().setting("state_dir").unwrap().text, "/x");
    assert_eq!(
        load("BAKE__state_dir", "/x").unwrap().setting("state_dir").unwrap().origin.to_string(),
        "BAKE__state_dir"
    );
    let vars = load("BAKE__e__VARS__Name", "012").unwrap().environment("e").unwrap().vars;
    assert_eq!((vars.len(), vars["Name"].text.as_str()), (1, "012"), "invented names keep their case");
    let vars = load("BAKE__VARS__NAME", "{{ x }}: ~ # [").unwrap().environment("e").unwrap().vars;
    assert_eq!(vars["NAME"].text, "{{ x }}: ~ # [");
    let cloud = load("BAKE__e__CLOUD", "local").unwrap().environment("e").unwrap().cloud;
    assert_eq!(cloud.plugin, "local");
    assert_snapshot!(text(load("BAKE__STATE", "/x")), @"
    BAKE__STATE: `STATE` is neither a known key nor an environment
      hint: known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir, host_root; an environment is a table
    ");
    assert_snapshot!(text(load("BAKE__E__CLOUD", "local")), @"
    BAKE__E__CLOUD: there is no environment `E` in any file
      hint: did you mean `e`? known: e
    ");
    assert_snapshot!(text(load("BAKE__e__CLUOD", "local")), @"
    BAKE__e__CLUOD: unknown key `CLUOD` in environment `e`
      hint: did you mean `cloud`? known: extends, cloud, blockdevice, volume, provisioner, finalizer_set, plugins, steps, vars
    ");
    assert_snapshot!(text(load("BAKE__PLUGINS__CLOUD__EC2__REGOIN", "x")), @"
    BAKE__PLUGINS__CLOUD__EC2__REGOIN: cloud `ec2` takes no `REGOIN`
      hint: did you mean `region`? known: region, token, owner, attempts, wait, volume_type, encrypted, cache_size
    ");
    assert_snapshot!(text(load("BAKE__PLUGINS__CLOUD__EC2__ENCRYPTED", "1")), @"
    BAKE__PLUGINS__CLOUD__EC2__ENCRYPTED: `encrypted` is `1`; it takes `true` or `false`
      hint: did you mean `true`?
    ");
    assert_snapshot!(text(load("BAKE____X", "1")), @"
    BAKE____X: a key is missing
      hint: write `a.b.c` for `--set`, and `BAKE__a__b__c` for a variable
    ");
    assert_snapshot!(text(load("BAKE__INCLUDE", "x.yaml")), @"
    BAKE__INCLUDE: `include` may only be in a file
      hint: write it in a file, or name another file by `--config`
    ");
}

#[test]
fn set() {
    let load = |path: &str, value: &str| {
        let text = environment("  finalizer_set: [{ distribute_images: { regions: [a] } }, asgard_poke]\n");
        let layers = Layers::new().file("f", text).set(path, value, Origin::named("--set"));
        layers.load(&catalog())?.environment("e")
    };
    let text =
        |path: &str, value: &str| load(path, value).map_or_else(|errors| errors.to_string(), |_| "no error".to_owned());
    assert_eq!(load("vars.\"a.b\"", "c").unwrap().vars["a.b"].text, "c");
    let set = load("e.finalizer_set+", "[ { asgard_poke: { name: again } } ]").unwrap().finalizer_set;
    assert_eq!(set.members().last().unwrap().name, "again");
    assert_eq!(load("e.finalizer_set", "[]").unwrap().finalizer_set.groups.len(), 0);
    assert_snapshot!(text("e.finalizer_set+", "asgard_poke"), @"
    --set: only a list can be appended
      hint: put it in brackets: `[ITEM]`
    ");
    assert_snapshot!(text("e.finalizer_set", "[asgard_poke"), @"
    --set: while parsing a flow sequence, expected ',' or ']'
      hint: look here and above for a quote, a bracket or a `:` that is missing or too much
    ");
    assert_snapshot!(text("e..x", "1"), @"
    --set: a key is missing
      hint: write `a.b.c` for `--set`, and `BAKE__a__b__c` for a variable
    ");
    assert_snapshot!(text("vars.\"x", "1"), @r#"
    --set: `vars."x`: a quote is not closed
      hint: quote a key that has a dot in it: `tags."a.b"`
    "#);
    assert_snapshot!(text("f.cloud", "ec2"), @"
    --set: there is no environment `f` in any file
      hint: did you mean `e`? known: e
    ");
}

fn included(files: &'static [(&'static str, &'static str)], main: &str) -> Result<Config, ConfigErrors> {
    let reader = move |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or(io::Error::from(io::ErrorKind::NotFound))
    };
    Layers::new().reader(reader).file("dir/main.yaml", main).load(&catalog())
}

#[test]
fn include() {
    const FILES: &[(&str, &str)] = &[
        ("dir/a.yaml", "include: sub/b.yaml\nvars: { x: a, y: a }\n"),
        ("dir/sub/b.yaml", "vars: { x: b, y: b, z: b }\n"),
        ("dir/self.yaml", "include: [self.yaml]\n"),
        ("dir/round.yaml", "include: ../dir/round.yaml\n"),
    ];
    let config = included(FILES, &format!("include: a.yaml\nvars: {{ x: main }}\n{}", environment(""))).unwrap();
    let vars = config.environment("e").unwrap().vars;
    let vars: Vec<String> = vars.iter().map(|(name, var)| format!("{name}={} {}", var.text, var.origin)).collect();
    assert_snapshot!(vars.join("\n"), @"
    x=main dir/main.yaml:2:12
    y=a dir/a.yaml:2:18
    z=b dir/sub/b.yaml:1:24
    ");
    assert_snapshot!(included(FILES, "include: [nowhere.yaml]\n").unwrap_err(), @"
    dir/main.yaml:1:11: cannot read the included file `dir/nowhere.yaml`: entity not found
      hint: a relative path starts at the folder of the file that includes
    ");
    assert_snapshot!(included(FILES, "include: self.yaml\n").unwrap_err(), @"
    dir/self.yaml:1:11: `dir/self.yaml` includes itself
      hint: take it out: a file that is included is read once
    ");
    assert_snapshot!(included(FILES, "include: { a: b }\n").unwrap_err(), @"
    dir/main.yaml:1:10: `include` takes a file or a list of files
      hint: write `include: FILE` or `include: [FILE, FILE]`
    ");
    assert!(included(&[("dir/../dir/main.yaml", "")], "include: ../dir/main.yaml\n").is_ok());
    assert!(included(FILES, "include: round.yaml\n").is_err(), "a circle in disguise ends");
}

#[test]
fn finding_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["etc", "user", "work/deep/er"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["etc", "user", "work"] {
        std::fs::write(root.join(name).join("environments.yaml"), "").unwrap();
    }
    let find = |working_directory: &str, user: Option<&str>, explicit: Option<&str>| {
        let places = Places {
            system: root.join("etc"),
            user: user.map(|user| root.join(user)),
            working_directory: root.join(working_directory),
            explicit: explicit.map(|file| root.join(file)),
        };
        let files = find_files(&places).into_iter();
        files.map(|file| file.strip_prefix(root).unwrap().display().to_string()).collect::<Vec<_>>().join(" ")
    };
    let (etc, user, work) = ("etc/environments.yaml", "user/environments.yaml", "work/environments.yaml");
    assert_eq!(find("work/deep/er", Some("user"), None), format!("{etc} {user} {work}"));
    assert_eq!(find("", None, None), etc);
    assert_eq!(find("work", Some("none"), Some("other.yaml")), format!("{etc} other.yaml"));
    assert_eq!(find("user", Some("user"), None), format!("{etc} {user}"), "a file counts once");
}
