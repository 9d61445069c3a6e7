//! Aminator's configuration as it ships.

use std::path::{Path, PathBuf};

use bake_import::{Imported, Source, find, import};
use insta::assert_snapshot;

use crate::catalog::load;
use crate::notes;

/// The folder as people have it.
fn sources() -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shipped");
    let found = find(&folder).unwrap();
    let moved = |source: Source| {
        let inside = source.path.strip_prefix(&folder).unwrap();
        Source { path: Path::new("/etc/aminator").join(inside), ..source }
    };
    found.into_iter().map(moved).collect()
}

fn imported() -> Imported {
    import(&sources()).unwrap()
}

#[test]
fn it_becomes_this_file() {
    assert_snapshot!(imported().yaml, @r#"
    # Imported by `bake env import` from the configuration of Netflix Aminator:
    #
    #   /etc/aminator/aminator.yml
    #   /etc/aminator/environments.yml
    #   /etc/aminator/logging.yml
    #   /etc/aminator/plugins/aminator.plugins.blockdevice.linux.yml
    #   /etc/aminator/plugins/aminator.plugins.cloud.ec2.yml
    #   /etc/aminator/plugins/aminator.plugins.distro.debian.yml
    #   /etc/aminator/plugins/aminator.plugins.distro.redhat.yml
    #   /etc/aminator/plugins/aminator.plugins.finalizer.tagging_ebs.yml
    #   /etc/aminator/plugins/aminator.plugins.finalizer.tagging_s3.yml
    #   /etc/aminator/plugins/aminator.plugins.provisioner.apt.yml
    #   /etc/aminator/plugins/aminator.plugins.provisioner.aptitude.yml
    #   /etc/aminator/plugins/aminator.plugins.provisioner.yum.yml
    #   /etc/aminator/plugins/aminator.plugins.volume.linux.yml
    #
    # Where these files say nothing, Aminator's own defaults are written out.

    # Used without `--env`.
    default: ec2_yum_linux

    # What templates know as `vars`. `--set vars.NAME=VALUE` changes one for a single bake.
    vars:
      creator: aminator
      suffix: "{{ date | strftime('%Y%m%d%H%M') }}"

    # Settings of plugins, for all environments.
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
            appversion: "{{ package.name }}-{{ package.version }}-{{ package.release }}"
            base_ami_version: "{{ base.tags.base_ami_version | default('') }}"
            creator: "{{ vars.creator }}"
            creation_time: "{{ date }}"

    # The environments.
    ec2_yum_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: yum
      finalizer_set: [register_ebs_ami, tag_artifacts]

    ec2_apt_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_ebs_ami, tag_artifacts]

    ec2_aptitude_linux:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_ebs_ami, tag_artifacts]

    ec2_yum_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: yum
      finalizer_set: [register_s3_ami, tag_artifacts]

    ec2_apt_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_s3_ami, tag_artifacts]

    ec2_aptitude_linux_s3:
      cloud: ec2
      blockdevice: linux
      volume: linux
      provisioner: apt
      finalizer_set: [register_s3_ami, tag_artifacts]
    "#);
}

#[test]
fn people_are_told_this() {
    assert_snapshot!(notes(&imported()), @"
    /etc/aminator/aminator.yml: `config_root`, `config_files`, `aminator_root`, `volume_dir`, `lock_dir`, `log_root`, `plugins`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/environments.yml:5:11: `distro` of `ec2_yum_linux`, `ec2_apt_linux`, `ec2_aptitude_linux`, `ec2_yum_linux_s3`, `ec2_apt_linux_s3`, `ec2_aptitude_linux_s3`: left out: bake sees from the image which distribution it is
    /etc/aminator/environments.yml:10:12: `metrics` of `ec2_yum_linux`, `ec2_apt_linux`: left out: bake sends no metrics; `bake run --result FILE` writes a report that can be counted
    /etc/aminator/environments.yml:24:16: `provisioner: aptitude` of `ec2_aptitude_linux`, `ec2_aptitude_linux_s3`: written as `apt`: bake installs by apt-get, which may choose other packages where dependencies leave a choice
    /etc/aminator/logging.yml: the whole file: left out: bake keeps a log of every run by itself, and `--verbose` shows more of it
    /etc/aminator/plugins/aminator.plugins.blockdevice.linux.yml: `enabled`, `device_prefixes`, `device_letters`, `use_minor_device_numbers`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.cloud.ec2.yml: `enabled`, `boto_debug`, `is_secure`, `ephemeral_devices`, `root_device`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.distro.debian.yml: `enabled`, `short_circuit`, `short_circuit_files`, `chroot_mounts`, `provision_configs`, `provision_config_files`, `policy_file_path`, `policy_file`, `policy_file_mode`, `policy_file_content`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.distro.redhat.yml: `enabled`, `short_circuit`, `short_circuit_files`, `chroot_mounts`, `recursive_unmount`, `provision_configs`, `provision_config_files`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.finalizer.tagging_ebs.yml: `enabled`, `default_root_device`, `default_block_device_map`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.finalizer.tagging_s3.yml: `enabled`, `default_root_device`, `default_block_device_map`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.provisioner.apt.yml: `enabled`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.provisioner.aptitude.yml: `enabled`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.provisioner.yum.yml: `enabled`: left out: Aminator's own defaults, which have no counterpart in bake
    /etc/aminator/plugins/aminator.plugins.volume.linux.yml: `enabled`, `resize_volume`: left out: Aminator's own defaults, which have no counterpart in bake
    ");
}

#[test]
fn it_loads_over_the_built_in_environments() {
    let config = load(&imported().yaml);
    assert_eq!(config.default_environment().unwrap().text, "ec2_yum_linux");
    let environment = config.environment("ec2_aptitude_linux_s3").unwrap();
    assert_eq!(environment.provisioner.plugin, "apt");
    assert_eq!(environment.vars["suffix"].text, "{{ date | strftime('%Y%m%d%H%M') }}");
    let finalizers: Vec<_> = environment.finalizer_set.groups.iter().flat_map(|group| &group.members).collect();
    assert_eq!(
        finalizers.iter().map(|member| member.plugin.as_str()).collect::<Vec<_>>(),
        ["register_s3_ami", "tag_artifacts"]
    );
    let name = finalizers[0].settings.get("image_name").unwrap().as_text().unwrap();
    assert_eq!(name, "{{ package.name }}-{{ package.version }}-{{ package.release }}-{{ arch }}-{{ vars.suffix }}-s3");
}

#[test]
fn no_file_at_all_says_the_same() {
    let without_heading = |imported: &Imported| imported.yaml.split_once("\n\n").unwrap().1.to_owned();
    let nothing = import(&[]).unwrap();
    assert_eq!(nothing.notes, []);
    let comment = "# Environments that come with Aminator; the files above do not mention them.";
    assert_eq!(without_heading(&nothing).replace(comment, "# The environments."), without_heading(&imported()));
}

#[test]
fn files_are_found_weakest_first() {
    let names: Vec<PathBuf> = sources().into_iter().map(|source| source.path).collect();
    let expected =
        ["aminator.yml", "environments.yml", "logging.yml", "plugins/aminator.plugins.blockdevice.linux.yml"];
    assert_eq!(names[..4], expected.map(|name| Path::new("/etc/aminator").join(name)));
    assert_eq!(names.len(), 13);
}

#[test]
fn a_file_of_another_name_is_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    for name in
        ["environments.yml", "environments.yaml", "aminator.plugins.cloud.ec2.yml", "notes.yml", "aminator.yml.bak"]
    {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    std::fs::create_dir(folder.path().join("aminator.yml")).unwrap();
    let names: Vec<_> =
        find(folder.path()).unwrap().into_iter().map(|source| source.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["aminator.plugins.cloud.ec2.yml", "environments.yaml", "environments.yml"]);
}

#[test]
fn a_folder_without_aminators_files_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().display().to_string();
    let error = |path: &Path| find(path).unwrap_err().to_string().replace(&shown, "FOLDER");
    assert_snapshot!(error(folder.path()), @"no file of Aminator's is in `FOLDER`: it would hold an `environments.yml`");
    assert_snapshot!(error(&folder.path().join("nowhere")), @"cannot read `FOLDER/nowhere`: No such file or directory (os error 2)");
}
