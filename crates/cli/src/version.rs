//! `enlist version`.

use crate::error::CommandError;
use crate::output::Output;
use ::agent::version::ProgramVersion;

pub fn run(output: Output) -> Result<(), CommandError> {
    let version = ProgramVersion::of("enlist", env!("CARGO_PKG_VERSION"));
    output.document(&version, |version| version.line() + "\n")
}
