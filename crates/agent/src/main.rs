//! `enlist-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::main_with(std::env::args_os())
}
