//! A plan as `bake plan --json` prints it, and a run of it that is half through.

use bake_engine::{RunView, StepRecord};
use serde_json::{Value, json};

/// Returns a plan: a bake for EC2, registered twice, tagged, copied to three regions, then told to somebody.
pub(crate) fn plan() -> Value {
    serde_json::from_str(include_str!("plan.json")).expect("the sample is JSON")
}

/// Returns a run without any record of a step.
pub(crate) fn run_of(plan: &Value) -> RunView {
    let run = json!({
        "seq": 0,
        "run": {
            "id": "20260301-100000-a1b2c3", "started": "2026-03-01T10:00:00Z", "finished": null,
            "title": "helloworld 1.4-2 on ec2_yum_linux", "request_key": "k", "config": {}, "plugins": {},
            "plan": plan, "plan_digest": "d", "verdict": null, "format": 2
        },
        "steps": [], "resources": []
    });
    serde_json::from_value(run).expect("the sample is a run")
}

/// Returns the record of a step; `more` replaces what is usual.
pub(crate) fn record(path: &str, state: Option<&str>, more: &Value) -> StepRecord {
    let mut record = json!({
        "path": path, "generation": 0, "state": state, "attempts": 1, "conditions": null, "output": null, "error": null,
        "retry": null, "skipped": null
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        record[key] = value.clone();
    }
    serde_json::from_value(record).expect("the sample is a record of a step")
}

/// Returns the run.
pub(crate) fn in_flight() -> RunView {
    let mut view = run_of(&plan());
    let copy = |region: &str, image: &str| format!("finalize/distribute_images/{region}/{image}");
    let absent = |region: &str| json!({ format!("the image is not in `{region}` already"): true });
    let quota = json!({
        "attempts": 3,
        "conditions": absent("us-west-2"),
        "error": {
            "class": "permanent",
            "chain": [
                "cannot copy `ami-0f3a` to `us-west-2`",
                "ResourceLimitExceeded: 100 images are the limit in us-west-2"
            ],
            "hint": "remove images that nobody uses, or ask for a higher limit"
        }
    });
    let throttled = json!({
        "attempts": 2,
        "conditions": absent("us-east-1"),
        "error": { "class": "throttled", "chain": ["cannot copy `ami-0f3b` to `us-east-1`", "RequestLimitExceeded"] },
        "retry": { "class": "throttled", "delay_ms": 4000, "not_before": "2026-03-01T10:09:12Z" }
    });
    let here = json!({ "attempts": 0, "conditions": { "the image is not in `eu-west-1` already": false } });
    let done = [
        "base",
        "volume/create",
        "volume/open",
        "volume/provision",
        "volume/seal",
        "volume",
        "identity",
        "snapshot",
        "finalize/register_ebs_ami/image",
        "finalize/register_s3_ami/bundle",
        "finalize/register_s3_ami/upload",
        "finalize/register_s3_ami/image",
        "finalize/tag_artifacts/snapshot",
        "finalize/tag_artifacts/ebs",
        "finalize/tag_artifacts/s3",
    ];
    view.steps = done.iter().map(|path| record(path, Some("done"), &json!({}))).collect();
    view.steps.extend([
        record(&copy("eu-west-1", "ebs"), Some("skipped"), &here),
        record(&copy("eu-west-1", "s3"), None, &json!({ "conditions": absent("eu-west-1") })),
        record(&copy("us-east-1", "ebs"), Some("done"), &json!({ "conditions": absent("us-east-1") })),
        record(&copy("us-east-1", "s3"), None, &throttled),
        record(&copy("us-west-2", "ebs"), Some("failed"), &quota),
        record(&copy("us-west-2", "s3"), None, &json!({ "conditions": absent("us-west-2") })),
    ]);
    view
}
