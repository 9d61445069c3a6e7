//! Pictures of a plan and of a run: as Graphviz `dot`, as a mermaid flowchart, as SVG.
//!
//! Start with [`Drawing::of_plan`] or [`Drawing::of_run`]. Nothing here prints or writes a file.
//!
//! ```
//! let plan = serde_json::json!({ "steps": {
//!     "base": { "kind": "work", "needs": [], "after": [] },
//!     "snapshot": { "kind": "mutation", "mutation": "local.snapshot", "needs": ["base"], "after": [] },
//! }});
//! let drawing = bake_graph::Drawing::of_plan(&plan)?.titled("helloworld");
//! assert!(drawing.to_svg().starts_with("<svg "));
//! assert!(drawing.to_dot().starts_with("digraph "));
//! assert!(drawing.to_mermaid().contains("flowchart TB"));
//! # Ok::<(), bake_graph::DrawingError>(())
//! ```
//!
//! # What is drawn
//!
//! Steps that do something are nodes. The end of a scope is the frame of its box; a barrier becomes arrows from each to
//! each, or a thin bar where those would be too many. An arrow that says nothing new is left out: a solid one (`needs`) if
//! a way of solid ones says the same, a dashed one (`after`) if any way does. Scopes and paths above steps are boxes. How
//! a step stands is told by a mark as well as by colour. All there is to know about a step is in its tooltip.
//!
//! # Why the layout is our own
//!
//! What we need of a layout is boxes within boxes that never overlap, lines that never run through a node, the same bytes
//! every time, and a second for a thousand steps. Of what there is for Rust, `layout-rs` and `rust-sugiyama` have no
//! boxes around nodes (clusters), and ports of dagre have them, but are young (0.1, one author) and route a line across
//! a box that is in its way, as dagre does. Laying out each box alone and using it as one item of the box around it makes
//! the promises hold by construction, in about 600 lines: `layout`.

mod dot;
mod drawing;
mod groups;
mod layout;
mod mermaid;
mod plan;
mod state;
mod svg;
mod text;
mod tooltip;
mod waits;

pub use drawing::Drawing;
pub use plan::DrawingError;
