//! The state machine: committed entries become state, audit lines and answers.
//!
//! `core` holds the registry and applies, on a thread of its own; `storage` is what openraft sees of it;
//! `builder` makes snapshots from a view while writes go on.

mod builder;
mod core;
mod start;
mod storage;

pub use start::{Signals, start};
pub use storage::{Closed, Machine};
