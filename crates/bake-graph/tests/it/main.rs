//! Pictures, as others read them: browsers, Graphviz, mermaid.

#[path = "../../examples/in_flight/sample.rs"]
mod sample;

mod dot;
mod golden;
mod mermaid;
mod plans;
mod svg;
