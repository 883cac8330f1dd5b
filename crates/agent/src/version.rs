//! `enlist-agent version`, and the same of the operator's tool.

use crate::screen::{Columns, HumanText};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct ProgramVersion {
    program: &'static str,
    version: &'static str,
}

impl ProgramVersion {
    pub fn of(program: &'static str, version: &'static str) -> Self {
        Self { program, version }
    }

    pub fn line(&self) -> String {
        format!("{} {}", self.program, self.version)
    }
}

impl HumanText for ProgramVersion {
    fn text(&self, _screen: Columns) -> String {
        self.line()
    }
}
