//! Tests of the engine through its public face, against a world that lives in memory.

mod cancel;
mod changed_plan;
mod crash;
mod describe;
mod journal;
mod lost_answers;
mod poison;
mod prefix;
mod random;
mod resume;
mod run;
mod scope;
mod undo;
mod world;
