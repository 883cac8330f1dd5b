//! `enlist context add`: from flags, or from the file that `enlist operator add --out` writes.

use super::saved::Context;
use super::{ContextFields, ContextItem};
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::reach::target::{self, Target};
use crate::reach::{Reach, absolute, read};
use crate::table::harmless;
use api::rest::one_or_more::OneOrMore;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the context: letters, digits, `.`, `_` and `-`
    #[arg(value_parser = name)]
    name: String,
    /// Read the context from a context.toml that `enlist operator add --out` has written
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace a context of this name
    #[arg(long)]
    replace: bool,
    /// Make the new context the current one
    #[arg(long = "use")]
    make_current: bool,
}

/// A context's name, which is also a word of a command line.
pub fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && text.len() <= 63 && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 63 letters, digits, `.`, `_` or `-`, and begins with a letter or digit"
            .to_owned())
    }
}

pub fn run(arguments: Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let Arguments { name, file, replace, make_current } = arguments;
    let context = match &file {
        Some(file) => {
            reach.only(&[]).map_err(|_| {
                let message = "--file and connection flags such as --server exclude each other";
                CommandError::usage(message, "give one of them")
            })?;
            from_file(file)?
        }
        None => from_flags(reach)?,
    };
    check(&context)?;
    let place = super::contexts_file()?;
    let current = place.change(|contexts| {
        if contexts.contexts.contains_key(&name) && !replace {
            let message = format!("there is already a context {name}");
            let hint = "choose another name, or give --replace";
            return Err(CommandError::new(Exit::Usage, "context_exists", message, hint));
        }
        contexts.contexts.insert(name.clone(), context.clone());
        if make_current || contexts.current.is_none() {
            contexts.current = Some(name.clone());
        }
        Ok(contexts.current.as_ref() == Some(&name))
    })?;
    let item = ContextItem { name: &name, current, fields: ContextFields::of(&context) };
    output.document(&item, |item| {
        let (file, place) = (place.path().display(), harmless(item.fields.place()));
        let next = if item.current && std::env::var_os("ENLIST_DIR").is_some() {
            format!("It is the current context, but ENLIST_DIR is set and comes before it: unset ENLIST_DIR for commands to go to {place}.")
        } else if item.current {
            format!("It is the current context: commands without --dir, --socket, --server or --context go to {place}.")
        } else {
            format!("Make it the current one: `enlist context use {name}`")
        };
        output.screen().hang(0, 0, &format!("context {name} is saved in {file}\n{next}\n"))
    })
}

fn from_flags(reach: &Reach) -> Result<Context, CommandError> {
    let credentials = ["--cert", "--key", "--api-key-file", "--ca", "--ca-pin"];
    let place = if !reach.server.is_empty() {
        "--server"
    } else if reach.socket.is_some() {
        "--socket"
    } else {
        "--dir"
    };
    if reach.server.is_empty() && reach.socket.is_none() && reach.dir.is_none() {
        let message = "nothing says where the control plane is";
        return Err(CommandError::usage(
            message,
            "give --server URL, --dir DIR, --socket PATH or --file FILE",
        ));
    }
    // The operator socket asks for no credentials.
    let used: Vec<&str> =
        if place == "--server" { [&["--server"], &credentials[..]].concat() } else { vec![place] };
    reach.only(&used)?;
    let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    Ok(Context {
        server: OneOrMore::of(&reach.server),
        dir: path(&reach.dir)?,
        socket: path(&reach.socket)?,
        ca: path(&reach.ca)?,
        ca_pin: reach.ca_pin.clone(),
        cert: path(&reach.cert)?,
        key: path(&reach.key)?,
        api_key_file: path(&reach.api_key_file)?,
    })
}

fn from_file(file: &Path) -> Result<Context, CommandError> {
    let wrong = |what: &str| {
        let message = format!("{}: {}", file.display(), what.trim_end());
        let hint = "give a context.toml as `enlist operator add --out` writes it, unchanged";
        CommandError::new(Exit::Usage, "context_invalid", message, hint)
    };
    if file.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(wrong("is not a regular file"));
    }
    let text = String::from_utf8(read(file)?).map_err(|_| wrong("is not UTF-8"))?;
    let found: Context = toml::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let beside = absolute(file)?;
    let beside = beside.parent().unwrap_or(Path::new("/"));
    if found.dir.is_some() || found.socket.is_some() {
        return Err(wrong("names a directory or a socket of this machine"));
    }
    let path = |path: Option<PathBuf>| path.map(|path| sibling_file(beside, &path).ok_or(path)).transpose();
    let elsewhere =
        |path: PathBuf| wrong(&format!("names {}, which is not a file beside it", path.display()));
    Ok(Context {
        ca: path(found.ca).map_err(elsewhere)?,
        cert: path(found.cert).map_err(elsewhere)?,
        key: path(found.key).map_err(elsewhere)?,
        api_key_file: path(found.api_key_file).map_err(elsewhere)?,
        ..found
    })
}

/// A file in the same directory, and no link: whoever wrote the context could otherwise choose which of this user's secrets
/// is sent to the server that it names.
fn sibling_file(dir: &Path, name: &Path) -> Option<PathBuf> {
    let plain = matches!(name.components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
    let path = dir.join(name);
    let file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    (plain && file).then_some(path)
}

/// Whatever it names is there and can be used; the control plane itself may be down.
fn check(context: &Context) -> Result<(), CommandError> {
    let flags = Reach::default();
    match target::of_context(context, &flags)? {
        target @ Target::Server { .. } => flags.open(&target).map(drop),
        Target::Socket(path) => {
            let dir = context.dir.as_deref().or(path.parent()).unwrap_or(Path::new("/"));
            match dir.metadata() {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err(CommandError::usage(
                    format!("{} is no directory", dir.display()),
                    "name the data directory",
                )),
                Err(error) => {
                    let message = format!("{}: {error}", dir.display());
                    Err(CommandError::usage(
                        message,
                        "name a directory that exists and that this user may read",
                    ))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_that_no_shell_or_terminal_takes_for_something_else() {
        for good in ["prod", "a", "eu-west.1_x", "9"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "-x", ".x", "a b", "a/b", "\u{e9}", "a\n", &"x".repeat(64)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_paths_of_a_file_are_relative_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("context.toml");
        std::fs::write(dir.path().join("ca.pem"), "x").unwrap();
        let given = |line: &str| std::fs::write(&file, format!("server = \"https://cp\"\n{line}\n")).unwrap();
        given("ca = \"ca.pem\"");
        assert_eq!(from_file(&file).unwrap().ca, Some(dir.path().join("ca.pem")));
        for elsewhere in ["/etc/hostname", "../ca.pem", "absent.pem", ".", "./ca.pem/.."] {
            given(&format!("ca = \"{elsewhere}\""));
            assert_eq!(from_file(&file).unwrap_err().code(), "context_invalid", "{elsewhere}");
        }
        std::fs::write(&file, "server = \"https://cp\"\ntoken = \"x\"\n").unwrap();
        assert_eq!(from_file(&file).unwrap_err().code(), "context_invalid");
    }
}
