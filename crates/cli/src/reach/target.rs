//! Choosing among what flags, environment and saved contexts say. Pure, so that every precedence is a test.

use super::credential::{OperatorCredential, ServerTrust, credential, server_trust};
use super::{DEFAULT_DIR, Reach};
use crate::context::saved::{Context, Contexts};
use crate::error::CommandError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How the control plane will be reached; nothing has been read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Socket(PathBuf),
    /// Without a credential only what everybody may ask can be asked.
    Server {
        /// The replicas, in the order in which they are tried; at least one.
        servers: Vec<String>,
        server_trust: ServerTrust,
        credential: Option<OperatorCredential>,
    },
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChosenBy {
    /// A flag, or a variable: its name.
    Setting(&'static str),
    /// A saved context, named by a flag or a variable, or the current one.
    Context { name: String, named_by: Option<&'static str> },
    /// Nothing was said.
    Default,
}

impl ChosenBy {
    /// A failure with the context or the variable that led to it, if one did.
    pub fn explain(&self, failure: CommandError) -> CommandError {
        match self {
            ChosenBy::Context { name, .. } => failure.in_context(name),
            // Nobody has typed it.
            ChosenBy::Setting(variable @ ("ENLIST_DIR" | "ENLIST_SOCKET")) => failure.led_by(variable),
            ChosenBy::Setting(_) | ChosenBy::Default => failure,
        }
    }

    /// As people and programs read it.
    pub fn as_str(&self) -> &'static str {
        match self {
            ChosenBy::Setting(setting) | ChosenBy::Context { named_by: Some(setting), .. } => setting,
            ChosenBy::Context { named_by: None, .. } => "current",
            ChosenBy::Default => "default",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenTarget {
    pub target: Target,
    pub by: ChosenBy,
}

pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;
/// Read only where a context may be needed: a damaged file must not fail a command with `--dir`.
pub type Saved<'a> = &'a dyn Fn() -> Result<Contexts, CommandError>;

const CONTEXT: &str = "ENLIST_CONTEXT";
/// In the order in which they count.
const PLACES: [&str; 3] = ["ENLIST_SOCKET", "ENLIST_DIR", "ENLIST_SERVER"];

/// Flags, then variables, then the current context, then the usual place. Any flag beats any variable: whoever types
/// one means it.
pub fn choose(
    flags: &Reach,
    variables: Variables<'_>,
    saved: Saved<'_>,
) -> Result<ChosenTarget, CommandError> {
    if let Some(chosen) = by_flag(flags, variables, saved)? {
        return Ok(chosen);
    }
    let place = PLACES.into_iter().find_map(|name| variables(name).map(|value| (name, value)));
    match (place, text(CONTEXT, variables)?) {
        (Some((place, _)), Some(_)) => {
            let message = format!("{CONTEXT} and {place} both say where the control plane is");
            Err(CommandError::usage(
                message,
                format!("unset one of them, or give --context or {}", flag_of(place)),
            ))
        }
        (Some((name, value)), None) => {
            let target = match name {
                "ENLIST_SOCKET" => Target::Socket(value.into()),
                "ENLIST_DIR" => in_dir(Path::new(&value)),
                _ => {
                    let given = text(name, variables)?.unwrap_or_default();
                    let servers = given.split(',').map(|url| url.trim().to_owned()).collect();
                    server(servers, flags, variables, None)?
                }
            };
            Ok(ChosenTarget { target, by: ChosenBy::Setting(name) })
        }
        (None, Some(name)) => named(name, CONTEXT, flags, saved),
        (None, None) => current(flags, saved),
    }
}

fn by_flag(
    flags: &Reach,
    variables: Variables<'_>,
    saved: Saved<'_>,
) -> Result<Option<ChosenTarget>, CommandError> {
    let servers = Some(flags.server.as_slice()).filter(|servers| !servers.is_empty());
    let (target, flag) = match (&flags.socket, &flags.dir, servers, &flags.context) {
        (None, None, None, None) => return Ok(None),
        (Some(socket), None, None, None) => (Target::Socket(socket.clone()), "--socket"),
        (None, Some(dir), None, None) => (in_dir(dir), "--dir"),
        (None, None, Some(servers), None) => (server(servers.to_vec(), flags, variables, None)?, "--server"),
        (None, None, None, Some(name)) => return named(name.clone(), "--context", flags, saved).map(Some),
        _ => {
            let message = "--socket, --dir, --server and --context each say where the control plane is";
            return Err(CommandError::usage(message, "give one of them"));
        }
    };
    Ok(Some(ChosenTarget { target, by: ChosenBy::Setting(flag) }))
}

/// A context that a flag or a variable names counts as it is: only flags take the place of what it says.
fn named(
    name: String,
    by: &'static str,
    flags: &Reach,
    saved: Saved<'_>,
) -> Result<ChosenTarget, CommandError> {
    let target = of_context(saved()?.get(&name)?, flags).map_err(|failure| failure.in_context(&name))?;
    Ok(ChosenTarget { target, by: ChosenBy::Context { name, named_by: Some(by) } })
}

/// Credentials in variables belong to the server in a variable: beside a saved context they would be sent elsewhere.
fn current(flags: &Reach, saved: Saved<'_>) -> Result<ChosenTarget, CommandError> {
    let contexts = saved()?;
    let Some(name) = contexts.current.clone() else {
        return Ok(ChosenTarget { target: in_dir(Path::new(DEFAULT_DIR)), by: ChosenBy::Default });
    };
    let target = of_context(contexts.get(&name)?, flags).map_err(|failure| failure.in_context(&name))?;
    Ok(ChosenTarget { target, by: ChosenBy::Context { name, named_by: None } })
}

/// What a context leads to.
pub fn of_context(context: &Context, flags: &Reach) -> Result<Target, CommandError> {
    match (&context.socket, &context.dir, context.server.as_slice()) {
        (Some(socket), None, []) => Ok(Target::Socket(socket.clone())),
        (None, Some(dir), []) => Ok(in_dir(dir)),
        (None, None, servers @ [_, ..]) => server(servers.to_vec(), flags, &|_| None, Some(context)),
        _ => Err(CommandError::usage(
            "a context says where the control plane is by one of server, dir and socket",
            "give one of them",
        )),
    }
}

fn in_dir(dir: &Path) -> Target {
    Target::Socket(dir.join("operator.sock"))
}

fn flag_of(variable: &str) -> &'static str {
    match variable {
        "ENLIST_SOCKET" => "--socket",
        "ENLIST_DIR" => "--dir",
        _ => "--server",
    }
}

fn text(name: &str, variables: Variables<'_>) -> Result<Option<String>, CommandError> {
    let unreadable = |_| CommandError::usage(format!("{name} is not UTF-8"), "set it to text, or unset it");
    variables(name).map(OsString::into_string).transpose().map_err(unreadable)
}

fn server(
    servers: Vec<String>,
    flags: &Reach,
    variables: Variables<'_>,
    context: Option<&Context>,
) -> Result<Target, CommandError> {
    let server_trust = server_trust(flags, variables, context)?;
    Ok(Target::Server { servers, server_trust, credential: credential(flags, variables, context)? })
}

#[cfg(test)]
mod tests;
