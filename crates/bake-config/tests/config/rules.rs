//! What files say, once it is resolved. What is right and what is wrong by itself is the table of rules, see `table.rs`.

use bake_config::{Config, Environment};
use insta::assert_snapshot;

use crate::catalog::{catalog, environment, errors, load};

fn good(text: &str) -> Config {
    load(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn resolve(text: &str) -> Environment {
    good(text).environment("e").unwrap_or_else(|errors| panic!("{errors}"))
}

fn groups(environment: &Environment) -> String {
    let names = |group: &bake_config::Group| {
        let names: Vec<&str> = group.members.iter().map(|member| member.name.as_str()).collect();
        names.join("+")
    };
    environment.finalizer_set.groups.iter().map(names).collect::<Vec<_>>().join(" ")
}

/// The snippet everything started from loads unchanged.
#[test]
fn seed() {
    let text = "\
ec2_yum_linux:
  cloud: ec2
  provisioner: yum
  volume: linux
  blockdevice: linux
  finalizer_set: [ register_ebs_ami, tag_artifacts, distribute_images]
";
    let config = good(text);
    assert_eq!(config.environments().collect::<Vec<_>>(), ["ec2_yum_linux"]);
    assert_snapshot!(config.environment("ec2_yum_linux").unwrap_err(), @"
    environments.yaml:3:16: provisioner `yum` is not in this build of bake
      hint: build with `--features yum`
    ");
    let with_apt = text.replace("yum", "apt");
    assert_eq!(
        groups(&good(&with_apt).environment("ec2_apt_linux").unwrap()),
        "register_ebs_ami tag_artifacts distribute_images"
    );
    assert_eq!(groups(&shipped_over(&with_apt, "ec2_apt_linux")), "register_ebs_ami tag_artifacts distribute_images");
}

fn shipped() -> &'static str {
    include_str!("../../../../environments.yaml")
}

fn shipped_over(text: &str, name: &str) -> Environment {
    let layers = bake_config::Layers::new().built_in(shipped()).file("environments.yaml", text);
    layers.load(&catalog()).unwrap_or_else(|errors| panic!("{errors}")).environment(name).unwrap()
}

#[test]
fn what_ships_loads() {
    let config = bake_config::Layers::new().built_in(shipped()).load(&catalog()).unwrap();
    assert_eq!(config.default_environment().unwrap().text, "local_apt_linux");
    let names: Vec<&str> = config.environments().collect();
    assert_snapshot!(names.join(" "), @"local_apt_linux local_yum_linux ec2_apt_linux ec2_apt_loop ec2_yum_linux ec2_apt_linux_s3 ec2_yum_linux_s3");
    let environment = config.environment("local_apt_linux").unwrap();
    assert_eq!(
        (environment.cloud.plugin.as_str(), groups(&environment).as_str()),
        ("local", "register_image tag_artifacts")
    );
    assert_eq!(environment.finalizer_set.name.as_deref(), Some("local"));
}

/// The longer example of the design.
#[test]
fn example() {
    let text = "\
finalizer_sets:
  ebs_and_s3:
    - [register_ebs_ami, register_s3_ami]
    - tag_artifacts
    - distribute_images
    - asgard_poke: { optional: true }
plugins:
  cloud:
    ec2: { region: us-east-1 }
  finalizer:
    tag_artifacts:
      tags:
        appversion: \"{{ package.name }}-{{ package.version }}\"
    distribute_images:
      regions: [eu-west-1, us-west-2]
      accounts: [\"012345678901\"]
base:
  cloud: ec2
  blockdevice: linux
  volume: linux
  provisioner: yum
  finalizer_set: [ register_ebs_ami, tag_artifacts ]
e:
  extends: base
  provisioner: apt
  finalizer_set: ebs_and_s3
  plugins:
    finalizer: { distribute_images: { regions: [eu-west-1] } }
  vars: { creator: me }
";
    let environment = resolve(text);
    assert_snapshot!(serde_json::to_string_pretty(&environment.to_json()).unwrap(), @r#"
    {
      "name": "e",
      "cloud": {
        "plugin": "ec2",
        "settings": {
          "attempts": 5,
          "wait": "10m",
          "volume_type": "gp3",
          "encrypted": false,
          "cache_size": "8GiB",
          "region": "us-east-1"
        }
      },
      "blockdevice": {
        "plugin": "linux",
        "settings": {}
      },
      "volume": {
        "plugin": "linux",
        "settings": {}
      },
      "provisioner": {
        "plugin": "apt",
        "settings": {
          "recommends": false
        }
      },
      "finalizer_set": {
        "name": "ebs_and_s3",
        "groups": [
          [
            {
              "plugin": "register_ebs_ami",
              "name": "register_ebs_ami",
              "stage": "register",
              "optional": false,
              "when": null,
              "after": [],
              "timeout": null,
              "retry": null,
              "settings": {}
            },
            {
              "plugin": "register_s3_ami",
              "name": "register_s3_ami",
              "stage": "register",
              "optional": false,
              "when": null,
              "after": [],
              "timeout": null,
              "retry": null,
              "settings": {}
            }
          ],
          [
            {
              "plugin": "tag_artifacts",
              "name": "tag_artifacts",
              "stage": "tag",
              "optional": false,
              "when": null,
              "after": [],
              "timeout": null,
              "retry": null,
              "settings": {
                "tags": {
                  "creator": "{{ vars.creator }}",
                  "Owner": "nobody",
                  "appversion": "{{ package.name }}-{{ package.version }}"
                }
              }
            }
          ],
          [
            {
              "plugin": "distribute_images",
              "name": "distribute_images",
              "stage": "distribute",
              "optional": false,
              "when": null,
              "after": [],
              "timeout": null,
              "retry": null,
              "settings": {
                "regions": [
                  "eu-west-1"
                ],
                "accounts": [
                  "012345678901"
                ]
              }
            }
          ],
          [
            {
              "plugin": "asgard_poke",
              "name": "asgard_poke",
              "stage": "notify",
              "optional": true,
              "when": null,
              "after": [],
              "timeout": "30s",
              "retry": null,
              "settings": {}
            }
          ]
        ]
      },
      "steps": {},
      "vars": {
        "creator": "me"
      }
    }
    "#);
    let values: Vec<String> = environment
        .values()
        .into_iter()
        .map(|shown| format!("{} = {}  # {}", shown.path, shown.value, shown.origin))
        .collect();
    assert_snapshot!(values.join("\n"), @r#"
    cloud = ec2  # environments.yaml:18:10
    cloud.attempts = 5  # built-in
    cloud.wait = 10m  # built-in
    cloud.volume_type = gp3  # built-in
    cloud.encrypted = false  # built-in
    cloud.cache_size = 8GiB  # built-in
    cloud.region = us-east-1  # environments.yaml:9:20
    blockdevice = linux  # environments.yaml:19:16
    volume = linux  # environments.yaml:20:11
    provisioner = apt  # environments.yaml:25:16
    provisioner.recommends = false  # built-in
    finalizer_set.register_ebs_ami = register_ebs_ami  # environments.yaml:3:8
    finalizer_set.register_s3_ami = register_s3_ami  # environments.yaml:3:26
    finalizer_set.tag_artifacts = tag_artifacts  # environments.yaml:4:7
    finalizer_set.tag_artifacts.tags.creator = {{ vars.creator }}  # built-in
    finalizer_set.tag_artifacts.tags.Owner = nobody  # built-in
    finalizer_set.tag_artifacts.tags.appversion = {{ package.name }}-{{ package.version }}  # environments.yaml:13:21
    finalizer_set.distribute_images = distribute_images  # environments.yaml:5:7
    finalizer_set.distribute_images.regions = ["eu-west-1"]  # environments.yaml:28:48
    finalizer_set.distribute_images.accounts = ["012345678901"]  # environments.yaml:16:17
    finalizer_set.asgard_poke = asgard_poke  # environments.yaml:6:7
    finalizer_set.asgard_poke.optional = true  # environments.yaml:6:32
    vars.creator = me  # environments.yaml:29:20
    "#);
}

#[test]
fn nothing_written() {
    for text in ["", "# only a comment\n", "---\n", "---\n...\n", "\u{feff}", "~"] {
        assert_eq!(good(text).environments().count(), 0, "{text:?}");
    }
}

/// A plugin says itself what the keys of every finalizer usually are for it; whoever writes them is stronger, `~` included.
#[test]
fn what_is_usual_for_a_finalizer_gives_way() {
    let poke = |own: &str| {
        let set = resolve(&environment(&format!("  finalizer_set: [asgard_poke: {{ {own} }}]\n"))).finalizer_set;
        let poke = &set.groups[0].members[0];
        (poke.optional, poke.timeout.map(|timeout| timeout.as_secs()), poke.retry)
    };
    assert_eq!(poke(""), (true, Some(30), None));
    assert_eq!(poke("optional: false, retry: 3"), (false, Some(30), Some(3)));
    assert_eq!(poke("optional: ~, timeout: ~"), (false, None, None));
}

/// What is laid on steps merges like everything else; the paths are for the plan to know.
#[test]
fn steps() {
    let text = environment(
        "  steps: { volume/provision: { timeout: 45m, retry: 2 }, volume: { retry: 1 }, gone: { retry: 9 } }\n",
    ) + "f:
  extends: e
  steps:
    volume/provision: { retry: ~, after: [other/step] }
    identity: { after: volume }
    gone: ~
";
    let environment = good(&text).environment("f").unwrap_or_else(|errors| panic!("{errors}"));
    let step = &environment.steps[0];
    assert_eq!(
        (step.path.text.as_str(), step.path.origin.to_string().as_str()),
        ("volume/provision", "environments.yaml:7:12")
    );
    assert_eq!((step.timeout.map(|timeout| timeout.as_secs()), step.retry), (Some(45 * 60), None));
    assert_eq!(step.after[0].origin.to_string(), "environments.yaml:11:43");
    assert_snapshot!(environment.to_json()["steps"], @r#"{"volume/provision":{"timeout":"45m","retry":null,"after":["other/step"]},"volume":{"timeout":null,"retry":1,"after":[]},"identity":{"timeout":null,"retry":null,"after":["volume"]}}"#);
    let values = environment.values().into_iter().filter(|shown| shown.path.starts_with("steps"));
    let values: Vec<String> =
        values.map(|shown| format!("{}: {}  # {}", shown.path, shown.value, shown.origin)).collect();
    assert_snapshot!(values.join("\n"), @r#"
    steps.volume/provision.timeout: 45m  # environments.yaml:7:41
    steps.volume/provision.after: ["other/step"]  # environments.yaml:11:42
    steps.volume.retry: 1  # environments.yaml:7:75
    steps.identity.after: ["volume"]  # environments.yaml:12:24
    "#);
}

/// People see who made a finalizer optional, and when it runs; what is usual for its plugin is not shown.
#[test]
fn what_is_said_of_a_finalizer_is_shown_with_its_place() {
    let text = environment(
        "  finalizer_set:
    - register_ebs_ami: { when: \"arch == 'x86_64'\", timeout: 90s, else: register_image }
    - register_s3_ami: { after: [register_image, register_ebs_ami], retry: 2 }
    - tag_artifacts: { after: register_image }
    - asgard_poke
  plugins: { finalizer: { register_s3_ami: { optional: true } } }
",
    );
    let values = resolve(&text).values().into_iter().filter(|shown| shown.path.starts_with("finalizer_set"));
    let values: Vec<String> =
        values.map(|shown| format!("{}: {}  # {}", shown.path, shown.value, shown.origin)).collect();
    assert_snapshot!(values.join("\n"), @r#"
    finalizer_set.register_ebs_ami: register_ebs_ami  # environments.yaml:7:7
    finalizer_set.register_ebs_ami.timeout: 90s  # environments.yaml:7:62
    finalizer_set.register_ebs_ami.when: arch == 'x86_64'  # environments.yaml:7:33
    finalizer_set.register_image: register_image  # environments.yaml:7:73
    finalizer_set.register_image.when: not (arch == 'x86_64')  # environments.yaml:7:33
    finalizer_set.register_s3_ami: register_s3_ami  # environments.yaml:8:7
    finalizer_set.register_s3_ami.optional: true  # environments.yaml:11:56
    finalizer_set.register_s3_ami.retry: 2  # environments.yaml:8:76
    finalizer_set.register_s3_ami.after: ["register_image","register_ebs_ami"]  # environments.yaml:8:34
    finalizer_set.tag_artifacts: tag_artifacts  # environments.yaml:9:7
    finalizer_set.tag_artifacts.tags.creator: {{ vars.creator }}  # built-in
    finalizer_set.tag_artifacts.tags.Owner: nobody  # built-in
    finalizer_set.asgard_poke: asgard_poke  # environments.yaml:10:7
    "#);
}

/// What runs in its place is a member like any other, right behind the one it stands in for.
#[test]
fn an_else_runs_when_the_predicate_does_not_hold() {
    let set = resolve(&environment(
        "  finalizer_set:
    - register_image:
        when: \"arch == 'x86_64'\"
        else:
          - register_s3_ami: { when: \"arch == 'arm64' or vars.old\", else: { register_image: { name: other } } }
          - register_ebs_ami
    - asgard_poke
",
    ))
    .finalizer_set;
    let members = set.members().map(|member| format!("{}: {}", member.name, member.when().unwrap_or_default()));
    assert_snapshot!(members.collect::<Vec<_>>().join("\n"), @"
    register_image: arch == 'x86_64'
    register_s3_ami: not (arch == 'x86_64') and (arch == 'arm64' or vars.old)
    other: not (arch == 'x86_64') and not (arch == 'arm64' or vars.old)
    register_ebs_ami: not (arch == 'x86_64')
    asgard_poke:
    ");
    assert_eq!(set.groups.len(), 2);
    let conditions = &set.groups[0].members[2].conditions;
    let conditions: Vec<_> = conditions.iter().map(|own| (own.predicate.text.as_str(), own.holds)).collect();
    assert_eq!(conditions, [("arch == 'x86_64'", false), ("arch == 'arm64' or vars.old", false)]);
    let origin = &set.groups[0].members[2].conditions[1].predicate.origin;
    assert_eq!(origin.to_string(), "environments.yaml:10:38");
}

/// A known plugin that is not built is a mistake only of those who choose it.
#[test]
fn not_built() {
    let config = good(&format!("{}y: {{ extends: e, provisioner: yum }}\n", environment("")));
    assert!(config.environment("e").is_ok());
    assert_snapshot!(config.environment("y").unwrap_err(), @"
    environments.yaml:7:31: provisioner `yum` is not in this build of bake
      hint: build with `--features yum`
    ");
    assert_snapshot!(config.environment("f").unwrap_err(), @"
    --env: there is no environment `f`
      hint: did you mean `e`? known: e, y
    ");
}

#[test]
fn default() {
    let config = good(&format!("default: e\n{}", environment("")));
    assert_eq!(config.default_environment().unwrap().text, "e");
}

#[test]
fn places_of_the_machine() {
    let config = good("state_dir: /srv/bake\n");
    assert_eq!(config.setting("state_dir").unwrap().text, "/srv/bake");
    assert!(config.setting("cache_dir").is_none());
}

#[test]
fn neighbours_of_a_stage_are_together() {
    let flat = "  finalizer_set: [register_ebs_ami, register_s3_ami, tag_artifacts, asgard_poke]\n";
    let nested = "  finalizer_set: [[register_ebs_ami, register_s3_ami], tag_artifacts, asgard_poke]\n";
    for set in [flat, nested] {
        assert_eq!(groups(&resolve(&environment(set))), "register_ebs_ami+register_s3_ami tag_artifacts asgard_poke");
    }
    assert_eq!(groups(&resolve(&environment("  finalizer_set: []\n"))), "");
}

/// Which spelling was chosen is not seen in the result: the order of groups says all that `after` says of an earlier one.
#[test]
fn a_set_is_the_same_flat_nested_or_with_after() {
    let spelled = |set: &str| resolve(&environment(&format!("  finalizer_set: {set}\n"))).to_json();
    let flat = spelled("[register_ebs_ami, register_s3_ami, tag_artifacts, distribute_images]");
    let nested = spelled("[[register_ebs_ami, register_s3_ami], [tag_artifacts], distribute_images]");
    let ordered = spelled(
        "[register_ebs_ami, register_s3_ami, tag_artifacts: { after: [register_ebs_ami, register_s3_ami] },
          distribute_images: { after: tag_artifacts }]",
    );
    assert_eq!(flat, nested);
    assert_eq!(flat, ordered);
    assert_ne!(
        flat,
        spelled("[register_ebs_ami, register_s3_ami: { after: register_ebs_ami }, tag_artifacts, distribute_images]")
    );
}

#[test]
fn keys_of_every_finalizer() {
    let text = environment(
        "  finalizer_set:
    - register_image
    - tag_artifacts: { when: \"arch == 'x86_64'\" }
    - tag_artifacts: { name: again, after: tag_artifacts, optional: true, timeout: 90s, retry: 2 }
    - tag_artifacts: { name: last, after: [again, register_image] }
    - asgard_poke:
  plugins:
    finalizer: { asgard_poke: { retry: 1, timeout: 5m } }
",
    );
    let set = resolve(&text).finalizer_set;
    let members: Vec<_> = set.members().collect();
    assert_eq!(members[1].when().unwrap(), "arch == 'x86_64'");
    assert_eq!((members[2].plugin.as_str(), members[2].name.as_str()), ("tag_artifacts", "again"));
    assert_eq!(members[2].after[0].text, "tag_artifacts");
    assert_eq!((members[2].optional, members[2].retry), (true, Some(2)));
    assert_eq!(members[2].timeout, Some(std::time::Duration::from_secs(90)));
    assert_eq!(members[3].after.iter().map(|after| after.text.as_str()).collect::<Vec<_>>(), ["again"]);
    assert_eq!((members[4].retry, members[4].timeout), (Some(1), Some(std::time::Duration::from_secs(300))));
    assert_eq!((members[1].optional, members[1].timeout, members[1].retry), (false, None, None));
}

#[test]
fn extends() {
    let text = "\
a: { vars: { x: a, y: a }, plugins: { finalizer: { distribute_images: { regions: [one] } } } }
b: { vars: { x: b }, plugins: { finalizer: { distribute_images: { regions+: [two] } } } }
c: { extends: [a, b], finalizer_set: [distribute_images] }
e: { extends: c, cloud: ec2, blockdevice: loop, volume: linux, provisioner: apt, vars: { z: e },
     plugins: { finalizer: { distribute_images: { regions+: [three] } } } }
";
    let environment = resolve(text);
    let vars: Vec<String> = environment.vars.iter().map(|(name, var)| format!("{name}={}", var.text)).collect();
    assert_eq!(vars.join(" "), "x=b y=a z=e", "the right-most base wins, own keys win over bases");
    let regions = environment.finalizer_set.groups[0].members[0].settings.to_json()["regions"].to_string();
    assert_eq!(regions, r#"["one","two","three"]"#);
}

#[test]
fn appending() {
    let text =
        environment("  finalizer_set: [register_image]\n") + "f: { extends: e, finalizer_set+: [tag_artifacts] }\n";
    assert_eq!(groups(&good(&text).environment("f").unwrap()), "register_image tag_artifacts");
    assert_eq!(
        groups(&resolve(&environment("  finalizer_set+: [register_image]\n"))),
        "register_image",
        "nothing below it"
    );
}

/// Scalars are the text as written; what is taken for nothing is written without quotes.
#[test]
fn text_is_kept() {
    let written = [
        "012345678901",
        "1.10",
        "5319e7",
        "0o17",
        "0x1F",
        "no",
        "off",
        "y",
        "2024-01-02",
        "1_000",
        "+1",
        "-0",
        ".inf",
        ".nan",
        "12:30:45",
        "1e3",
        "0777",
        "=",
        "true",
        "TRUE",
        "\"~\"",
        "'null'",
        "\"\"",
        "!!str ~",
    ];
    let lines: String = written.iter().enumerate().map(|(n, text)| format!("    v{n:02}: {text}\n")).collect();
    let environment = resolve(&environment(&format!("  vars:\n{lines}")));
    let kept: Vec<&str> = environment.vars.values().map(|var| var.text.as_str()).collect();
    let expected: Vec<&str> =
        written.iter().map(|text| text.trim_start_matches("!!str ").trim_matches(['"', '\''])).collect();
    assert_eq!(kept, expected);
}

/// What one place takes away and a stronger one writes anew is new: what is below both does not shine through.
#[test]
fn what_was_taken_away_stays_away() {
    let plugins = |tags: &str| format!("plugins: {{ finalizer: {{ tag_artifacts: {{ tags: {tags} }} }} }}");
    let base =
        environment(&format!("  finalizer_set: [tag_artifacts]\n  {}\n", plugins("~"))).replacen("e:", "base:", 1);
    let text = format!("{}\n{base}e:\n  extends: base\n  {}\n", plugins("{ a: all }"), plugins("{ b: own }"));
    let tags = resolve(&text).finalizer_set.groups[0].members[0].settings.to_json()["tags"].to_string();
    assert_eq!(tags, r#"{"b":"own"}"#);
}

#[test]
fn nothing_takes_away() {
    let tags = |text: &str| {
        let plugins = format!("  plugins: {{ finalizer: {{ tag_artifacts: {{ tags: {text} }} }} }}\n");
        let environment = resolve(&environment(&format!("  finalizer_set: [tag_artifacts]\n{plugins}")));
        environment.finalizer_set.groups[0].members[0].settings.to_json()["tags"].to_string()
    };
    assert_eq!(
        tags("{ owner: me }"),
        r#"{"creator":"{{ vars.creator }}","Owner":"nobody","owner":"me"}"#,
        "tag keys keep case"
    );
    assert_eq!(tags("{ Owner: ~, creator: }"), "{}");
    assert_eq!(tags("~"), "null");
    assert_eq!(tags("{ Owner: \"~\", creator: null }"), r#"{"Owner":"~"}"#);
    assert_eq!(
        tags("{ \"C+\": x }"),
        r#"{"creator":"{{ vars.creator }}","Owner":"nobody","C+":"x"}"#,
        "quoted keys are literal"
    );
}

#[test]
fn a_character_that_no_file_may_hold() {
    assert_snapshot!(errors("vars: { a: \"x\0y\" }\n"), @r#"
    environments.yaml:1:14: the control character '\0' may not be in a file
      hint: take it out; in a text, write it as an escape within double quotes
    "#);
}

#[test]
fn aliases() {
    let text = environment("  vars: { a: &a same, b: *a }\n  plugins: { cloud: { ec2: &ec2 { region: x } } }\n");
    let text = format!("{text}f:\n  extends: e\n  plugins: {{ cloud: {{ ec2: *ec2 }} }}\n");
    assert_eq!(resolve(&text).vars["b"].text, "same");
    assert_eq!(good(&text).environment("f").unwrap().cloud.settings.to_json()["region"], "x");

    let mut laughs = "vars:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for n in 1..12 {
        laughs += &format!("  a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "));
    }
    assert_snapshot!(errors(&laughs), @"
    environments.yaml:6:42: the file is too large: with its aliases spelled out it passes 4 MiB here
      hint: use fewer aliases of aliases
    ");
}
