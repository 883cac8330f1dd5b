//! Where the enrollment token comes from: the flag, then the environment, then a file.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use crate::code::AgentCode;
use crate::compat::Persona;
use crate::fault::Fault;
use crate::layout::Layout;
use crate::token::SecretToken;

/// Far more than any token; a wrong file must not be read whole.
const MAX_BYTES: u64 = 4096;

/// What was said about the token, strongest first.
#[derive(Clone, Copy, Default)]
pub struct Sources<'a> {
    /// `--token T`, or `-` for standard input.
    pub flag: Option<&'a str>,
    /// `--token-file F`.
    pub flag_file: Option<&'a Path>,
    /// `ENLIST_AGENT_TOKEN` or a document's own variable: its name, and what it holds.
    pub variable: Option<(&'a str, &'a OsStr)>,
    /// A token that stands in another program's configuration.
    pub text: Option<&'a SecretToken>,
    /// `token_file` of the environment or agent.toml.
    pub file: Option<&'a Path>,
    /// In whose words a missing token is asked for.
    pub asker: Asker,
}

/// The system whose names for token and operator's command the reader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asker {
    #[default]
    Enlist,
    Plfm,
    Probectl,
    Taskrun,
}

impl Asker {
    pub fn of(persona: Persona, layout: Option<Layout>) -> Self {
        match (persona, layout) {
            (Persona::Plfm, _) => Asker::Plfm,
            (Persona::Probectl, _) => Asker::Probectl,
            (Persona::Enlist, Some(Layout::Taskrun)) => Asker::Taskrun,
            (Persona::Enlist, _) => Asker::Enlist,
        }
    }

    /// Where a token is looked for, and who makes one.
    pub fn remedy(self) -> &'static str {
        match self {
            Asker::Enlist => {
                "pass a token with `--token -`, `--token-file F`, ENLIST_AGENT_TOKEN or `token_file` in agent.toml; an operator creates one with `enlist token create`"
            }
            Asker::Plfm => {
                "pass a token with `--token T`, PLFM_ENROLLMENT_TOKEN or the file enrollment-token in the agent's directory; an operator creates one with `plfm hosts enroll-token create`"
            }
            Asker::Probectl => {
                "pass a token with `--token T`, `--token-file F` or ENLIST_AGENT_TOKEN; an operator creates one with `probectl-control enroll-token`"
            }
            Asker::Taskrun => {
                "set TASKRUN_BOOTSTRAP_TOKEN, or pass it with `--token -` or `--token-file F`; an operator creates one with `taskrun token generate`"
            }
        }
    }
}

impl Sources<'_> {
    /// Whether any was named.
    pub fn any(&self) -> bool {
        let Sources { flag, flag_file, variable, text, file, asker: _ } = self;
        flag.is_some() || flag_file.is_some() || variable.is_some() || text.is_some() || file.is_some()
    }
}

/// The token of the first source that was named. A named source without a token is a fault, not a reason to
/// try the next: the operator meant that one.
pub fn find(sources: Sources<'_>, stdin: impl Read) -> Result<SecretToken, Fault> {
    if let Some(flag) = sources.flag {
        return match flag {
            "-" => read(stdin, "standard input", sources.asker),
            text => token(Zeroizing::new(text.to_owned()), "--token", sources.asker),
        };
    }
    if let Some(path) = sources.flag_file {
        return read_file(path, sources.asker);
    }
    if let Some((name, value)) = sources.variable {
        let text = value.to_str().ok_or_else(|| unreadable(format!("{name} is not UTF-8")))?;
        return token(Zeroizing::new(text.to_owned()), name, sources.asker);
    }
    if let Some(token) = sources.text {
        return Ok(token.clone());
    }
    match sources.file {
        Some(path) => read_file(path, sources.asker),
        None => Err(missing("no enrollment token was given".to_owned(), sources.asker)),
    }
}

fn read_file(path: &Path, asker: Asker) -> Result<SecretToken, Fault> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| unreadable(format!("{name}: {error}")))?;
    let found = file.metadata().map_err(|error| unreadable(format!("{name}: {error}")))?;
    // A pipe has no mode worth asking for.
    if found.is_file() && found.mode() & 0o077 != 0 {
        return Err(Fault::host(
            AgentCode::KeyExposed,
            format!("others than this user may read {name}"),
            "if nobody did, close it with chmod 600 and run it again; otherwise revoke the token and ask for another",
        ));
    }
    read(file, &name, asker)
}

fn read(source: impl Read, name: &str, asker: Asker) -> Result<SecretToken, Fault> {
    // Room for everything from the start: a buffer that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| unreadable(format!("{name}: {error}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(unreadable(format!("{name} is longer than any token")));
    }
    token(text, name, asker)
}

fn token(text: Zeroizing<String>, name: &str, asker: Asker) -> Result<SecretToken, Fault> {
    SecretToken::new(text).ok_or_else(|| missing(format!("the token from {name} is empty"), asker))
}

fn missing(message: String, asker: Asker) -> Fault {
    Fault::usage(AgentCode::TokenMissing, message, asker.remedy())
}

fn unreadable(message: String) -> Fault {
    Fault::usage(
        AgentCode::TokenUnreadable,
        message,
        "name a file that this user may read and that holds only the token",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn value(sources: Sources<'_>) -> Result<String, String> {
        let found = find(sources, &b"from-stdin\n"[..]);
        found.map(|token| token.expose().to_owned()).map_err(|fault| fault.code.to_string())
    }

    #[test]
    fn the_flag_wins_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for (path, text) in [(&one, "from-flag-file\n"), (&two, "from-file\n")] {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut sources = Sources {
            flag: Some("from-flag"),
            flag_file: None,
            variable: Some(("TOKEN", OsStr::new("from-env"))),
            text: None,
            file: Some(&two),
            asker: Asker::Enlist,
        };
        assert_eq!(value(sources).unwrap(), "from-flag");
        sources.flag = Some("-");
        assert_eq!(value(sources).unwrap(), "from-stdin");
        sources = Sources { flag: None, flag_file: Some(&one), ..sources };
        assert_eq!(value(sources).unwrap(), "from-flag-file");
        sources.flag_file = None;
        assert_eq!(value(sources).unwrap(), "from-env");
        sources.variable = None;
        assert_eq!(value(sources).unwrap(), "from-file");
        sources.file = None;
        assert_eq!(value(sources).unwrap_err(), "token_missing");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_also_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("token"), dir.path().join("link"));
        std::fs::write(&file, "hush\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (mode, expected) in [
            (0o600, Ok("hush".to_owned())),
            (0o400, Ok("hush".to_owned())),
            (0o640, Err("key_exposed".to_owned())),
            (0o604, Err("key_exposed".to_owned())),
        ] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let named = |path| value(Sources { flag_file: Some(path), ..Sources::default() });
            assert_eq!((named(&file), named(&link)), (expected.clone(), expected), "{mode:o}");
            assert_eq!(value(Sources { file: Some(&file), ..Sources::default() }).is_ok(), mode & 0o077 == 0);
        }
    }

    #[test]
    fn a_named_source_without_a_token_is_a_fault() {
        let missing = Path::new("/nonexistent/token");
        let sources = Sources {
            flag_file: Some(missing),
            variable: Some(("T", OsStr::new("env"))),
            ..Sources::default()
        };
        assert_eq!(value(sources).unwrap_err(), "token_unreadable");
        assert_eq!(value(Sources { flag: Some(""), ..Sources::default() }).unwrap_err(), "token_missing");
        let endless = find(Sources { flag: Some("-"), ..Sources::default() }, std::io::repeat(b'x'));
        assert_eq!(endless.unwrap_err().code.as_str(), "token_unreadable");
    }
}
