//! The control plane's TOML of the TaskRun document, as it stands there: what `server init` takes from it.

use crate::process::config::{ConfigMistake, ConfigMistakes, OwnCertificate};
use lifecycle::registry::{Policy, PolicyError};
use std::path::{Path, PathBuf};

/// What the document's file asks for. Paths are relative to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub ca_cert: PathBuf,
    pub ca_key: PathBuf,
    /// Neither file of the CA is there: it is made on first run.
    pub makes_ca: bool,
    /// None if neither file is there: the domain issues one itself.
    pub server: Option<OwnCertificate>,
    /// Keys and values of policy.
    pub policy: Vec<(String, String)>,
}

/// Reads and checks the file; every mistake at once.
pub fn load(path: &Path) -> Result<Document, ConfigMistakes> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        ConfigMistakes(vec![mistake(&path.display().to_string(), "", &format!("a readable file ({error})"))])
    })?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text.bytes().take(span.start).filter(|b| *b == b'\n').count() + 1);
        let place = format!("{} line {line}", path.display());
        ConfigMistakes(vec![mistake(&place, "", &format!("valid TOML ({})", error.message()))])
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut reader = Reader { folder, mistakes: Vec::new(), given: Given::default() };
    for (key, value) in table {
        reader.section(&key, value);
    }
    let (given, mut mistakes) = (reader.given, reader.mistakes);
    let document = given.checked(&mut mistakes);
    match document {
        Some(document) if mistakes.is_empty() => Ok(document),
        _ => Err(ConfigMistakes(mistakes)),
    }
}

fn mistake(key: &str, value: &str, expected: &str) -> ConfigMistake {
    ConfigMistake::new(key, value, expected)
}

/// Whether the document has this key.
fn is_known(section: &str, key: &str) -> bool {
    match section {
        "tls" => matches!(
            key,
            "ca_cert"
                | "ca_key"
                | "server_cert"
                | "server_key"
                | "require_client_cert"
                | "worker_cert_validity_days"
        ),
        _ => key == "bootstrap_token_validity_hours",
    }
}

/// What was found under the names that are known.
#[derive(Default)]
struct Given {
    ca_cert: Option<PathBuf>,
    ca_key: Option<PathBuf>,
    server_cert: Option<PathBuf>,
    server_key: Option<PathBuf>,
    policy: Vec<(String, String)>,
}

struct Reader<'a> {
    folder: &'a Path,
    mistakes: Vec<ConfigMistake>,
    given: Given,
}

impl Reader<'_> {
    fn section(&mut self, name: &str, value: toml::Value) {
        match (name, value) {
            ("tls" | "enrollment", toml::Value::Table(table)) => {
                for (key, value) in table {
                    // What is not known here may be a secret: the worker's file has its token in [tls].
                    let shown = if is_known(name, &key) { value.to_string() } else { String::new() };
                    if let Err(expected) = self.take(name, &key, value) {
                        self.mistakes.push(mistake(&format!("{name}.{key}"), &shown, expected));
                    }
                }
            }
            _ => self.mistakes.push(mistake(name, "", "the tables [tls] and [enrollment]")),
        }
    }

    fn take(&mut self, section: &str, key: &str, value: toml::Value) -> Result<(), &'static str> {
        let file = |value: toml::Value| match value {
            toml::Value::String(text) if !text.is_empty() => Ok(Some(self.folder.join(text))),
            _ => Err("the path of a file"),
        };
        match (section, key) {
            ("tls", "ca_cert") => self.given.ca_cert = file(value)?,
            ("tls", "ca_key") => self.given.ca_key = file(value)?,
            ("tls", "server_cert") => self.given.server_cert = file(value)?,
            ("tls", "server_key") => self.given.server_key = file(value)?,
            ("tls", "require_client_cert") if value == toml::Value::Boolean(true) => {}
            ("tls", "require_client_cert") => {
                return Err("true: every route but enrollment needs a client certificate");
            }
            ("tls", "worker_cert_validity_days") => {
                self.policy("profile.taskrun.lifetime", &value, "d", "whole days from 1 to 90")?;
            }
            ("enrollment", "bootstrap_token_validity_hours") => {
                self.policy("token.default_ttl", &value, "h", "whole hours from 1 to 24")?;
            }
            ("tls", _) => {
                return Err(
                    "one of ca_cert, ca_key, server_cert, server_key, require_client_cert, worker_cert_validity_days",
                );
            }
            _ => return Err("bootstrap_token_validity_hours"),
        }
        Ok(())
    }

    /// A number becomes a value of policy, within the bounds that policy has.
    fn policy(
        &mut self,
        key: &str,
        value: &toml::Value,
        unit: &str,
        expected: &'static str,
    ) -> Result<(), &'static str> {
        let number = value.as_integer().filter(|number| *number > 0).ok_or(expected)?;
        let text = format!("{number}{unit}");
        match Policy::default().set(key, &text) {
            Ok(()) => self.given.policy.push((key.to_owned(), text)),
            Err(PolicyError::Key | PolicyError::Value(_)) => return Err(expected),
        }
        Ok(())
    }
}

impl Given {
    fn checked(self, mistakes: &mut Vec<ConfigMistake>) -> Option<Document> {
        for (key, path) in [("tls.ca_cert", &self.ca_cert), ("tls.ca_key", &self.ca_key)] {
            if path.is_none() {
                mistakes.push(mistake(key, "", "the path of the CA's file, which is made if it is missing"));
            }
        }
        let server = match (self.server_cert, self.server_key) {
            (Some(cert), Some(key)) => Some(OwnCertificate { cert, key }),
            (None, None) => None,
            (cert, _) => {
                let absent = if cert.is_none() { "tls.server_cert" } else { "tls.server_key" };
                mistakes.push(mistake(absent, "", "a path, because the other of the pair has one"));
                None
            }
        };
        let (ca_cert, ca_key) = (self.ca_cert?, self.ca_key?);
        let has_ca = pair("tls.ca_cert", &ca_cert, "tls.ca_key", &ca_key, mistakes);
        let server =
            server.filter(|own| pair("tls.server_cert", &own.cert, "tls.server_key", &own.key, mistakes));
        Some(Document { ca_cert, ca_key, makes_ca: !has_ca, server, policy: self.policy })
    }
}

/// Whether both files are there. One without the other is a mistake: it is not known which of them is wrong.
fn pair(first: &str, one: &Path, second: &str, other: &Path, mistakes: &mut Vec<ConfigMistake>) -> bool {
    let (has_one, has_other) = (one.exists(), other.exists());
    if has_one != has_other {
        let (key, path) = if has_one { (second, other) } else { (first, one) };
        let expected = "a file that exists, because the other of the pair does";
        mistakes.push(mistake(key, &path.display().to_string(), expected));
    }
    has_one && has_other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str, files: &[&str]) -> Result<Document, Vec<String>> {
        let dir = tempfile::tempdir().expect("a directory");
        for file in files {
            std::fs::write(dir.path().join(file), "x").expect("writes");
        }
        let path = dir.path().join("cp.toml");
        std::fs::write(&path, text).expect("writes");
        load(&path).map_err(|ConfigMistakes(found)| found.into_iter().map(|mistake| mistake.key).collect())
    }

    const TLS: &str = "[tls]\nca_cert = \"ca.crt\"\nca_key = \"ca.key\"\n";

    #[test]
    fn without_files_a_ca_is_made_and_the_server_certificate_is_our_own() {
        let text = format!("{TLS}server_cert = \"s.crt\"\nserver_key = \"s.key\"\n");
        let document = load_text(&text, &[]).expect("good");
        assert!(document.makes_ca && document.server.is_none() && document.policy.is_empty());
        let document = load_text(&text, &["ca.crt", "ca.key", "s.crt", "s.key"]).expect("good");
        assert!(!document.makes_ca && document.server.is_some_and(|own| own.key.ends_with("s.key")));
    }

    #[test]
    fn numbers_become_policy_within_its_bounds() {
        let with = |days: &str, hours: &str| {
            let rest = format!(
                "worker_cert_validity_days = {days}\n[enrollment]\nbootstrap_token_validity_hours = {hours}\n"
            );
            load_text(&(TLS.to_owned() + &rest), &[]).map(|document| document.policy)
        };
        let pairs = [("profile.taskrun.lifetime", "7d"), ("token.default_ttl", "1h")];
        let mut found = with("7", "1").expect("good");
        found.sort();
        assert_eq!(found, pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let keys = ["enrollment.bootstrap_token_validity_hours", "tls.worker_cert_validity_days"];
        for (days, hours) in
            [("91", "25"), ("0", "0"), ("-1", "-1"), ("\"7\"", "true"), ("9223372036854775807", "1.5")]
        {
            let mut found = with(days, hours).expect_err("out of bounds");
            found.sort();
            assert_eq!(found, keys, "{days} {hours}");
        }
    }

    #[test]
    fn the_value_of_an_unknown_key_is_not_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("worker.toml");
        let text = "token = \"hush\"\n[tls]\nbootstrap_token = \"hush\"\nca_key = 3\n[enrollment]\nx = \"hush\"\n[worker]\nkey = \"hush\"\n";
        std::fs::write(&path, text).expect("writes");
        let told = load(&path).expect_err("wrong").to_string();
        for part in
            ["token = ", "tls.bootstrap_token = ", "enrollment.x = ", "worker = ", "tls.ca_key = \"3\""]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("hush"), "{told}");
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let text = "colour = 1\n[tls]\nca_certt = \"x\"\nca_key = 3\nrequire_client_cert = false\nserver_cert = \"s\"\n[enrolment]\nx = 1\n";
        let mut found = load_text(text, &[]).expect_err("wrong");
        found.sort();
        found.dedup();
        let expected = [
            "colour",
            "enrolment",
            "tls.ca_cert",
            "tls.ca_certt",
            "tls.ca_key",
            "tls.require_client_cert",
            "tls.server_key",
        ];
        assert_eq!(found, expected);
        assert_eq!(load_text(TLS, &["ca.crt"]), Err(vec!["tls.ca_key".to_owned()]));
        assert_eq!(load_text(TLS, &["ca.key"]), Err(vec!["tls.ca_cert".to_owned()]));
        assert!(load_text("[tls", &[]).is_err());
    }
}
