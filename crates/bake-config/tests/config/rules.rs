//! The rules of the file, one by one: what is right loads, what is wrong is said with its place.

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
    assert_snapshot!(names.join(" "), @"local_apt_linux local_yum_linux ec2_apt_linux ec2_yum_linux ec2_apt_linux_s3 ec2_yum_linux_s3");
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
          "attempts": "5",
          "wait": "10m",
          "volume_type": "gp3",
          "encrypted": "false",
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
          "recommends": "false"
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
              "timeout": null,
              "retry": null,
              "settings": {}
            }
          ]
        ]
      },
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
    vars.creator = me  # environments.yaml:29:20
    "#);
}

#[test]
fn nothing_written() {
    for text in ["", "# only a comment\n", "---\n", "---\n...\n", "\u{feff}", "~"] {
        assert_eq!(good(text).environments().count(), 0, "{text:?}");
    }
    assert_snapshot!(errors("- a\n"), @"
    environments.yaml:1:1: a file of environments is a table, this is a list
      hint: start with `NAME:` and indent what is below
    ");
    assert_snapshot!(errors("just text"), @"
    environments.yaml:1:1: a file of environments is a table, this is a text
      hint: start with `NAME:` and indent what is below
    ");
}

#[test]
fn unknown_keys() {
    assert_snapshot!(errors(&environment("  provisoner: yum\n")), @"
    environments.yaml:7:3: unknown key `provisoner` in environment `e`
      hint: did you mean `provisioner`? known: extends, cloud, blockdevice, volume, provisioner, finalizer_set, plugins, vars
    ");
    assert_snapshot!(errors(&environment("  region: x\n")), @"
    environments.yaml:7:3: unknown key `region` in environment `e`
      hint: known: extends, cloud, blockdevice, volume, provisioner, finalizer_set, plugins, vars
    ");
    assert_snapshot!(errors("defualt: e\n"), @"
    environments.yaml:1:1: `defualt` is neither a known key nor an environment
      hint: did you mean `default`? known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir; an environment is a table
    ");
    assert_snapshot!(errors("finalizer_set: { ebs: [tag_artifacts] }\n"), @"
    environments.yaml:1:1: `finalizer_set` is neither a known key nor an environment
      hint: did you mean `finalizer_sets`? known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir; an environment is a table
    ");
    assert_snapshot!(errors("plugins: { clouds: { ec2: {} } }\n"), @"
    environments.yaml:1:12: `clouds` is not a kind of plugin
      hint: did you mean `cloud`? known: cloud, blockdevice, volume, provisioner, finalizer
    ");
    assert_snapshot!(errors("plugins: { cloud: { ecc2: {} } }\n"), @"
    environments.yaml:1:21: there is no cloud `ecc2`
      hint: did you mean `ec2`? known: ec2, local
    ");
    assert_snapshot!(errors("plugins:\n  cloud:\n    ec2:\n      Region: x\n"), @"
    environments.yaml:4:7: cloud `ec2` takes no `Region`
      hint: did you mean `region`? known: region, token, owner, attempts, wait, volume_type, encrypted, cache_size
    ");
}

#[test]
fn unknown_plugins_and_sets() {
    assert_snapshot!(errors(&environment("").replace("cloud: ec2", "cloud: ecc")), @"
    environments.yaml:2:10: there is no cloud `ecc`
      hint: did you mean `ec2`? known: ec2, local
    ");
    assert_snapshot!(errors(&environment("").replace("provisioner: apt", "provisioner: linux")), @"
    environments.yaml:5:16: there is no provisioner `linux`
      hint: known: apt, yum; `linux` is a blockdevice and a volume
    ");
    assert_snapshot!(errors(&environment("  finalizer_set: [tag_artefacts]\n")), @"
    environments.yaml:6:19: there is no finalizer `tag_artefacts`
      hint: did you mean `tag_artifacts`? known: asgard_poke, distribute_images, register_ebs_ami, register_image, register_s3_ami, tag_artifacts
    ");
    assert_snapshot!(errors(&environment("  finalizer_set: register_image\n")), @"
    environments.yaml:6:18: there is no finalizer set `register_image`
      hint: `register_image` is a finalizer: write a list, `[register_image]`
    ");
    assert_snapshot!(errors(&format!("finalizer_sets: {{ local: [], ebs: [] }}\n{}", environment("  finalizer_set: locall\n"))), @"
    environments.yaml:7:18: there is no finalizer set `locall`
      hint: did you mean `local`? known: local, ebs
    ");
}

#[test]
fn slots() {
    assert_snapshot!(errors("e:\n  cloud: ec2\n  volume:\n"), @"
    environments.yaml:1:1: environment `e` does not say its `blockdevice`, `volume`, `provisioner`, `finalizer_set`
      hint: known: blockdevice: linux, loop; volume: linux; provisioner: apt, yum
    ");
    assert_snapshot!(errors(&environment("").replace("cloud: ec2", "cloud: { ec2: { region: x } }")), @"
    environments.yaml:2:10: `cloud` takes the name of a plugin, a table is written
      hint: its settings go below `plugins`: `plugins: { cloud: { NAME: … } }`
    ");
    assert_snapshot!(errors("e:\n"), @"
    environments.yaml:1:1: environment `e` is empty
      hint: write its `cloud`, `blockdevice`, `volume`, `provisioner` and `finalizer_set`
    ");
    assert_snapshot!(errors(&environment("  finalizer_set: { a: b }\n")), @"
    environments.yaml:6:18: `finalizer_set` takes a name or a list, a table is written
      hint: write `[FINALIZER, …]`, or the name of one of the `finalizer_sets`
    ");
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

/// A base may be incomplete, as long as nobody chooses it.
#[test]
fn incomplete_base() {
    let config = good(
        "base: { cloud: ec2, blockdevice: loop, volume: linux, finalizer_set: [] }\ne: { extends: base, provisioner: apt }\n",
    );
    assert!(config.environment("e").is_ok());
    assert_snapshot!(config.environment("base").unwrap_err(), @"
    environments.yaml:1:1: environment `base` does not say its `provisioner`
      hint: known: provisioner: apt, yum
    ");
}

#[test]
fn default() {
    let config = good(&format!("default: e\n{}", environment("")));
    assert_eq!(config.default_environment().unwrap().text, "e");
    assert_snapshot!(errors(&format!("default: f\n{}", environment(""))), @"
    environments.yaml:1:10: `default`: there is no environment `f`
      hint: did you mean `e`? known: e
    ");
    assert_snapshot!(errors("default: [e]\n"), @"environments.yaml:1:10: `default` is a list; it takes a text");
}

#[test]
fn places_of_the_machine() {
    let config = good("state_dir: /srv/bake\n");
    assert_eq!(config.setting("state_dir").unwrap().text, "/srv/bake");
    assert!(config.setting("cache_dir").is_none());
    assert_snapshot!(errors("state_dri: /srv/bake\n"), @"
    environments.yaml:1:1: `state_dri` is neither a known key nor an environment
      hint: did you mean `state_dir`? known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir; an environment is a table
    ");
}

#[test]
fn stages() {
    assert_snapshot!(errors(&environment("  finalizer_set: [tag_artifacts, register_image]\n")), @"
    environments.yaml:6:34: `register_image` (register) may not follow `tag_artifacts` (tag)
      environments.yaml:6:19: `tag_artifacts` here
      hint: the order is register, tag, distribute, notify
    ");
    assert_snapshot!(errors("finalizer_sets:\n  unused:\n    - distribute_images\n    - tag_artifacts\n"), @"
    environments.yaml:4:7: `tag_artifacts` (tag) may not follow `distribute_images` (distribute)
      environments.yaml:3:7: `distribute_images` here
      hint: the order is register, tag, distribute, notify
    ");
    assert_snapshot!(errors(&environment("  finalizer_set: [[register_image, tag_artifacts]]\n")), @"
    environments.yaml:6:36: `register_image` (register) and `tag_artifacts` (tag) cannot run together: the later stage waits for the earlier one
      hint: take them out of the nested list
    ");
}

#[test]
fn neighbours_of_a_stage_are_together() {
    let flat = "  finalizer_set: [register_ebs_ami, register_s3_ami, tag_artifacts, asgard_poke]\n";
    let nested = "  finalizer_set: [[register_ebs_ami, register_s3_ami], tag_artifacts, asgard_poke]\n";
    for set in [flat, nested] {
        assert_eq!(groups(&resolve(&environment(set))), "register_ebs_ami+register_s3_ami tag_artifacts asgard_poke");
    }
    assert_eq!(groups(&resolve(&environment("  finalizer_set: []\n"))), "");
    assert_snapshot!(errors(&environment("  finalizer_set: [[[register_image]]]\n")), @"
    environments.yaml:6:20: a list in a list in a finalizer set
      hint: write `NAME`, `NAME: { SETTING: … }`, or `[NAME, NAME]` for several together
    ");
    assert_snapshot!(errors(&environment("  finalizer_set:\n    - register_image\n    -\n")), @"
    environments.yaml:8:6: an item of a finalizer set is empty
      hint: write `NAME`, `NAME: { SETTING: … }`, or `[NAME, NAME]` for several together
    ");
    assert_snapshot!(errors(&environment("  finalizer_set:\n    - { register_image: {}, tag_artifacts: {} }\n")), @"
    environments.yaml:7:7: an item of a finalizer set is one finalizer
      hint: write `NAME`, `NAME: { SETTING: … }`, or `[NAME, NAME]` for several together
    ");
}

#[test]
fn keys_of_every_finalizer() {
    let text = environment(
        "  finalizer_set:
    - register_image
    - tag_artifacts: { when: \"arch == 'x86_64'\" }
    - tag_artifacts: { name: again, after: tag_artifacts, optional: true, timeout: 90s, retry: 2 }
    - asgard_poke:
  plugins:
    finalizer: { asgard_poke: { optional: true, timeout: 5m } }
",
    );
    let set = resolve(&text).finalizer_set;
    let members: Vec<_> = set.members().collect();
    assert_eq!(members[1].when.as_ref().unwrap().text, "arch == 'x86_64'");
    assert_eq!((members[2].plugin.as_str(), members[2].name.as_str()), ("tag_artifacts", "again"));
    assert_eq!(members[2].after[0].text, "tag_artifacts");
    assert_eq!((members[2].optional, members[2].retry), (true, Some(2)));
    assert_eq!(members[2].timeout, Some(std::time::Duration::from_secs(90)));
    assert_eq!((members[3].optional, members[3].timeout), (true, Some(std::time::Duration::from_secs(300))));
    assert_eq!((members[1].optional, members[1].timeout, members[1].retry), (false, None, None));

    let set = |items: &str| errors(&environment(&format!("  finalizer_set:\n    - {items}\n")));
    assert_snapshot!(set("register_image: { optional: yes, timeout: 90, retry: many }"), @"
    environments.yaml:7:35: `optional` is `yes`; it takes `true` or `false`
      hint: did you mean `true`?
    environments.yaml:7:49: `timeout` is `90`; it takes a time such as `90s` or `1h 30m`
      hint: say the unit: `90s`, `90m`, `90h`
    environments.yaml:7:60: `retry` is `many`; it takes a whole number
    ");
    assert_snapshot!(set("register_image: { retry: 99999999999 }"), @"environments.yaml:7:32: `retry` is `99999999999`; it takes a whole number from 0 to 4294967295");
    assert_snapshot!(set("register_image: { optionl: true }"), @"
    environments.yaml:7:25: finalizer `register_image` takes no `optionl`
      hint: did you mean `optional`? known: name, optional, when, after, timeout, retry
    ");
    assert_snapshot!(set("register_image: true"), @"
    environments.yaml:7:7: a finalizer's settings are a table
      hint: write `NAME`, `NAME: { SETTING: … }`, or `[NAME, NAME]` for several together
    ");
    assert_snapshot!(errors("plugins: { finalizer: { tag_artifacts: { name: x } } }\n"), @"
    environments.yaml:1:42: `name` belongs to one place in a finalizer set
      hint: write it there: `- tag_artifacts: { name: … }`
    ");
}

#[test]
fn names_and_order_within_a_set() {
    let set = |items: &str| errors(&environment(&format!("  finalizer_set:\n{items}")));
    assert_snapshot!(set("    - tag_artifacts\n    - tag_artifacts\n"), @"
    environments.yaml:8:7: two finalizers of this set are called `tag_artifacts`
      environments.yaml:7:7: first here
      hint: give one another name: `tag_artifacts: { name: … }`
    ");
    assert_snapshot!(set("    - tag_artifacts: { after: [tag_artifact] }\n    - asgard_poke\n"), @"
    environments.yaml:7:32: `after`: there is no `tag_artifact` in this set
      hint: known: asgard_poke
    ");
    assert_snapshot!(set("    - register_image: { after: tag_artifacts }\n    - tag_artifacts\n"), @"environments.yaml:7:32: `register_image` (register) cannot wait for `tag_artifacts` (tag): its stage comes later");
    assert_snapshot!(set("    - register_image: { after: register_s3_ami }\n    - register_s3_ami: { after: [register_image] }\n"), @"environments.yaml:7:32: `after` goes in a circle: `register_image`, `register_s3_ami`");
    assert_snapshot!(set("    - register_image: { after: register_image }\n"), @"environments.yaml:7:32: `after` goes in a circle: `register_image`");
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

    assert_snapshot!(errors("a: { extends: b }\nb: { extends: [c] }\nc: { extends: a }\n"), @"
    environments.yaml:1:1: environment `a` does not say its `cloud`, `blockdevice`, `volume`, `provisioner`, `finalizer_set`
      hint: known: cloud: ec2, local; blockdevice: linux, loop; volume: linux; provisioner: apt, yum
    environments.yaml:3:15: `extends` goes in a circle: a → b → c → a
    ");
    assert_snapshot!(errors(&format!("{}f: {{ extends: [e, g] }}\n", crate::catalog::environment(""))), @"
    environments.yaml:7:19: there is no environment `g`
      hint: did you mean `e`? known: e, f
    ");
    assert_snapshot!(errors(&crate::catalog::environment("  extends: { a: b }\n")), @"environments.yaml:7:12: `extends` takes an environment or a list of environments");
    assert_snapshot!(errors(&format!("{}f: {{ extends: e, vars: [x] }}\n", crate::catalog::environment("  vars: { x: y }\n"))), @"
    environments.yaml:8:24: `vars` is a list; it takes a table of texts
    environments.yaml:8:24: `vars` is a list here, laid over a table
      environments.yaml:7:9: a table here
      hint: give both the same shape, or take the weaker one out
    ");
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

    let sets = "finalizer_sets: { s: [register_image] }\n";
    let text =
        format!("{sets}{}f: {{ extends: e, finalizer_set+: [tag_artifacts] }}\n", environment("  finalizer_set: s\n"));
    assert_snapshot!(errors(&text), @"
    environments.yaml:8:34: `finalizer_set` is a list here, laid over a text
      environments.yaml:7:18: a text here
      hint: give both the same shape, or take the weaker one out
    ");
    assert_snapshot!(errors(&environment("  vars+: { a: b }\n")), @"
    environments.yaml:7:10: `vars+` appends to a list, a table is written
      hint: write `vars+: [ITEM]`
    ");
    assert_snapshot!(errors(&environment("  finalizer_set: []\n  finalizer_set+: [tag_artifacts]\n")), @"
    environments.yaml:7:3: `finalizer_set` and `finalizer_set+` are in one table
      environments.yaml:6:3: first here
    ");
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
fn kinds_of_settings() {
    let ec2 = |text: &str| errors(&format!("plugins:\n  cloud:\n    ec2: {{ {text} }}\n"));
    let fine = "attempts: 3, wait: 1h 30m, volume_type: gp2, encrypted: true, cache_size: 512MiB, owner: 012345678901";
    assert_eq!(ec2(fine), "no error");
    assert_eq!(ec2("encrypted: \"true\", attempts: '0', attempts+: ~").lines().count(), 2, "quotes do not matter");
    assert_snapshot!(ec2("attempts: 0o17"), @"environments.yaml:3:22: `attempts` is `0o17`; it takes a whole number");
    assert_snapshot!(ec2("attempts: 007"), @"
    environments.yaml:3:22: `attempts` is `007`; it takes a whole number
      hint: write it without the leading zeros: `7`
    ");
    assert_snapshot!(ec2("wait: 90"), @"
    environments.yaml:3:18: `wait` is `90`; it takes a time such as `90s` or `1h 30m`
      hint: say the unit: `90s`, `90m`, `90h`
    ");
    assert_snapshot!(ec2("wait: soon"), @"environments.yaml:3:18: `wait` is `soon`; it takes a time such as `90s` or `1h 30m`");
    assert_snapshot!(ec2("volume_type: gp4"), @"
    environments.yaml:3:25: `volume_type` is `gp4`; it takes one of `gp2`, `gp3`
      hint: did you mean `gp2`?
    ");
    assert_snapshot!(ec2("encrypted: no"), @"
    environments.yaml:3:23: `encrypted` is `no`; it takes `true` or `false`
      hint: did you mean `false`?
    ");
    assert_snapshot!(ec2("cache_size: 10"), @"
    environments.yaml:3:24: `cache_size` is `10`; it takes a size such as `8GiB`
      hint: say the unit: `10MiB`, `10GiB`, `10GB`
    ");
    assert_snapshot!(ec2("cache_size: 10G"), @"environments.yaml:3:24: `cache_size` is `10G`; it takes a size such as `8GiB`");
    assert_snapshot!(ec2("region: [a]"), @"environments.yaml:3:20: `region` is a list; it takes a text");
    assert_snapshot!(errors("plugins: { cloud: { ec2: fast } }\n"), @"environments.yaml:1:26: `ec2` takes a table, a text is written");
    assert_snapshot!(errors("plugins: { finalizer: { tag_artifacts: { tags: x } } }\n"), @"
    environments.yaml:1:48: `tags` is `x`; it takes a table of texts
      hint: write a table: `{ KEY: TEXT }`
    ");
    assert_snapshot!(errors("plugins: { finalizer: { tag_artifacts: { tags: { a: [b] } } } }\n"), @"environments.yaml:1:53: `tags.a` is a list; it takes a text");
    assert_snapshot!(errors("plugins: { finalizer: { distribute_images: { regions: eu-west-1 } } }\n"), @"
    environments.yaml:1:55: `regions` is `eu-west-1`; it takes a list, each item a text
      hint: write a list: `[eu-west-1]`
    ");
    assert_snapshot!(errors("plugins: { finalizer: { distribute_images: { regions: [a, ~] } } }\n"), @"environments.yaml:1:59: an item of `regions` is empty");
    assert_snapshot!(errors("plugins: { finalizer: { distribute_images: { per_region: { a: { b: c }, d: e } } } }\n"), @"
    environments.yaml:1:76: `per_region.d` is `e`; it takes a table of texts
      hint: write a table: `{ KEY: TEXT }`
    ");
}

/// An account id that lost its leading zero somewhere must never reach a request.
#[test]
fn account_ids() {
    let accounts =
        |text: &str| errors(&format!("plugins: {{ finalizer: {{ distribute_images: {{ accounts: [{text}] }} }} }}\n"));
    assert_eq!(accounts("012345678901, \"000000000012\", 999999999999"), "no error");
    assert_snapshot!(accounts("12345678901"), @"
    environments.yaml:1:57: `accounts` is `12345678901`; it takes an account id of exactly 12 digits
      hint: was a leading zero lost? `012345678901`
    ");
    assert_snapshot!(accounts("1234-5678-9012, 0123456789012, 1.23e11"), @"
    environments.yaml:1:57: `accounts` is `1234-5678-9012`; it takes an account id of exactly 12 digits
      hint: did you mean `123456789012`?
    environments.yaml:1:73: `accounts` is `0123456789012`; it takes an account id of exactly 12 digits
    environments.yaml:1:88: `accounts` is `1.23e11`; it takes an account id of exactly 12 digits
    ");
}

#[test]
fn yaml_mistakes() {
    assert_snapshot!(errors("a: 1\nb: 2\na: 3\n"), @"
    environments.yaml:1:1: `a` is neither a known key nor an environment
      hint: known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir; an environment is a table
    environments.yaml:2:1: `b` is neither a known key nor an environment
      hint: known: default, finalizer_sets, plugins, vars, include, state_dir, cache_dir, run_dir; an environment is a table
    environments.yaml:3:1: the key `a` is in this table twice
      environments.yaml:1:1: first here
    ");
    assert_snapshot!(errors("a: {}\n---\nb: {}\n"), @"
    environments.yaml:2:1: a second document starts here
      hint: a file holds one document: put the second one into a file of its own
    ");
    assert_snapshot!(errors("e:\n\tcloud: ec2\n"), @"
    environments.yaml:2:2: tabs disallowed within this context (block indentation)
      hint: line 2 is indented by a tab: use spaces
    ");
    assert_snapshot!(errors("e:\n  cloud: [ec2\n"), @"environments.yaml:3:1: while parsing a flow sequence, expected ',' or ']'");
    assert_snapshot!(errors("e: {<<: *x}\n"), @"
    environments.yaml:1:5: the merge key `<<` is not part of YAML 1.2
      hint: an environment takes over from another one by `extends: NAME`
    ");
    assert_snapshot!(errors("e: &x {cloud: ec2}\nf:\n  <<: *x\n"), @"
    environments.yaml:3:3: the merge key `<<` is not part of YAML 1.2
      hint: an environment takes over from another one by `extends: NAME`
    ");
    assert_snapshot!(errors("[a, b]: c\n"), @"
    environments.yaml:1:1: a key must be a text
      hint: quote a key that starts with `[`, `{`, `*` or `&`; a template is quoted as a whole
    ");
    assert_snapshot!(errors("vars: { a: {{ x }} }\n"), @"
    environments.yaml:1:13: a key must be a text
      hint: quote a key that starts with `[`, `{`, `*` or `&`; a template is quoted as a whole
    ");
    assert_snapshot!(errors("vars: { a: !!int 5, b: !secret x }\n"), @"
    environments.yaml:1:12: the YAML tag `!!int` is not understood
      hint: leave it out: what a text means is decided by the setting it is for
    environments.yaml:1:24: the YAML tag `!secret` is not understood
      hint: leave it out: what a text means is decided by the setting it is for
    ");
    assert_snapshot!(errors("vars: { a: \"x\0y\" }\n"), @r#"environments.yaml:1:14: the control character '\0' may not be in a file"#);
    let broken = bake_config::Layers::new().file("e.yaml", b"a: b\nc: \xff\n".to_vec()).load(&catalog()).unwrap_err();
    assert_snapshot!(broken, @"
    e.yaml:2:4: the byte 0xff is not UTF-8
      hint: save the file as UTF-8
    ");
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
    assert_snapshot!(errors(&laughs), @"environments.yaml:6:42: the file is too large: with its aliases spelled out it passes 4 MiB here");
    assert_snapshot!(errors("vars: &a { b: *a }\n"), @"environments.yaml:1:15: this alias names an anchor that is not finished yet");
    assert_snapshot!(errors(&format!("vars: {}{}\n", "[".repeat(100), "]".repeat(100))), @"environments.yaml:1:71: more than 64 levels of lists and tables");
}

/// All mistakes of a file in one go, in the order of the file.
#[test]
fn all_at_once() {
    let text = "\
default: nowhere
plugins:
  cloud: { ec2: { regoin: x } }
one:
  cloud: ec3
  provisoner: apt
two:
  cloud: ec2
  blockdevice: loop
  volume: linux
  provisioner: apt
  finalizer_set: [tag_artifacts, register_imag, { distribute_images: { accounts: [1] } }]
";
    assert_snapshot!(errors(text), @"
    environments.yaml:1:10: `default`: there is no environment `nowhere`
      hint: known: one, two
    environments.yaml:3:19: cloud `ec2` takes no `regoin`
      hint: did you mean `region`? known: region, token, owner, attempts, wait, volume_type, encrypted, cache_size
    environments.yaml:4:1: environment `one` does not say its `blockdevice`, `volume`, `provisioner`, `finalizer_set`
      hint: known: blockdevice: linux, loop; volume: linux; provisioner: apt, yum
    environments.yaml:5:10: there is no cloud `ec3`
      hint: did you mean `ec2`? known: ec2, local
    environments.yaml:6:3: unknown key `provisoner` in environment `one`
      hint: did you mean `provisioner`? known: extends, cloud, blockdevice, volume, provisioner, finalizer_set, plugins, vars
    environments.yaml:12:34: there is no finalizer `register_imag`
      hint: did you mean `register_image`? known: asgard_poke, distribute_images, register_ebs_ami, register_image, register_s3_ami, tag_artifacts
    environments.yaml:12:83: `accounts` is `1`; it takes an account id of exactly 12 digits
      hint: was a leading zero lost? `000000000001`
    ");
}
