//! Plans in print, and plans that are wrong.

use std::collections::BTreeMap;

use bake_engine::*;
use serde::{Deserialize, Serialize};

use crate::world::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Arch {
    X86_64,
    Arm64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Package {
    name: String,
    version: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Base {
    id: String,
    arch: Arch,
    size: u64,
    boot: Option<bool>,
    tags: BTreeMap<String, String>,
    packages: Vec<Package>,
}

#[derive(Serialize, Deserialize)]
struct Odd {
    at: std::net::IpAddr,
}

#[derive(Serialize, Deserialize)]
struct Request {
    name: String,
    base: String,
    arch: Arch,
    size: u64,
    twice: u64,
    fixed: u32,
    tags: BTreeMap<String, String>,
    boot: Option<bool>,
}

struct Sender;

impl Mutation for Sender {
    type Request = Request;
    type Made = Made;
    type Result = Thing;
    fn name(&self) -> &'static str {
        "test.request"
    }
    fn calls(&self) -> Calls {
        Calls { send: &["Send"], settle: &[], undo: &["Unsend"] }
    }
    fn keep(&self) -> Keep {
        Keep::Artifact
    }
    fn resend(&self) -> Resend {
        Resend::SameAnswer
    }
    async fn send(&self, _: &Op, _: &Request) -> StepResult<Made> {
        panic!("a dry run sends nothing")
    }
    async fn find(&self, _: &Op, _: &Request) -> StepResult<Found<Made>> {
        panic!("a dry run looks for nothing")
    }
    async fn settle(&self, _: &StepContext, _: &Request, _: &Made) -> StepResult<Thing> {
        panic!("a dry run waits for nothing")
    }
    async fn undo(&self, _: &Op, _: &Made) -> StepResult<Undone> {
        panic!("a dry run undoes nothing")
    }
}

fn request(base: Base) -> Request {
    let package = &base.packages[0];
    Request {
        name: format!("{}-{}", package.name, package.version),
        base: base.id,
        arch: base.arch,
        size: base.size,
        twice: base.size * 2,
        fixed: 8,
        tags: base.tags,
        boot: base.boot,
    }
}

#[test]
fn requests_are_printed_with_references() {
    let kind = Mutations::new().register(Sender);
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let base = steps.step("base").run((), async |(), _, ()| Err::<Base, _>(StepError::bug("a dry run runs nothing")));
    let sent = steps.under("finalize").step("image").needs(base).mutate(&kind, request);
    steps
        .step("report")
        .needs(sent.maybe())
        .when("yes", sent, |_| Ok(true))
        .optional()
        .run((), async |(), _, _| Ok(()));
    let steps = &plan.describe()["steps"];
    let lines: Vec<_> = steps.as_object().unwrap().iter().map(|(path, step)| format!("{path} {step}")).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    base {"kind":"work","needs":[],"after":[],"slot":"api"}
    finalize/image {"kind":"mutation","mutation":"test.request","calls":{"send":["Send"],"settle":[],"undo":["Unsend"]},"keep":"artifact","request":{"name":"${base#/packages/*/name}-${base#/packages/*/version}","base":{"$ref":"base#/id"},"arch":{"$unknown":["x86_64","arm64"]},"size":{"$ref":"base#/size"},"twice":{"$unknown":"number"},"fixed":8,"tags":{"${base#/tags/*}":{"$ref":"base#/tags/*"}},"boot":{"$unknown":[false,true]}},"needs":["base"],"after":[],"slot":"api"}
    report {"kind":"work","needs":["finalize/image"],"after":[],"when":["yes"],"optional":true,"slot":"api"}
    "#);
    let request = serde_json::to_string_pretty(&steps["finalize/image"]["request"]).unwrap();
    insta::assert_snapshot!(request, @r#"
    {
      "name": "${base#/packages/*/name}-${base#/packages/*/version}",
      "base": {
        "$ref": "base#/id"
      },
      "arch": {
        "$unknown": [
          "x86_64",
          "arm64"
        ]
      },
      "size": {
        "$ref": "base#/size"
      },
      "twice": {
        "$unknown": "number"
      },
      "fixed": 8,
      "tags": {
        "${base#/tags/*}": {
          "$ref": "base#/tags/*"
        }
      },
      "boot": {
        "$unknown": [
          false,
          true
        ]
      }
    }
    "#);
    assert_eq!(plan.digest(), plan.digest());
    assert_eq!(plan.digest().len(), 64);
}

#[test]
fn what_cannot_be_shown_says_why() {
    let bench_kind = Mutations::new().register(Maker {
        world: World::default(),
        name: "test.image",
        keep: Keep::Artifact,
        resend: Resend::OnlyIfAbsent,
        patience: Patience::none(),
    });
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let odd = steps.step("odd").run((), async |(), _, ()| Err::<Odd, _>(StepError::bug("never")));
    let flag = steps.step("flag").run((), async |(), _, ()| Ok(true));
    steps.step("image").needs(odd).mutate(&bench_kind, |odd| make(&odd.at.to_string()));
    steps
        .step("branch")
        .needs(flag)
        .mutate(&bench_kind, |flag| Make { name: "x".into(), uses: if flag { vec!["a".into()] } else { Vec::new() } });
    let printed = plan.describe();
    assert_eq!(printed["warnings"].as_array().unwrap().len(), 2, "{printed}");
    assert!(printed["steps"]["image"]["request"]["$unknown"].is_string());
    assert_eq!(printed["steps"]["branch"]["request"]["uses"]["$unknown"], serde_json::json!([[], ["a"]]));
}

#[test]
fn everything_wrong_is_said_at_once() {
    let mut other = Plan::new();
    let foreign = other.steps().step("foreign").run(1, give);
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.step("twin").run(1, give);
    steps.step("twin").run(1, give);
    steps.step("").run(1, give);
    steps.step("uses").needs(foreign).run((), async |(), _, n| Ok(n));
    steps.step("lost").after_path("nowhere").run(1, give);
    steps.step("a").after_path("b").run(1, give);
    steps.step("b").after_path("c").run(1, give);
    steps.step("c").after_path("a").run(1, give);
    let live =
        steps.scope("one", |scope| scope.step("open").open((), async |(), _, ()| Ok(1u32), async |(), _| Ok(())));
    steps.scope("two", |scope| {
        scope.step("use").needs(live).run((), async |(), _, live| Ok(*live));
    });
    insta::assert_snapshot!(plan.check().unwrap_err().to_string().replace("; ", "\n"), @r"
    `` cannot be the path of a step: no part of it is empty or has one of `#`, `$`, `{`, `}`, `:`
    `uses` uses a handle of another plan
    two steps are named `twin`
    `lost` comes after `nowhere`, and there is no such step
    `two/use` uses the live value of `one/open` outside its scope
    steps wait for each other: a → b → c → a
    ");
}

#[test]
fn a_long_chain_is_checked_without_a_deep_stack() {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut before = steps.step("0").run(0, give);
    for number in 1..20_000 {
        before = steps.step(&number.to_string()).needs(before).run((), async |(), _, n| Ok(n));
    }
    assert_eq!(plan.check(), Ok(()));
}

#[test]
fn after_a_path_means_all_steps_under_it() {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.under("copy/eu").step("one").run(1, give);
    steps.under("copy/us").step("one").run(1, give);
    steps.step("report").after_path("copy").run(1, give);
    assert_eq!(plan.describe()["steps"]["report"]["after"], serde_json::json!(["copy/eu/one", "copy/us/one"]));
}

/// What has a name of its own in an output keeps it in print, and is read by it in a run.
#[tokio::test]
async fn a_part_of_an_output_is_needed_by_its_address() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let names = steps.step("names").run((), async |(), _, ()| {
        Ok(BTreeMap::from([("eu/west".to_owned(), "one".to_owned()), ("us".to_owned(), "two".to_owned())]))
    });
    let part = names.at::<String>("/eu~1west");
    let read = steps.step("read").needs(part.clone()).run((), async |(), _, part| Ok(part));
    let missing =
        steps.step("missing").needs(names.at::<String>("/asia")).optional().run((), async |(), _, part| Ok(part));
    let kind = Mutations::new().register(Sender);
    let mut dry = Plan::new();
    let mut dry_steps = dry.steps();
    let dry_names = dry_steps.step("names").run((), async |(), _, ()| Ok(BTreeMap::<String, String>::new()));
    let _sent = dry_steps.step("send").needs(dry_names.at::<String>("/eu~1west")).mutate(&kind, |name| Request {
        name,
        base: "base".into(),
        arch: Arch::Arm64,
        size: 1,
        twice: 2,
        fixed: 8,
        tags: BTreeMap::new(),
        boot: None,
    });
    assert_eq!(dry.describe()["steps"]["send"]["request"]["name"], serde_json::json!({ "$ref": "names#/eu~1west" }));

    let outcome = bench.run(plan).await;
    assert_eq!(outcome.output(read).unwrap().unwrap(), "one");
    assert_eq!(outcome.output(missing).unwrap(), None);
    assert!(outcome.warnings[0].error[0].contains("has no `/asia`"), "{:?}", outcome.warnings);
}

#[tokio::test(start_paused = true)]
async fn settings_can_be_laid_on_steps_by_name() {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let mut group = steps.under("group");
    group.step("one").run(1, give);
    group.step("two").timeout(std::time::Duration::from_secs(9)).run(2, give);
    steps.step("group-like").run(3, give);
    let settings = StepDefaults::new().timeout(std::time::Duration::from_secs(5)).after_path("group-like");
    assert_eq!(plan.lay("group", &settings), 2);
    assert_eq!(plan.lay("group/one", &StepDefaults::new().optional()), 1);
    assert_eq!(plan.lay("grou", &settings), 0);
    assert_eq!(plan.paths().collect::<Vec<_>>(), ["group/one", "group/two", "group-like"]);
    let steps = &plan.describe()["steps"];
    assert_eq!(steps["group/one"]["timeout_seconds"], 5.0);
    assert_eq!(steps["group/two"]["timeout_seconds"], 5.0);
    assert_eq!(steps["group/one"]["after"], serde_json::json!(["group-like"]));
    assert_eq!(
        (&steps["group/one"]["optional"], &steps["group/two"]["optional"]),
        (&true.into(), &serde_json::Value::Null)
    );
}
