//! Going on with a plan that has grown, or that is another one.

use std::time::Duration;

use bake_engine::*;

use crate::world::*;

fn regions(bench: &Bench, name: &'static str, regions: &[&'static str]) -> Plan {
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    steps.step("check").run((), async |(), _, ()| Ok(()));
    let image = steps.step("image").mutate(&bench.image, move |()| make(name));
    let mut steps = steps.under("copy");
    let copies: Vec<_> = regions
        .iter()
        .map(|&region| steps.step(region).needs(image).mutate(&bench.image, move |image| make_on(region, &image)))
        .collect();
    steps.step("report").needs(copies).run((), async |(), _, copies| Ok(copies.len()));
    plan
}

#[tokio::test(start_paused = true)]
async fn more_regions_are_simply_run() {
    let bench = Bench::new();
    let outcome = bench.run(regions(&bench, "image", &["eu"])).await;
    bench.engine.close(&bench.spec.id, outcome.verdict).await.unwrap();
    let heir = bench.heir();
    let outcome = heir.resume(regions(&heir, "image", &["eu", "us"])).await;
    assert_eq!(
        (outcome.verdict, heir.world.names()),
        (Verdict::Done, vec!["eu".into(), "image".into(), "us".to_owned()])
    );
    assert_eq!(outcome.outputs["copy/report"], 2, "local work that reads more is done again");
    assert_eq!(heir.world.sends(), ["image", "copy/eu", "copy/us"]);

    // The journal has the longer plan now.
    let next = heir.heir();
    let error = next.engine.resume(regions(&next, "image", &["eu"]), &next.spec.id, Cancel::new()).await.unwrap_err();
    assert!(matches!(&error, EngineError::PlanChanged { differences, .. }
        if *differences == [PlanDifference::Removed { step: "copy/us".into() }]));
}

#[tokio::test(start_paused = true)]
async fn another_request_for_what_is_done_is_refused_and_nothing_happens() {
    let mut bench = Bench::new();
    bench.world.fault("copy/us", [Fault::Permanent]);
    bench.run(regions(&bench, "image", &["eu", "us"])).await;
    let told = bench.told().len();
    let mut heir = bench.heir();
    let plan = regions(&heir, "other", &["us"]);
    let error = heir.engine.resume(plan, &heir.spec.id, Cancel::new()).await.unwrap_err();
    insta::assert_snapshot!(error.to_string().replace(heir.spec.id.as_str(), "RUN"), @r#"the plan is not the one that the run `RUN` began with: the request of `image` was `{"name":"image","uses":[]}` and is `{"name":"other","uses":[]}`; `copy/eu` made something and is not in the plan any more"#);
    assert_eq!((heir.told().len(), told > 0), (0, true));

    // What was not done may change or go, and so may local work.
    let mut plan = Plan::new();
    let mut steps = plan.steps();
    let image = steps.step("image").mutate(&heir.image, |()| make("image"));
    let mut steps = steps.under("copy");
    steps.step("eu").needs(image).mutate(&heir.image, |image| make_on("eu", &image));
    steps.step("us").needs(image).mutate(&heir.image, |image| make_on("us-east-1", &image));
    assert_eq!(heir.resume(plan).await.verdict, Verdict::Done);
    assert_eq!(heir.world.names(), ["eu", "image", "us-east-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_finished_scope_takes_no_more_steps() {
    let plan = |bench: &Bench, more: bool| {
        let mut plan = Plan::new();
        let mut steps = plan.steps();
        steps.scope("volume", |scope| {
            let disk = scope.step("create").mutate(&bench.volume, |()| make("disk"));
            scope.step("use").needs(disk).run((), async |(), _, _| Ok(()));
            if more {
                scope.step("more").needs(disk).run((), async |(), _, _| Ok(()));
            }
        });
        plan
    };
    let bench = Bench::new();
    bench.die_at("INSERT ON steps WHEN NEW.path = 'volume'");
    bench.run(plan(&bench, false)).await;
    let heir = bench.heir();
    assert_eq!(heir.resume(plan(&heir, true)).await.verdict, Verdict::Done, "it begins again, with what it has now");
    let next = heir.heir();
    let mut longer = plan(&next, true);
    longer.steps().step("other").run(1, give);
    assert_eq!(next.resume(longer).await.verdict, Verdict::Done);
    let error = next.engine.resume(plan(&next, false), &next.spec.id, Cancel::new()).await.unwrap_err();
    assert!(error.to_string().ends_with("`volume/more` made something and is not in the plan any more"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_begins_again_may_have_other_steps_and_forgets_no_volume() {
    let plan = |bench: &Bench, name: &'static str| {
        let mut plan = Plan::new();
        plan.steps().scope("volume", |scope| {
            let disk = scope.step(name).mutate(&bench.volume, |()| make("disk"));
            scope.step("use").needs(disk).run((), async |(), _, _| Ok(()));
        });
        plan
    };
    let options = EngineOptions { stall_limit: Duration::from_secs(10), ..EngineOptions::default() };
    let bench = Bench::with(Patience::none(), options);
    bench.die_at("INSERT ON steps WHEN NEW.path = 'volume/use'");
    bench.run(plan(&bench, "create")).await;
    let heir = bench.heir();
    heir.world.0.lock().unwrap().hidden_use.insert("disk-0".into(), u32::MAX);
    assert_eq!(heir.resume(plan(&heir, "make")).await.verdict, Verdict::Failed);
    assert_eq!(heir.world.names(), ["disk"]);

    // The journal has the new plan now, and the old volume still goes first.
    heir.world.0.lock().unwrap().hidden_use.clear();
    let last = heir.heir();
    assert_eq!(last.resume(plan(&last, "make")).await.verdict, Verdict::Done);
    assert_eq!((last.world.names(), last.world.undone()), (vec!["disk".to_owned()], vec!["disk-0".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_a_scope_made_cannot_go_elsewhere() {
    let bench = Bench::new();
    let mut plan = Plan::new();
    plan.steps().scope("volume", |scope| {
        let disk = scope.step("create").mutate(&bench.volume, |()| make("disk"));
        scope.step("use").needs(disk).run((), async |(), _, _| Ok(()));
    });
    bench.die_at("INSERT ON steps WHEN NEW.path = 'volume/use'");
    bench.run(plan).await;
    let heir = bench.heir();
    let mut moved = Plan::new();
    let mut steps = moved.steps();
    steps.under("volume").step("create").mutate(&heir.volume, |()| make("disk"));
    steps.scope("volume", |scope| scope.step("use").run(1, give));
    let error = heir.engine.resume(moved, &heir.spec.id, Cancel::new()).await.unwrap_err();
    assert!(error.to_string().ends_with("the scope of `volume/create` was `\"volume\"` and is `null`"), "{error}");
    let gone = heir.engine.resume(Plan::new(), &heir.spec.id, Cancel::new()).await.unwrap_err();
    assert!(gone.to_string().ends_with("`volume/create` made something and is not in the plan any more"), "{gone}");
}
