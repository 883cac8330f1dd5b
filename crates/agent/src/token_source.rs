//! Where the enrollment token comes from: the flag, then the environment, then a file.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

use zeroize::Zeroizing;

use crate::fault::Fault;
use crate::token::Token;

/// Far more than any token; a wrong file must not be read whole.
const MAX_BYTES: u64 = 4096;

/// What was said about the token, strongest first.
#[derive(Clone, Copy, Default)]
pub struct Sources<'a> {
    /// `--token T`, or `-` for standard input.
    pub flag: Option<&'a str>,
    /// `--token-file F`.
    pub flag_file: Option<&'a Path>,
    /// `ENLIST_AGENT_TOKEN`.
    pub variable: Option<&'a OsStr>,
    /// `token_file` of the environment or agent.toml.
    pub file: Option<&'a Path>,
}

/// The token of the first source that was named. A named source without a token is a fault, not a reason to
/// try the next: the operator meant that one.
pub fn find(sources: Sources<'_>, stdin: impl Read) -> Result<Token, Fault> {
    if let Some(flag) = sources.flag {
        return match flag {
            "-" => read(stdin, "standard input"),
            text => token(Zeroizing::new(text.to_owned()), "--token"),
        };
    }
    if let Some(path) = sources.flag_file {
        return read_file(path);
    }
    if let Some(value) = sources.variable {
        let text = value.to_str().ok_or_else(|| unreadable("ENLIST_AGENT_TOKEN is not UTF-8".to_owned()))?;
        return token(Zeroizing::new(text.to_owned()), "ENLIST_AGENT_TOKEN");
    }
    match sources.file {
        Some(path) => read_file(path),
        None => Err(missing("no enrollment token was given".to_owned())),
    }
}

fn read_file(path: &Path) -> Result<Token, Fault> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| unreadable(format!("{name}: {error}")))?;
    read(file, &name)
}

fn read(source: impl Read, name: &str) -> Result<Token, Fault> {
    // Room for everything from the start: a buffer that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    let read = source.take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| unreadable(format!("{name}: {error}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(unreadable(format!("{name} is longer than any token")));
    }
    token(text, name)
}

fn token(text: Zeroizing<String>, name: &str) -> Result<Token, Fault> {
    Token::new(text).ok_or_else(|| missing(format!("the token from {name} is empty")))
}

fn missing(message: String) -> Fault {
    let hint = "pass it with `--token -`, `--token-file F` or ENLIST_AGENT_TOKEN; an operator makes one with `enlist token create`";
    Fault::usage("token_missing", message, hint)
}

fn unreadable(message: String) -> Fault {
    Fault::usage(
        "token_unreadable",
        message,
        "name a file that this user may read and that holds only the token",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(sources: Sources<'_>) -> Result<String, String> {
        let found = find(sources, &b"from-stdin\n"[..]);
        found.map(|token| token.expose().to_owned()).map_err(|fault| fault.code.into_owned())
    }

    #[test]
    fn the_flag_wins_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "from-flag-file\n").unwrap();
        std::fs::write(&two, "from-file\n").unwrap();
        let mut sources = Sources {
            flag: Some("from-flag"),
            flag_file: None,
            variable: Some(OsStr::new("from-env")),
            file: Some(&two),
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
    fn a_named_source_without_a_token_is_a_fault() {
        let missing = Path::new("/nonexistent/token");
        let sources =
            Sources { flag_file: Some(missing), variable: Some(OsStr::new("env")), ..Sources::default() };
        assert_eq!(value(sources).unwrap_err(), "token_unreadable");
        assert_eq!(value(Sources { flag: Some(""), ..Sources::default() }).unwrap_err(), "token_missing");
        let endless = find(Sources { flag: Some("-"), ..Sources::default() }, std::io::repeat(b'x'));
        assert_eq!(endless.unwrap_err().code, "token_unreadable");
    }
}
