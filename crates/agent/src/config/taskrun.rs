//! The worker's TOML of 003, read as settings of ours. Every mistake is told at once.

use std::path::Path;

use toml::de::DeTable;
use toml::{Table, Value};
use zeroize::Zeroizing;

use super::keys::{self, KEYS, SettingKey};
use super::{Environment, Values};
use crate::code::AgentCode;
use crate::fault::{Fault, Mistake};
use crate::layout::Layout;
use crate::token::SecretToken;

const TOKEN: &str = "bootstrap_token";
/// What the file says.
#[derive(Debug, Default)]
pub struct Worker {
    pub values: Values,
    /// None if its variable is not set: a worker that is enrolled needs none.
    pub token: Option<SecretToken>,
}

pub fn read(path: &Path, environment: &Environment) -> Result<Worker, Fault> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = std::fs::read_to_string(&path).map(Zeroizing::new).map_err(|error| {
        let hint = "name the worker's configuration, a UTF-8 text file that this user may read";
        Fault::usage(AgentCode::ConfigUnreadable, format!("{}: {error}", path.display()), hint)
    })?;
    let mut reading = Reading { path: &path, environment, worker: Worker::default(), mistakes: Vec::new() };
    reading.whole(&text);
    if reading.mistakes.is_empty() { Ok(reading.worker) } else { Err(Fault::config(reading.mistakes)) }
}

struct Reading<'a> {
    path: &'a Path,
    environment: &'a Environment,
    worker: Worker,
    mistakes: Vec<Mistake>,
}

impl Reading<'_> {
    fn whole(&mut self, text: &str) {
        let (_, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            // Without the library's excerpt of the text: a token may stand there.
            let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            self.wrong(&format!("line {line}"), error.message());
        }
        let table = match text.parse::<Table>() {
            Ok(table) => table,
            Err(error) if self.mistakes.is_empty() => return self.wrong("it", error.message()),
            Err(_) => return,
        };
        for (word, value) in &table {
            match (word.as_str(), value) {
                (TOKEN, value) => self.token(TOKEN, value),
                ("tls", Value::Table(tls)) => self.tls(tls),
                ("tls", _) => self.wrong("tls", "expected a table"),
                (other, _) => self.wrong(other, "unknown key"),
            }
        }
        let misspelt = !self.mistakes.is_empty();
        // One after another, since the pinned CA is also what is trusted: two keys of ours by one of theirs.
        let mut missing: Vec<&str> = KEYS
            .iter()
            .filter(|key| !self.worker.values.contains_key(key.name))
            .filter_map(|key| key.worker_key)
            .collect();
        missing.sort_unstable();
        missing.dedup();
        // A misspelt one is told by its wrong name.
        for word in missing.into_iter().filter(|_| !misspelt) {
            self.wrong(&format!("tls.{word}"), "is missing");
        }
        self.worker.values.insert(keys::LAYOUT, Value::String(Layout::Taskrun.name().to_owned()));
    }

    fn tls(&mut self, tls: &Table) {
        for (word, value) in tls {
            let at = format!("tls.{word}");
            if word == TOKEN {
                self.token(&at, value);
                continue;
            }
            let meant: Vec<&SettingKey> = KEYS.iter().filter(|key| key.worker_key == Some(word)).collect();
            if meant.is_empty() {
                self.wrong(&at, "unknown key");
                continue;
            }
            match value.as_str().map(|text| self.expanded(text)) {
                Some(Ok(text)) if !text.is_empty() => {
                    let path = self.path.parent().unwrap_or(self.path).join(text.as_str());
                    match path.to_str() {
                        Some(path) => {
                            let value = Value::String(path.to_owned());
                            let values = meant.iter().map(|key| (key.name, value.clone()));
                            self.worker.values.extend(values);
                        }
                        None => self.wrong(&at, "is not UTF-8"),
                    }
                }
                Some(Err(what)) => self.wrong(&at, &what),
                _ => self.wrong(&at, "expected the path of a file"),
            }
        }
    }

    fn token(&mut self, at: &str, value: &Value) {
        match value.as_str() {
            // Its variable may be gone once the worker is enrolled.
            Some(text) => match self.expanded(text) {
                Ok(text) => self.worker.token = SecretToken::new(text).or(self.worker.token.take()),
                Err(what) if what == UNCLOSED => self.wrong(at, &what),
                Err(_) => {}
            },
            None => self.wrong(at, "expected a text"),
        }
    }

    /// With every `${NAME}` replaced by what that variable holds.
    fn expanded(&self, text: &str) -> Result<Zeroizing<String>, String> {
        let mut whole = Zeroizing::new(String::new());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (name, after) = behind.split_once('}').ok_or_else(|| UNCLOSED.to_owned())?;
            let value = self.environment.get(name).and_then(|value| value.to_str());
            let value = value.ok_or_else(|| format!("the variable {name} is not set, or not UTF-8"))?;
            whole.push_str(before);
            whole.push_str(value);
            rest = after;
        }
        whole.push_str(rest);
        Ok(whole)
    }

    fn wrong(&mut self, at: &str, what: &str) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.mistakes.push(Mistake::new(format!("{name} {at}"), what));
    }
}

const UNCLOSED: &str = "a \"${\" has no \"}\"";

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "[tls]\nca_cert = \"certs/ca.crt\"\nworker_cert = \"certs/worker.crt\"\n\
        worker_key = \"certs/worker.key\"\nbootstrap_token = \"${TASKRUN_BOOTSTRAP_TOKEN}\"\n";

    fn check(text: &str, variables: &[(&str, &str)]) -> Result<Worker, Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("worker.toml");
        std::fs::write(&path, text).unwrap();
        let read = read(&path, &Environment::of(variables.iter().copied()));
        let at = |mistake: &Mistake| mistake.at.strip_prefix("worker.toml ").unwrap().to_owned();
        read.map_err(|fault| fault.mistakes.iter().map(at).collect())
    }

    #[test]
    fn the_documents_own_file_is_understood() {
        let worker = check(DOCUMENT, &[("TASKRUN_BOOTSTRAP_TOKEN", "hush")]).unwrap();
        assert_eq!(worker.token.unwrap().expose(), "hush");
        for (key, end) in [
            (keys::CA_FILE, "/certs/ca.crt"),
            (keys::FILES_CA, "/certs/ca.crt"),
            (keys::FILES_CERT, "/certs/worker.crt"),
            (keys::FILES_KEY, "/certs/worker.key"),
            (keys::LAYOUT, "taskrun"),
        ] {
            assert!(worker.values.get(key).unwrap().as_str().unwrap().ends_with(end), "{key}");
        }
        assert!(check(DOCUMENT, &[]).unwrap().token.is_none());
    }

    #[test]
    fn a_token_may_stand_above_the_table() {
        let text = DOCUMENT.replace("bootstrap_token = \"${TASKRUN_BOOTSTRAP_TOKEN}\"\n", "");
        let worker = check(&format!("bootstrap_token = 'plain'\n{text}"), &[]).unwrap();
        assert_eq!(worker.token.unwrap().expose(), "plain");
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let text = "colour = 1\n[tls]\nca_crt = 'x'\nworker_cert = 7\nworker_key = '${NOWHERE}/k'\n";
        let mut found = check(text, &[]).unwrap_err();
        found.sort();
        assert_eq!(found, ["colour", "tls.ca_crt", "tls.worker_cert", "tls.worker_key"]);
        assert_eq!(check("[tls]\nca_cert = 'x'\nworker_key = 'k'\n", &[]).unwrap_err(), ["tls.worker_cert"]);
        assert!(!check("[tls\nca_cert = \n", &[]).unwrap_err().is_empty());
    }
}
