//! One thing for people: its fields, a line each.

use crate::table::harmless;
use anstyle::Style;
use std::fmt::Write;

#[derive(Default)]
pub struct Fields(Vec<(&'static str, String)>);

impl Fields {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with(mut self, label: &'static str, value: &str) -> Self {
        self.0.push((label, harmless(value)));
        self
    }

    /// Left out when there is nothing to say.
    pub fn with_some(self, label: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(label, value),
            None => self,
        }
    }

    pub fn text(&self) -> String {
        let width = self.0.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        let bold = Style::new().bold();
        let mut text = String::new();
        for (label, value) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {bold}{label:width$}{bold:#}  {value}");
        }
        text
    }
}
