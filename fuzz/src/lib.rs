//! The targets, compiled once for all fuzzers. `crates/cli/tests/corpus.rs` runs the same ones without a fuzzer.

#[path = "../../tests/fuzz/targets.rs"]
pub mod targets;
