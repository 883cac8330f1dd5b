//! `enlist man`: from the same definition as the parser.

use crate::command_line::definition;
use crate::failure::Failure;
use crate::output::Output;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Write a page per command into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, output: Output) -> Result<(), Failure> {
    match &arguments.out {
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(definition()).render(&mut page);
            rendered.map_err(|error| Failure::fault("man", error.to_string()))?;
            output.verbatim(&String::from_utf8_lossy(&page))
        }
        Some(dir) => {
            let made =
                std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(definition(), dir));
            made.map_err(|error| Failure::file(dir, &error))?;
            let dir = dir.display().to_string();
            output
                .document(&serde_json::json!({ "dir": dir }), |_| format!("the manual pages are in {dir}\n"))
        }
    }
}
