//! What sites make of it.

use insta::assert_snapshot;

use crate::catalog::load;
use crate::{imported, notes, part, plugin};

/// An environment on one line, with some keys of its own.
fn environment(more: &str) -> String {
    format!("{{ cloud: ec2, provisioner: yum, volume: linux, blockdevice: linux, finalizer: tagging_ebs, {more} }}")
}

#[test]
fn a_site_with_every_oddity() {
    let environments = "\
default: vars
vars:
  cloud: ec2
  distro: redhat
  provisioner: yum
  volume: linux
  blockdevice: virtio
  finalizer: tagging_ebs_vault
  colour: blue
chef:
  cloud: euca
  provisioner: chef
  volume: linux
  blockdevice: linux
  finalizer: tagging_ebs
'null':
  cloud: ec2
  provisioner: apt
ec2_apt_linux:
  finalizer: tagging_s3
";
    let ebs = "\
name_format: '{package_name}-{version!r}'
description_format: 'made {0:%d %b %Y} by {{{creator}}}, 100%'
tag_formats:
  appversion: '{name}-{build_job}'
  owner: platform
  build: '{build_number:>5}'
  creation_time: '{0:%F}'
  012: yes
suffix_format: '{0:%c}'
creator: '{{team}}'
default_root_device: /dev/xvda
";
    let s3 = "\
enabled: no
bucket: images
default_cert: /etc/cert.pem
cert: /root/cert.pem
default_ec2_user: 012345678901
default_tmpdir: /mnt
suffix_format:
";
    let cloud = "\
region: eu-west-1
base_ami_name: base-1.10
base_ami_id: ami-1
boto_debug: true
is_secure: yes
ephemeral_devices: []
secret_key: hunter2
";
    let main = "\
aminator_root: /mnt/aminator
log_root: /var/log/aminator
context:
  ami:
    tags: { owner: platform }
  web_log: { host: logs.example.com }
";
    let files = [
        ("environments.yml", environments),
        ("aminator.yml", main),
        ("logging.yml", "root: {}\n"),
        (&plugin("finalizer", "tagging_ebs"), ebs),
        (&plugin("finalizer", "tagging_s3"), s3),
        (&plugin("finalizer", "tagging_ebs_vault"), "path: secret/x\n"),
        (&plugin("cloud", "ec2"), cloud),
        (&plugin("blockdevice", "linux"), "device_prefixes: [nvme]\ndevice_letters: fghijklmnop\n"),
        (&plugin("volume", "linux"), "resize_volume: False\n"),
        (
            &plugin("provisioner", "yum"),
            "pkg_attributes: [name, build_job]\nchroot_mounts: [[proc, proc, /proc, null]]\n",
        ),
        (&plugin("provisioner", "chef"), "runlist: [x]\n"),
        (&plugin("distro", "debian"), "policy_file_mode: 0700\nprovision_config_files: [/etc/hosts]\n"),
        ("notes.yml", "a: b\n"),
    ];
    let imported = imported(&files);
    assert_snapshot!(imported.yaml, @r#"
    # Imported by `bake env import` from the configuration of Netflix Aminator:
    #
    #   environments.yml
    #   aminator.yml
    #   logging.yml
    #   plugins/aminator.plugins.finalizer.tagging_ebs.yml
    #   plugins/aminator.plugins.finalizer.tagging_s3.yml
    #   plugins/aminator.plugins.finalizer.tagging_ebs_vault.yml
    #   plugins/aminator.plugins.cloud.ec2.yml
    #   plugins/aminator.plugins.blockdevice.linux.yml
    #   plugins/aminator.plugins.volume.linux.yml
    #   plugins/aminator.plugins.provisioner.yum.yml
    #   plugins/aminator.plugins.provisioner.chef.yml
    #   plugins/aminator.plugins.distro.debian.yml
    #   notes.yml
    #
    # Where these files say nothing, Aminator's own defaults are written out.

    # Used without `--env`.
    default: vars_environment

    # What templates know as `vars`. `--set vars.NAME=VALUE` changes one for a single bake.
    vars:
      suffix: "{{ date | strftime('%Y%m%d%H%M') }}"

    # Settings of plugins, for all environments.
    plugins:
      cloud:
        ec2:
          region: eu-west-1
          base: base-1.10
      finalizer:
        register_ebs_ami:
          image_name: "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-ebs"
          description: "made {{ date | strftime('%d %b %Y') }} by {{ '{' }}{{ vars.creator }}}, 100%"
        register_s3_ami:
          image_name: "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-s3"
          description: >-
            name={{ package.name }}, arch={{ arch }}, ancestor_name={{ base.name }}, ancestor_id={{ base.id }},
            ancestor_version={{ base.tags.base_ami_version | default('') }}
          bucket: images
          cert: /etc/cert.pem
          ec2_user: "012345678901"
        tag_artifacts:
          tags:
            appversion: "{{ package.name }}-{{ package.version }}-{{ package.release }}"
            base_ami_version: "{{ base.tags.base_ami_version | default('') }}"
            creator: "{{ vars.creator }}"
            creation_time: "{{ date }}"

    # The environments.
    vars_environment:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: yum
      finalizer_set: [register_ebs_ami, tag_artifacts]
      vars:
        creator: "{{ '{' }}{{ '{' }}team}}"
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: platform
              "012": "yes"

    ec2_apt_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_s3_ami, tag_artifacts]
      vars:
        creator: aminator
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: ~
              "012": ~

    # Environments that come with Aminator; the files above do not mention them.
    ec2_yum_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: yum
      finalizer_set: [register_ebs_ami, tag_artifacts]
      vars:
        creator: "{{ '{' }}{{ '{' }}team}}"
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: platform
              "012": "yes"

    ec2_aptitude_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_ebs_ami, tag_artifacts]
      vars:
        creator: "{{ '{' }}{{ '{' }}team}}"
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: platform
              "012": "yes"

    ec2_yum_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: yum
      finalizer_set: [register_s3_ami, tag_artifacts]
      vars:
        creator: aminator
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: ~
              "012": ~

    ec2_apt_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_s3_ami, tag_artifacts]
      vars:
        creator: aminator
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: ~
              "012": ~

    ec2_aptitude_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_s3_ami, tag_artifacts]
      vars:
        creator: aminator
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: ~
              "012": ~
    "#);
    assert_snapshot!(notes(&imported), @"
    aminator.yml: `log_root`: left out: Aminator's own defaults, which have no counterpart in bake
    aminator.yml:1:16: `aminator_root`: left out: bake keeps all it writes in one folder; choose another one by `state_dir`
    aminator.yml:5:20: `context.ami.tags.owner`: left out: write the tag below `plugins.finalizer.tag_artifacts.tags`
    aminator.yml:6:20: `context.web_log.host`: left out: bake has no links to logs; `bake run --result FILE` writes a report
    environments.yml:2:1: environment `vars`: called `vars_environment` now: `vars` is a key of bake's own
    environments.yml:4:11: `distro` of `vars`: left out: bake sees from the image which distribution it is
    environments.yml:7:16: `blockdevice: virtio` of `vars`: written as `linux`: bake has no blockdevice `virtio`
    environments.yml:8:14: `finalizer: tagging_ebs_vault` of `vars`: written as `[register_ebs_ami, tag_artifacts]`: bake has no such finalizer; add to the `finalizer_set` what it did beyond that
    environments.yml:9:11: `colour` of `vars`: left out: an environment of bake's has no such key
    environments.yml:11:10: `cloud: euca` of `chef`: the environment is left out: the cloud of Aminator's that bake has is `ec2`; write an environment with a `cloud` of bake's by hand
    environments.yml:12:16: `provisioner: chef` of `chef`: the environment is left out: bake installs by `apt` or `yum`; write it by hand with one of them, and put what this provisioner did into a package
    environments.yml:16:1: environment `null`: left out: it does not say its `blockdevice`, `volume`, `finalizer`, so Aminator could not use it either
    logging.yml: the whole file: left out: bake keeps a log of every run by itself, and `--verbose` shows more of it
    notes.yml: the whole file: left out: its name is none of Aminator's
    plugins/aminator.plugins.blockdevice.linux.yml: `device_letters`: left out: Aminator's own defaults, which have no counterpart in bake
    plugins/aminator.plugins.blockdevice.linux.yml:1:18: `device_prefixes`: left out: bake finds the device of a volume by itself
    plugins/aminator.plugins.cloud.ec2.yml: `is_secure`: left out: Aminator's own defaults, which have no counterpart in bake
    plugins/aminator.plugins.cloud.ec2.yml:3:14: `base_ami_id`: left out: Aminator takes `base_ami_name`, which is written too
    plugins/aminator.plugins.cloud.ec2.yml:4:13: `boto_debug`: left out: `--verbose` makes bake say more
    plugins/aminator.plugins.cloud.ec2.yml:6:20: `ephemeral_devices`: left out: there is no such setting; look at the block devices of the first image
    plugins/aminator.plugins.cloud.ec2.yml:7:13: `secret_key`: left out: bake has no such setting
    plugins/aminator.plugins.distro.debian.yml:1:19: `policy_file_mode`: left out: bake keeps services from starting in its own way, whatever the distribution
    plugins/aminator.plugins.distro.debian.yml:2:25: `provision_config_files`: left out: bake lends the image the machine's `resolv.conf` alone; install other files by a package
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:1:14: `name_format`: `{version!r}` changes the value it shows, for which templates have other means: Aminator's default `{name}-{version}-{release}-{arch}-{suffix}` is written instead; see to `plugins.finalizer.register_ebs_ami.image_name`
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:4:15: `tag_formats.appversion`: `{build_job}` is no name that bake knows: Aminator's default `{name}-{version}-{release}` is written instead; see to `plugins.finalizer.tag_artifacts.tags.appversion`
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:6:10: `tag_formats.build`: `{build_number:>5}` is no name that bake knows: the tag is left out; write a template of it as `plugins.finalizer.tag_artifacts.tags.build`
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:7:18: `tag_formats.creation_time`: left out: Aminator sets this tag to the time of the bake, whatever is written; so does bake
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:9:16: `suffix_format`: `{0:%c}` asks for the time by `%c`, which is not the same in bake: Aminator's default `{0:%Y%m%d%H%M}` is written instead; see to `vars.suffix`
    plugins/aminator.plugins.finalizer.tagging_ebs.yml:11:22: `default_root_device`: left out: there is no such setting; look at the block devices of the first image
    plugins/aminator.plugins.finalizer.tagging_ebs_vault.yml: the whole file: left out: bake has no finalizer `tagging_ebs_vault`
    plugins/aminator.plugins.finalizer.tagging_s3.yml:1:10: `enabled`: left out: a plugin of bake's is in use where an environment names it, and nowhere else
    plugins/aminator.plugins.finalizer.tagging_s3.yml:4:7: `cert`: left out: Aminator takes `default_cert`, which is written too
    plugins/aminator.plugins.finalizer.tagging_s3.yml:6:17: `default_tmpdir`: left out: bake has no such setting
    plugins/aminator.plugins.finalizer.tagging_s3.yml:7:14: `suffix_format`: it is empty: Aminator's default `{0:%Y%m%d%H%M}` is written instead; see to `vars.suffix`
    plugins/aminator.plugins.provisioner.chef.yml: the whole file: left out: bake has no provisioner `chef`
    plugins/aminator.plugins.provisioner.yum.yml:1:17: `pkg_attributes`: left out: bake asks the package database itself; templates know `package.name` and the like
    plugins/aminator.plugins.provisioner.yum.yml:2:16: `chroot_mounts`: left out: bake mounts what packages need in a sandbox of its own, which goes with all its mounts
    plugins/aminator.plugins.volume.linux.yml:1:16: `resize_volume`: left out: there is no switch for it; look at the size of the first image's root
    ");
    let environment = load(&imported.yaml).environment("vars_environment").unwrap();
    assert_eq!(environment.vars["creator"].text, "{{ '{' }}{{ '{' }}team}}");
}

#[test]
fn aminators_default_holds_where_a_site_says_nothing() {
    let files = [
        (&*plugin("finalizer", "tagging_ebs"), "tag_formats: { owner: platform }\n"),
        (&plugin("finalizer", "tagging_s3"), "tag_formats: { owner: platform }\n"),
    ];
    assert_snapshot!(part(&imported(&files), "plugins"), @r#"
    plugins:
      finalizer:
        register_ebs_ami:
          image_name: "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-ebs"
          description: >-
            name={{ package.name }}, arch={{ arch }}, ancestor_name={{ base.name }}, ancestor_id={{ base.id }},
            ancestor_version={{ base.tags.base_ami_version | default('') }}
        register_s3_ami:
          image_name: "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-s3"
          description: >-
            name={{ package.name }}, arch={{ arch }}, ancestor_name={{ base.name }}, ancestor_id={{ base.id }},
            ancestor_version={{ base.tags.base_ami_version | default('') }}
        tag_artifacts:
          tags:
            owner: platform
            appversion: "{{ package.name }}-{{ package.version }}-{{ package.release }}"
            base_ami_version: "{{ base.tags.base_ami_version | default('') }}"
            creator: "{{ vars.creator }}"
            creation_time: "{{ date }}"
    "#);
}

#[test]
fn the_older_names_mean_the_same() {
    let older = "\
name_format: '{package_name}-{version}-{release}-{arch}-{suffix}'
description_format: 'name={name}, arch={arch}, ancestor_name={ancestor_name}, ancestor_id={ancestor_id}, ancestor_version={ancestor_version}'
";
    let older = imported(&[(&plugin("finalizer", "tagging_ebs"), older)]);
    assert_eq!(part(&older, "plugins"), part(&imported(&[]), "plugins"));
    assert_eq!(older.notes, []);
}

#[test]
fn tags_and_vars_on_which_the_finalizers_differ_go_to_their_environments() {
    let ebs = "creator: ann\ntag_formats: { owner: platform }\n";
    let s3 = "suffix_format: '{0:%s}'\ntag_formats: { Team: '{creator}', appversion: '{name}' }\n";
    let files = [(&*plugin("finalizer", "tagging_ebs"), ebs), (&plugin("finalizer", "tagging_s3"), s3)];
    let imported = imported(&files);
    assert_eq!(part(&imported, "vars"), "");
    assert_snapshot!(part(&imported, "ec2_apt_linux") + &part(&imported, "ec2_apt_linux_s3"), @r#"
    ec2_apt_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_ebs_ami, tag_artifacts]
      vars:
        creator: ann
        suffix: "{{ date | strftime('%Y%m%d%H%M') }}"
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              owner: platform
              appversion: "{{ package.name }}-{{ package.version }}-{{ package.release }}"
              Team: ~
    ec2_apt_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_s3_ami, tag_artifacts]
      vars:
        creator: aminator
        suffix: "{{ date | strftime('%s') }}"
      plugins:
        finalizer:
          tag_artifacts:
            tags:
              Team: "{{ vars.creator }}"
              appversion: "{{ package.name }}"
              owner: ~
    "#);
    let environment = load(&imported.yaml).environment("ec2_apt_linux_s3").unwrap();
    let tags = &environment.finalizer_set.groups[1].members[0].settings.to_json()["tags"];
    assert!(tags.get("owner").is_none_or(serde_json::Value::is_null), "taken over from the environment below: {tags}");
}

#[test]
fn a_stronger_file_wins_and_the_environments_of_the_site_come_first() {
    let first = format!("mine: {}\ndefault: mine\n", environment("metrics: logger"));
    let second = "mine: { provisioner: apt, metrics: }\nec2_apt_linux: { finalizer: tagging_ebs }\n";
    let imported = imported(&[("environments.yml", &first), ("home/environments.yml", second)]);
    let config = load(&imported.yaml);
    assert_eq!(config.environment("mine").unwrap().provisioner.plugin, "apt");
    assert_eq!(config.default_environment().unwrap().text, "mine");
    assert_eq!(notes(&imported), "");
    let (own, shipped) = imported.yaml.split_once("# Environments that come with Aminator").unwrap();
    assert!(own.contains("\nmine:") && own.contains("\nec2_apt_linux:") && shipped.contains("\nec2_yum_linux:"));
}

#[test]
fn a_default_that_is_left_out_is_told() {
    let environments = format!("default: chef\nchef: {}\n", environment("").replace("yum", "chef"));
    let imported = imported(&[("environments.yml", &environments)]);
    assert_eq!(part(&imported, "default"), "");
    assert_snapshot!(notes(&imported), @"
    environments.yml:1:10: `default: chef`: left out: there is no such environment in the new file; write the name of one, or use `--env`
    environments.yml:2:34: `provisioner: chef` of `chef`: the environment is left out: bake installs by `apt` or `yum`; write it by hand with one of them, and put what this provisioner did into a package
    ");
}

#[test]
fn what_says_the_same_in_other_words_is_a_default_too() {
    let imported = imported(&[(&plugin("cloud", "ec2"), "is_secure: Yes\nregion: ''\nboto_debug: off\n")]);
    assert_snapshot!(notes(&imported), @"plugins/aminator.plugins.cloud.ec2.yml: `is_secure`, `boto_debug`: left out: Aminator's own defaults, which have no counterpart in bake");
}
