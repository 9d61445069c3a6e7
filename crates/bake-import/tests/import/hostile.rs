//! Files that nobody meant.

use bake_import::{Source, import};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::catalog::load;
use crate::{imported, notes, plugin, site};

/// What is wrong with the files, as people see it.
fn errors(files: &[(&str, &str)]) -> String {
    import(&site(files)).map_or_else(|errors| errors.to_string(), |_| "no error".to_owned())
}

#[test]
fn empty_files_say_nothing() {
    let files = [plugin("cloud", "ec2"), plugin("finalizer", "tagging_s3"), plugin("provisioner", "chef")];
    let mut files: Vec<(&str, &str)> = files.iter().map(|name| (name.as_str(), "# nothing\n")).collect();
    files.extend([("environments.yml", ""), ("aminator.yml", "---\n")]);
    let imported = imported(&files);
    assert_eq!(notes(&imported), "");
    assert_eq!(load(&imported.yaml).environments().count(), 6);
}

#[test]
fn a_list_where_a_table_belongs_is_an_error_with_its_place() {
    assert_snapshot!(errors(&[("environments.yml", "- ec2\n")]), @"
    environments.yml:1:1: a file of environments is a table, this is a list
      hint: start with `NAME:` and indent what is below
    ");
    let finalizer = "name_format: [a]\ntag_formats: [b]\nsuffix_format: { a: b }\n";
    let cloud = "region:\n- us-east-1\n";
    let environments = "default: {}\nec2_yum_linux: yum\nmine:\nother: { cloud: [ec2] }\n";
    let files = [
        ("environments.yml", environments),
        (&plugin("cloud", "ec2"), cloud),
        (&plugin("finalizer", "tagging_ebs"), finalizer),
    ];
    assert_snapshot!(errors(&files), @"
    environments.yml:1:10: `default` takes a text, a table is written
      hint: write it on the line of the key, in quotes if it has `{` or `: ` in it
    environments.yml:2:16: `ec2_yum_linux` takes a table, a text is written
      hint: write `KEY: VALUE` below it, or take the key away
    environments.yml:3:5: `mine` takes a table, nothing is written
      hint: write `KEY: VALUE` below it, or take the key away
    environments.yml:4:17: `other.cloud` takes a text, a list is written
      hint: write it on the line of the key, in quotes if it has `{` or `: ` in it
    plugins/aminator.plugins.cloud.ec2.yml:2:3: `region` takes a text, a list is written
      hint: write it on the line of the key, in quotes if it has `{` or `: ` in it
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:1:14: `name_format` takes a text, a list is written
      hint: write it on the line of the key, in quotes if it has `{` or `: ` in it
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:2:14: `tag_formats` takes a table, a list is written
      hint: write `KEY: VALUE` below it, or take the key away
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:3:16: `suffix_format` takes a text, a table is written
      hint: write it on the line of the key, in quotes if it has `{` or `: ` in it
    ");
}

#[test]
fn what_is_not_yaml_is_an_error_with_its_place() {
    let files = [
        ("aminator.yml", "a: [b\n"),
        ("environments.yml", "default: x\ndefault: y\n"),
        (&plugin("cloud", "ec2"), "a: \"b"),
    ];
    assert_snapshot!(errors(&files), @"
    aminator.yml:2:1: while parsing a flow sequence, expected ',' or ']'
      hint: look here and above for a quote, a bracket or a `:` that is missing or too much
    environments.yml:2:1: the key `default` is in this table twice
      environments.yml:1:1: first here
      hint: keep one of the two
    plugins/aminator.plugins.cloud.ec2.yml:1:4: while scanning a quoted scalar, found unexpected end of stream
      hint: look here and above for a quote, a bracket or a `:` that is missing or too much
    ");
    let bytes = Source { path: "environments.yml".into(), content: b"a: b\nc: \xff".to_vec() };
    assert_snapshot!(import(&[bytes]).unwrap_err(), @"
    environments.yml:2:4: the byte 0xff is not UTF-8
      hint: save the file as UTF-8
    ");
}

#[test]
fn the_name_of_a_file_cannot_write_into_the_new_one() {
    let name = "etc\nec2_yum_linux: {}\n/environments.yml";
    assert!(imported(&[(name, "")]).yaml.contains("#   etc\u{fffd}ec2_yum_linux: {}\u{fffd}/environments.yml\n"));
}

/// Names of environments that mean something else to bake or to YAML.
const NAMES: &[&str] = &["plugins", "vars", "include", "state_dir", "<<", "null"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    /// Whatever people call their environments and write into formats, the new file loads.
    #[test]
    fn what_is_imported_loads(
        name in prop_oneof!["[a-z+.:{} ]{1,8}", prop::sample::select(NAMES).prop_map(str::to_owned)],
        format in prop_oneof!["[{}%#!:a-z0 '\"]{0,16}", any::<String>()],
        tag in "[A-Za-z+:#]{1,6}",
    ) {
        prop_assume!(name != "default");
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        let environment = "{ cloud: ec2, provisioner: apt, volume: linux, blockdevice: linux, finalizer: tagging_s3 }";
        let environments = format!("{}: {environment}\ndefault: {}\n", quoted(&name), quoted(&name));
        let text = quoted(&format);
        let formats = format!("name_format: {text}\nsuffix_format: {text}\ncreator: {text}\n");
        let finalizer = format!("{formats}tag_formats: {{ {}: {text} }}\n", quoted(&tag));
        let name = plugin("finalizer", "tagging_s3");
        let files = [("environments.yml", environments.as_str()), (&name, finalizer.as_str())];
        if let Ok(imported) = import(&site(&files)) {
            let config = load(&imported.yaml);
            prop_assert!(config.default_environment().is_some());
        }
    }
}
