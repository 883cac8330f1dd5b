//! openssl on a bench of its own.

use std::path::PathBuf;
use std::process::Command;

use lifecycle::names::Timestamp;

/// A directory in which openssl works.
pub struct Bench(pub tempfile::TempDir);

impl Bench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    pub fn try_run(&self, line: &str) -> (bool, String) {
        let output =
            Command::new("openssl").args(line.split(' ')).current_dir(self.0.path()).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    pub fn run(&self, line: &str) -> String {
        let (success, text) = self.try_run(line);
        assert!(success, "openssl {line}\n{text}");
        text
    }
}

#[expect(clippy::disallowed_methods, reason = "openssl asks the clock too")]
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_secs(since.as_secs())
}
