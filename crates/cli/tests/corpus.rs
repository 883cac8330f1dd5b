//! Every input that fuzzing found worth keeping, and mutations of it from a seed, without a fuzzer.
//!
//! `ENLIST_SEED` replays a run of mutations, `ENLIST_MUTATIONS` changes its length. `fuzz/README.md` says how
//! the corpus grows.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on may panic"
)]

#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
#[path = "../../../tests/fuzz/seeds.rs"]
mod seeds;
#[path = "../../../tests/fuzz/targets.rs"]
mod targets;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

const SEED: u64 = 20_261_115;
const MUTATIONS: u32 = 2000;
/// As much as a main thread has. Unoptimised frames are some twenty times as large as those of a release, and
/// a test's own thread has room for too few of them.
const STACK: usize = 8 << 20;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Name and content of every kept input of a target, in order.
fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = corpus().join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| (file.display().to_string(), std::fs::read(file).unwrap())).collect()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs a target and, should it panic, says on what.
fn check(target: &str, input: &[u8], what: &str) {
    let run = targets::TARGETS.iter().find(|(name, _)| *name == target).expect("a target of this name").1;
    if let Err(panic) = catch_unwind(|| run(input)) {
        let hex = input.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        eprintln!("{target}: {what}\n{hex}");
        resume_unwind(panic);
    }
}

/// On a thread with room for what is nested as deeply as a reader permits.
fn with_room(test: fn(&'static str), target: &'static str) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || test(target)).unwrap();
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

fn check_kept(target: &str) {
    let inputs = kept(target);
    assert!(!inputs.is_empty(), "{target} has no corpus");
    for (file, input) in inputs {
        check(target, &input, &file);
    }
}

fn check_mutations(target: &str) {
    let seed = number("ENLIST_SEED").unwrap_or(SEED);
    let rounds = number("ENLIST_MUTATIONS").unwrap_or(MUTATIONS.into());
    println!("ENLIST_SEED={seed} ENLIST_MUTATIONS={rounds}");
    let inputs: Vec<Vec<u8>> = kept(target).into_iter().map(|(_, input)| input).collect();
    let mut chance = mutate::Chance::new(seed);
    for round in 0..rounds {
        let input = mutate::mutated(&inputs, &mut chance);
        check(target, &input, &format!("ENLIST_SEED={seed}, mutation {round}"));
    }
}

macro_rules! tests {
    ($($target:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($target)),*];
        $(mod $target {
            #[test]
            fn every_kept_input_is_read_or_refused() {
                super::with_room(super::check_kept, stringify!($target));
            }

            #[test]
            fn mutations_of_kept_inputs_are_read_or_refused() {
                super::with_room(super::check_mutations, stringify!($target));
            }
        })*
    };
}

tests! {
    apply audit_line client_certificate config csr_der csr_pem json_bodies pem pin policy protobuf query_strings
    server_chain server_url snapshot stored_entry token
}

#[test]
fn targets_tests_fuzzers_and_folders_are_the_same() {
    let targets: BTreeSet<String> = targets::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(TESTED.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), targets);
    let names = |folder: PathBuf| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(corpus()), targets);
    assert_eq!(names(corpus().join("../fuzz_targets")), targets);
}

/// Writes the hand-made inputs again: after a stored form or a request has grown.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn write_seeds() {
    for (target, name, input) in seeds::all() {
        let folder = corpus().join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), input).unwrap();
    }
}
