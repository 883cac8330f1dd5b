//! `[[key]]`: any number of tables of the same keys.

use super::key::{ConfigKeyReference, ConfigTable};
use super::mistake::ConfigMistake;
use super::shape::{FormTable, OptionalTable, TableRule, ValueShape};

/// A list of tables, and the rule between the keys of each.
pub struct TableList<R: ConfigTable, T>(pub TableRule<R, T>);

impl<R: ConfigTable, T> ValueShape for TableList<R, T> {
    type Raw = Vec<R>;
    type Checked = Vec<T>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Vec<R> {
        let tables = match value {
            toml::Value::Array(tables) => tables,
            table @ toml::Value::Table(_) => vec![table],
            other => {
                let expected = format!("tables [[{key}]] with {}", R::NAMES.join(", "));
                mistakes.push(ConfigMistake::new(key, &other.to_string(), expected));
                return Vec::new();
            }
        };
        let one = OptionalTable(self.0);
        let read = (1..).zip(tables).map(|(number, table)| one.read(&at(key, number), table, mistakes));
        read.flatten().collect()
    }

    fn check(&self, key: &str, raw: &Vec<R>, mistakes: &mut Vec<ConfigMistake>) -> Option<Vec<T>> {
        let one = FormTable(self.0);
        // Not collected into an option at once, which would stop at the first mistake.
        let checked: Vec<Option<T>> =
            (1..).zip(raw).map(|(number, raw)| one.check(&at(key, number), raw, mistakes)).collect();
        checked.into_iter().collect()
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        OptionalTable(self.0).reference(key, help)
    }
}

/// Which of the tables.
fn at(key: &str, number: usize) -> String {
    format!("{key}[{number}]")
}
