//! A plan in print: what would be done, with references where a value is not known yet.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::inputs::NeedKind;
use crate::plan::standin::dry_request;
use crate::plan::{Node, Plan, Work};

pub(super) fn describe(plan: &Plan) -> Value {
    let graph = match plan.graph() {
        Ok(graph) => graph,
        Err(errors) => {
            let errors: Vec<_> = errors.problems.iter().map(ToString::to_string).collect();
            return json!({ "errors": errors });
        }
    };
    let mut warnings = Vec::new();
    let steps: Map<String, Value> = plan
        .nodes
        .iter()
        .zip(&graph.needs)
        .map(|(node, needs)| {
            let named = |wanted: &[NeedKind]| -> Vec<Value> {
                let of_kind = needs.iter().filter(|(_, kind)| wanted.contains(kind));
                of_kind.map(|(&from, _)| Value::from(&*plan.nodes[from].path)).collect()
            };
            let mut step = describe_work(plan, node, &mut warnings);
            step.insert("needs".into(), named(&[NeedKind::Value, NeedKind::Live]).into());
            step.insert("after".into(), named(&[NeedKind::Maybe, NeedKind::After]).into());
            describe_settings(node, &mut step);
            (node.path.to_string(), step.into())
        })
        .collect();
    json!({ "steps": steps, "warnings": warnings })
}

pub(crate) fn digest(description: &Value) -> String {
    let hash = Sha256::digest(description.to_string());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn describe_work(plan: &Plan, node: &Node, warnings: &mut Vec<String>) -> Map<String, Value> {
    let mut step = Map::new();
    let kind = match &node.work {
        Work::Run(_) => "work",
        Work::Open(_) => "open",
        Work::Mutate(_) => "mutation",
        Work::EndScope(_) => "scope",
        Work::Barrier => "wait",
    };
    step.insert("kind".into(), kind.into());
    if let Some(scope) = node.scope {
        step.insert("scope".into(), (*plan.nodes[plan.scopes[scope].end].path).into());
    }
    if let Work::Mutate(work) = &node.work {
        let dry = dry_request(plan, work);
        warnings.extend(dry.warning.map(|warning| format!("`{}`: {warning}", node.path)));
        step.insert("mutation".into(), work.mutation.name().into());
        step.insert("calls".into(), json!(work.mutation.calls()));
        step.insert("keep".into(), json!(work.mutation.keep()));
        step.insert("request".into(), dry.request);
    }
    step
}

fn describe_settings(node: &Node, step: &mut Map<String, Value>) {
    let settings = &node.settings;
    if !settings.conditions.is_empty() {
        let texts: Vec<_> = settings.conditions.iter().map(|condition| condition.text.as_str()).collect();
        step.insert("when".into(), texts.into());
    }
    if settings.optional {
        step.insert("optional".into(), true.into());
    }
    if let Some(limit) = settings.timeout {
        step.insert("timeout_seconds".into(), limit.as_secs_f64().into());
    }
    if !matches!(node.work, Work::EndScope(_) | Work::Barrier) {
        step.insert("slot".into(), json!(settings.slot));
    }
}
