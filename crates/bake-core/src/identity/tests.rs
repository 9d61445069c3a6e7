use bake_engine::Cancel;
use proptest::prelude::*;

use super::*;
use crate::Machine;
use crate::{AppVersion, Architecture, BaseId, Package, PackageChanges};

fn text(text: &str) -> Text {
    let file = "environments.yaml".into();
    Text { text: text.into(), origin: Origin::at(&file, 7, 3) }
}

fn known() -> Known {
    let vars = [("suffix", "202611301200"), ("creator", "ann")].map(|(name, text)| (name.into(), text.into())).into();
    Known::new(vars, "local_apt_linux", "r1", "2026-11-30T12:00:00Z".parse().unwrap()).unwrap()
}

fn part(name: &str, templates: Templates) -> Part {
    Part { name: name.into(), stage: Stage::Register, conditions: Vec::new(), templates }
}

fn register(name: &str, image_name: &str) -> Part {
    let image_name = Some(ImageName { template: text(image_name), ending: "" });
    let texts = [(DESCRIPTION.to_owned(), text(DEFAULT_DESCRIPTION))].into();
    part(name, Templates { image_name, texts, ..Templates::default() })
}

fn when(predicate: &str, part: Part) -> Part {
    Part { conditions: vec![Condition { predicate: text(predicate), holds: true }], ..part }
}

fn tags(tags: &[(&str, &str)]) -> TagTemplates {
    tags.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect()
}

fn plan(parts: Vec<Part>) -> IdentityPlan {
    IdentityPlan { known: Arc::new(known()), parts: parts.into() }
}

fn base() -> BaseImage {
    BaseImage {
        id: BaseId::new("base-1"),
        name: "debian-bookworm".into(),
        region: Region::new("here"),
        architecture: Architecture::new("x86_64"),
        size: 1,
        tags: [("base_ami_version".into(), "7".into())].into(),
        snapshot: None,
        machine: Machine::default(),
        borrowed: false,
    }
}

fn installed(package: Package) -> Installed {
    Installed { requested: vec![package.clone()], main: package, changes: PackageChanges::default() }
}

fn render_with(parts: Vec<Part>, package: Package) -> StepResult<Identity> {
    plan(parts).render(&StepContext::detached("identity", &Cancel::new()), &base(), &installed(package))
}

fn render(parts: Vec<Part>) -> StepResult<Identity> {
    render_with(parts, Package::from_debian("helloworld", "1:2.0~rc1-3", "amd64"))
}

fn refused(parts: Vec<Part>) -> String {
    render(parts).unwrap_err().chain().join("\n  caused by: ")
}

fn name_of<'a>(identity: &'a Identity, finalizer: &str) -> &'a str {
    &identity.finalizers[finalizer].texts[ImageName::KEY]
}

#[test]
fn the_defaults_are_aminators() {
    let identity = render(vec![register("register", DEFAULT_NAME)]).unwrap();
    assert_eq!(name_of(&identity, "register"), "helloworld-2.0_rc1-3-x86_64-202611301200");
    assert_eq!(
        identity.description,
        "name=helloworld, arch=x86_64, ancestor_name=debian-bookworm, ancestor_id=base-1, ancestor_version=7"
    );
    assert_eq!(
        identity.renamed,
        [Renamed {
            finalizer: "register".into(),
            wanted: "helloworld-2.0~rc1-3-x86_64-202611301200".into(),
            given: "helloworld-2.0_rc1-3-x86_64-202611301200".into(),
        }]
    );
}

#[test]
fn a_name_for_the_whole_bake_keeps_each_finalizers_ending() {
    let image_name = ImageName { template: text(DEFAULT_NAME), ending: "-ebs" };
    let templates = Templates { image_name: Some(image_name), ..Templates::default() };
    let named = with_name(templates, Some(&text("mine-{{ vars.suffix }}")));
    let identity = render(vec![part("register", named)]).unwrap();
    assert_eq!(name_of(&identity, "register"), "mine-202611301200-ebs");
}

#[test]
fn a_name_that_is_too_long_is_shortened_and_said() {
    let identity = render(vec![register("register", &format!("{}-{{{{ vars.suffix }}}}", "n".repeat(200)))]).unwrap();
    let name = name_of(&identity, "register");
    assert_eq!(name.len(), 128);
    assert!(name.ends_with("-202611301200"), "{name}");
    assert_eq!(identity.renamed[0].given, name);
    assert_eq!(identity.renamed[0].wanted.len(), 213);
}

#[test]
fn two_images_of_one_name_are_refused_before_there_is_one() {
    let two = || vec![register("one", DEFAULT_NAME), register("two", DEFAULT_NAME)];
    insta::assert_snapshot!(refused(two()), @"the images of `one` and `two` would both be called `helloworld-2.0_rc1-3-x86_64-202611301200`");
    let [one, two] = two().try_into().ok().unwrap();
    // One of the two, whatever the architecture.
    let identity = render(vec![when("arch == 'x86_64'", one), when("arch != 'x86_64'", two)]).unwrap();
    assert_eq!(identity.runs, [("one".to_owned(), true), ("two".to_owned(), false)].into());
    assert!(!identity.finalizers.contains_key("two"), "what does not run needs no names");
}

#[test]
fn tags_are_rendered_for_what_they_are_for() {
    let templates = Templates {
        tags: [
            (Rendered::SNAPSHOT.to_owned(), tags(&[("Team", "red")])),
            (Rendered::IMAGE.to_owned(), tags(&[("team", "{{ vars.creator }}"), ("where", "{{ region }}")])),
        ]
        .into(),
        copy_tags: tags(&[("where", "{{ region }}"), ("from", "{{ base.region }}")]),
        ..Templates::default()
    };
    let package = installed(Package::from_debian("helloworld", "2.0-3", "amd64"));
    let plan = plan(vec![part("tag", templates)]);
    let identity = plan.render(&StepContext::detached("identity", &Cancel::new()), &base(), &package).unwrap();
    assert_eq!(identity.finalizers["tag"].tags[Rendered::SNAPSHOT], [("Team".into(), "red".into())].into());
    assert_eq!(identity.image_tags(), [("team".into(), "ann".into()), ("where".into(), "here".into())].into());
    let copy = plan.copy_tags(&Region::new("eu-west-1"), (&base(), &package, &identity)).unwrap();
    assert_eq!((copy["where"].as_str(), copy["from"].as_str()), ("eu-west-1", "here"));
}

#[test]
fn tags_that_the_cloud_would_refuse_are_refused_before_anything_is_made() {
    let tagged = |key: &str, value: &str| {
        let tags = [(Rendered::IMAGE.to_owned(), tags(&[(key, value)]))].into();
        vec![part("tag_artifacts", Templates { tags, ..Templates::default() })]
    };
    insta::assert_snapshot!(refused(tagged("aws:team", "red")), @"
    environments.yaml:7:3: `image` of the finalizer `tag_artifacts`
      caused by: the tag key `aws:team` begins with `aws:`, which is reserved
    ");
    insta::assert_snapshot!(refused(tagged("long", "{{ 'x' * 257 }}")), @"
    environments.yaml:7:3: `image` of the finalizer `tag_artifacts`
      caused by: the value of tag `long` has 257 characters; 256 are allowed
    ");
    let many: Vec<_> = (0..48).map(|n| (format!("key{n}"), text(""))).collect();
    let templates =
        Templates { tags: [("image".to_owned(), many.into_iter().collect())].into(), ..Templates::default() };
    insta::assert_snapshot!(refused(vec![part("tag_artifacts", templates)]), @"
    the tags of `tag_artifacts`
      caused by: 51 tags are too many; 50 are allowed
    ");
}

#[test]
fn a_predicate_that_fails_says_where_it_is_written() {
    insta::assert_snapshot!(refused(vec![when("package.name + 1 == 'x'", register("one", DEFAULT_NAME))]), @"
    environments.yaml:7:3: cannot tell whether `one` runs
      caused by: cannot evaluate `package.name + 1 == 'x'`: invalid operation: tried to use + operator on unsupported types string and number (in <expression>:1)
    ");
    insta::assert_snapshot!(refused(vec![when("base.tags.team == 'red'", register("one", DEFAULT_NAME))]), @"
    environments.yaml:7:3: cannot tell whether `one` runs
      caused by: cannot evaluate `base.tags.team == 'red'`: there is no `team` in `base.tags`; there are: base_ami_version
    ");
    insta::assert_snapshot!(refused(vec![when("package.version", register("one", DEFAULT_NAME))]), @"
    environments.yaml:7:3: cannot tell whether `one` runs
      caused by: cannot evaluate `package.version`: it gives `2.0~rc1`, which is neither true nor false
    ");
}

#[test]
fn a_later_predicate_may_rely_on_an_earlier_one() {
    let conditions = |first: bool| {
        vec![
            Condition { predicate: text("base.tags.team is defined"), holds: first },
            Condition { predicate: text("base.tags.team == 'red'"), holds: true },
        ]
    };
    let part = |first| Part { conditions: conditions(first), ..register("one", DEFAULT_NAME) };
    assert!(!render(vec![part(true)]).unwrap().runs["one"]);
    assert!(render(vec![part(false)]).is_err());
}

#[test]
fn mistakes_in_templates_are_all_found_without_a_bake() {
    let templates = Templates {
        image_name: Some(ImageName { template: text("{{ package.nmae }}"), ending: "" }),
        texts: [(DESCRIPTION.to_owned(), text("{{ image.id }}"))].into(),
        tags: [("image".to_owned(), tags(&[("creator", "{{ vars.craetor }}"), ("good", "{{ vars.creator }}")]))].into(),
        late: [("url".to_owned(), text("https://host/{{ image.id }}/{{ image.nmae }}"))].into(),
        ..Templates::default()
    };
    let wrong = when("arch = 'x86_64'", part("one", templates));
    let mistakes = plan(vec![wrong, register("two", DEFAULT_NAME)]).check();
    let mistakes: Vec<_> =
        mistakes.iter().map(|mistake| format!("{mistake}: {}", std::error::Error::source(mistake).unwrap())).collect();
    insta::assert_snapshot!(mistakes.join("\n"), @"
    environments.yaml:7:3: `description` of the finalizer `one`: cannot evaluate `{{ image.id }}`: `image.id` is known only once an image is registered, which is too late here
    environments.yaml:7:3: `image_name` of the finalizer `one`: cannot evaluate `{{ package.nmae }}`: there is no `nmae` in `package`; there are: appversion, architecture, epoch, name, release, version, version_with_epoch
    environments.yaml:7:3: `tags.creator` of the finalizer `one`: cannot evaluate `{{ vars.craetor }}`: there is no `craetor` in `vars`; there are: creator, suffix
    environments.yaml:7:3: `url` of the finalizer `one`: cannot evaluate `https://host/{{ image.id }}/{{ image.nmae }}`: there is no `nmae` in `image`; there are: id, name, region, store
    environments.yaml:7:3: `when` of the finalizer `one`: cannot evaluate `arch = 'x86_64'`: syntax error: unexpected input after expression (in <expression>:1)
    ");
}

#[test]
fn what_is_about_images_is_decided_when_there_are_images() {
    let late = when("images.ebs is defined", register("one", DEFAULT_NAME));
    assert_eq!(moment(&late.conditions), Moment::Image);
    let identity = render(vec![late]).unwrap();
    assert!(identity.runs.is_empty() && identity.finalizers.contains_key("one"));
}

#[test]
fn the_content_key_is_of_what_was_made_and_not_of_what_it_is_called() {
    let key = |name: &str, package| render_with(vec![register("one", name)], package).unwrap().content_key;
    let package = |version| Package::from_debian("helloworld", version, "amd64");
    assert_eq!(key("one-name", package("1")), key("another-name", package("1")));
    assert_ne!(key("one-name", package("1")), key("one-name", package("2")));
}

#[test]
fn a_description_that_is_too_long_is_cut() {
    let templates =
        Templates { texts: [(DESCRIPTION.to_owned(), text(&"ä".repeat(300)))].into(), ..Templates::default() };
    let description = render(vec![part("one", templates)]).unwrap().description;
    assert_eq!(description.chars().count(), 255);
    assert!(description.ends_with("ä..."));
}

/// What a package may be: names with dashes and digits, versions with everything that Debian or RPM allow.
fn package() -> impl Strategy<Value = Package> {
    ("[a-z][a-z0-9+.-]{1,20}", prop::option::of("[0-9]{1,2}"), "[0-9][A-Za-z0-9.+~-]{0,20}", "[A-Za-z0-9.+~]{1,8}")
        .prop_map(|(name, epoch, version, release)| Package {
            name,
            epoch,
            version,
            release,
            architecture: "amd64".into(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_appversion_is_taken_apart_again(package in package()) {
        let parsed = AppVersion::parse(&package.appversion()).unwrap();
        prop_assert_eq!(&parsed.name, &package.name);
        // No Debian version has an underscore, so nothing is lost.
        prop_assert_eq!(parsed.version.replace('_', "-"), package.version_with_epoch());
        prop_assert_eq!(parsed.release, package.release);
    }

    /// As far as an AMI's name has the characters to tell them apart: `~`, `+` and the epoch are not in it.
    #[test]
    fn names_of_different_packages_differ(
        one in ("[a-z][a-z0-9.-]{1,20}", "[0-9][a-z0-9.]{0,20}", "[a-z0-9.]{1,8}"),
        other in ("[a-z][a-z0-9.-]{1,20}", "[0-9][a-z0-9.]{0,20}", "[a-z0-9.]{1,8}"),
    ) {
        let name = |(name, version, release): &(String, String, String)| {
            let (name, version, release) = (name.clone(), version.clone(), release.clone());
            let package = Package { name, epoch: None, version, release, architecture: "amd64".into() };
            let identity = render_with(vec![register("one", DEFAULT_NAME)], package).unwrap();
            name_of(&identity, "one").to_owned()
        };
        prop_assert_eq!(name(&one) == name(&other), one == other);
    }

    #[test]
    fn tag_keys_keep_their_case(key in "[A-Za-z][A-Za-z0-9 _.:/=+@-]{0,30}") {
        prop_assume!(!key.to_lowercase().starts_with("aws:"));
        let both = [(key.to_uppercase(), text("1")), (key.to_lowercase(), text("2")), (key.clone(), text("3"))];
        let expected: Tags = both.clone().into_iter().map(|(key, value)| (key, value.text)).collect();
        let templates = Templates { tags: [("image".to_owned(), both.into())].into(), ..Templates::default() };
        prop_assert_eq!(render(vec![part("tag", templates)]).unwrap().image_tags(), expected);
    }
}
