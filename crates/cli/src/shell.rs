//! Command lines that people paste: they work as they are shown, from any directory of this machine.

use crate::error::CommandError;
use crate::reach::Reach;
use crate::screen::Screen;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Before a command line, and before what goes on below it.
const INDENT: &str = "  ";

/// A command line on lines of its own, with the break behind it. At a terminal it is broken between words, so that copying
/// takes it whole; with quotes in it, it stays as it is.
pub fn paragraph(line: &str, screen: Screen) -> String {
    let Some(columns) = screen.columns().filter(|_| !line.contains(['\'', '"', '\\'])) else {
        return format!("{INDENT}{line}\n");
    };
    let mut text = String::from(INDENT);
    let mut used = INDENT.len();
    for (place, piece) in pieces(line, columns).into_iter().enumerate() {
        // Room for the backslash that may follow.
        if place > 0 && used + 1 + piece.len() + 2 > columns {
            text.push_str(&format!(" \\\n{INDENT}{INDENT}"));
            used = 2 * INDENT.len();
        } else if place > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(&piece);
        used += piece.len();
    }
    text.push('\n');
    text
}

/// The words, a flag together with its value where both fit on one line.
fn pieces(line: &str, columns: usize) -> Vec<String> {
    let room = columns.saturating_sub(2 * INDENT.len() + " \\".len());
    let mut pieces: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match pieces.last_mut() {
            Some(flag)
                if flag.starts_with("--")
                    && !flag.contains(' ')
                    && !word.starts_with("--")
                    && flag.len() + 1 + word.len() <= room =>
            {
                flag.push(' ');
                flag.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// Another command of this program at the same control plane: the program as it was called, and where it looked.
pub fn same_target(reach: &Reach, command: &str) -> String {
    let Reach { context, dir, socket, server, cert, key, api_key_file, ca, ca_pin, notices: _ } = reach;
    let path = |path: &Option<PathBuf>| path.as_deref().map(quoted);
    let given = [
        ("--context", context.clone()),
        ("--dir", path(dir)),
        ("--socket", path(socket)),
        ("--server", Some(server.join(" --server ")).filter(|servers| !servers.is_empty())),
        ("--cert", path(cert)),
        ("--key", path(key)),
        ("--api-key-file", path(api_key_file)),
        ("--ca", path(ca)),
        ("--ca-pin", ca_pin.clone()),
    ];
    let flags = given.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", value?)));
    format!("{}{} {command}", program(), flags.collect::<String>())
}

/// Starts the control plane of a data directory, as the user that it belongs to.
pub fn start_server(dir: &Path) -> String {
    let run = format!("enlist server run --dir {}", quoted(dir));
    match other_owner(dir) {
        None => run,
        Some(uid) => format!("sudo -u {} {run}", user(uid)),
    }
}

/// The user whom a file belongs to, if that is another one than who runs this program.
pub fn other_owner(path: &Path) -> Option<u32> {
    let owner = path.metadata().ok()?.uid();
    (owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// A user as commands take it: by name, or by number where there is no name.
pub fn user(uid: u32) -> String {
    let name = ::server::user_name(uid);
    if name == uid.to_string() { format!("'#{uid}'") } else { name }
}

/// How the same shell calls this program.
pub fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    called
        .filter(|called| called.components().count() > 1)
        .map_or_else(|| "enlist".to_owned(), |called| quoted(&called))
}

/// The file of this program, whatever it was called by.
pub fn executable() -> Result<PathBuf, CommandError> {
    std::env::current_exe().map_err(|error| {
        CommandError::fault("program", format!("the path of this program is unknown: {error}"))
    })
}

/// In single quotes wherever a shell would see more than a word.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::Timestamp;

    #[test]
    fn a_long_line_is_broken_between_words_and_still_one_command() {
        let narrow = Screen::terminal(20, Timestamp::from_secs(1));
        assert_eq!(paragraph("echo a | cat --flag value", narrow), "  echo a | cat \\\n    --flag value\n");
        assert_eq!(paragraph("cat abcdef --flag v", narrow), "  cat abcdef \\\n    --flag v\n");
        assert_eq!(paragraph("echo a | cat --flag value", Screen::none()), "  echo a | cat --flag value\n");
        assert_eq!(paragraph("echo 'a b' | cat --flag v", narrow), "  echo 'a b' | cat --flag v\n");
    }

    #[test]
    fn what_a_shell_would_split_is_quoted() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
