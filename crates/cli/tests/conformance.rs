//! Runs the black-box suites in `tests/conformance` against the built programs.
//!
//! They are Python on purpose: clients that share no code with the server. What they need is installed by
//! `bash tests/setup`; without it they are skipped, except where `ENLIST_REQUIRE_ALL=1` says that nothing may be.

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn python() -> Option<PathBuf> {
    let own = repository().join("target/venv/bin/python");
    let found = own.exists()
        && Command::new(&own).args(["-c", "import pytest, grpc"]).status().is_ok_and(|s| s.success());
    found.then_some(own)
}

#[test]
fn the_programs_keep_their_promises_to_strangers() {
    let Some(python) = python() else {
        let required = std::env::var_os("ENLIST_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!required, "the black-box suites cannot run: bash tests/setup installs what they need");
        eprintln!("skipped: `bash tests/setup` installs what the black-box suites need");
        return;
    };
    let programs = Path::new(env!("CARGO_BIN_EXE_enlist")).parent().expect("a directory").to_owned();
    let agent = programs.join("enlist-agent");
    assert!(agent.exists(), "{} is missing: run `cargo test --workspace`", agent.display());
    let status = Command::new(python)
        .args(["-m", "pytest", "-q", "tests/conformance"])
        .current_dir(repository())
        .env("ENLIST_BIN_DIR", programs)
        .status()
        .expect("python starts");
    assert!(status.success(), "the black-box suites failed: see their output above");
}
