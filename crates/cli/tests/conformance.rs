//! Runs the black-box suites in `tests/conformance` against the built programs.
//!
//! They are Python on purpose: clients that share no code with the server. They need tools that a laptop may lack, so
//! `cargo test` names them as ignored, and `bash tests/run` installs the tools and runs them.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "the black-box suites: run `bash tests/run`"]
fn the_programs_keep_their_promises_to_strangers() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = repository.join("target/venv/bin/python");
    assert!(python.exists(), "`bash tests/setup` installs what the black-box suites need");
    let programs = Path::new(env!("CARGO_BIN_EXE_enlist")).parent().expect("a directory");
    let agent = programs.join("enlist-agent");
    assert!(agent.exists(), "{} is missing: run `cargo build --workspace`", agent.display());
    let status = Command::new(python)
        .args(["-m", "pytest", "-q", "tests/conformance"])
        .current_dir(repository)
        .env("ENLIST_BIN_DIR", programs)
        .status()
        .expect("python starts");
    assert!(status.success(), "the black-box suites failed: see their output above");
}
