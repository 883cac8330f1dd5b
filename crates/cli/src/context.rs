//! `enlist context`: saved places of control planes. Nothing is sent; only files are read and written.

mod add;
pub mod saved;
mod show;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::{Reach, variable};
use crate::table::{Table, Tone};
use saved::{Context, Contexts, ContextsFile};
use serde::Serialize;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Save how to reach a control plane, and with which credentials, under a name
    ///
    /// Give --server with --ca or --ca-pin, and --cert with --key or --api-key-file; or --dir; or --socket; or --file.
    /// The files must exist; their paths are saved, never their content. ENLIST_* variables are not read. The first
    /// context becomes the current one.
    Add(add::Arguments),
    /// Make a context the current one
    ///
    /// The current context is used when neither flags nor ENLIST_* variables say where the control plane is.
    Use {
        /// Name of the context
        #[arg(value_parser = add::name)]
        name: String,
    },
    /// List saved contexts
    List,
    /// Show a context; without a name the one in use, and what chose it
    Show {
        /// Name of the context [default: the one in use]
        #[arg(value_parser = add::name)]
        name: Option<String>,
    },
    /// Remove a context; the files that it names stay
    Remove {
        /// Name of the context
        #[arg(value_parser = add::name)]
        name: String,
    },
}

/// A context as programs read it.
#[derive(Debug, Serialize)]
struct ContextItem<'a> {
    name: &'a str,
    current: bool,
    #[serde(flatten)]
    fields: ContextFields,
}

/// Every field of a context, null where it says nothing.
#[derive(Debug, Default, Serialize)]
struct ContextFields {
    /// The first of the replicas.
    server: Option<String>,
    /// All of them, in the order in which they are tried.
    servers: Vec<String>,
    dir: Option<String>,
    socket: Option<String>,
    ca: Option<String>,
    ca_pin: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    api_key_file: Option<String>,
}

impl ContextFields {
    fn of(context: &Context) -> Self {
        let Context { server, dir, socket, ca, ca_pin, cert, key, api_key_file } = context.clone();
        let text = |path: Option<std::path::PathBuf>| path.map(|path| path.display().to_string());
        Self {
            server: server.as_slice().first().cloned(),
            servers: server.as_slice().to_vec(),
            dir: text(dir),
            socket: text(socket),
            ca: text(ca),
            ca_pin,
            cert: text(cert),
            key: text(key),
            api_key_file: text(api_key_file),
        }
    }

    fn place(&self) -> &str {
        let Self { server, dir, socket, .. } = self;
        server.as_deref().or(dir.as_deref()).or(socket.as_deref()).unwrap_or("-")
    }

    fn credential(&self) -> String {
        match (&self.cert, &self.api_key_file) {
            (Some(cert), _) => format!("certificate {cert}"),
            (None, Some(file)) => format!("API key {file}"),
            (None, None) => "operator socket".to_owned(),
        }
    }
}

pub fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Add(arguments) => add::run(arguments, reach, output),
        Command::Use { name } => {
            reach.only(&[])?;
            contexts_file()?.change(|contexts| {
                contexts.get(&name)?;
                contexts.current = Some(name.clone());
                Ok(())
            })?;
            let done = serde_json::json!({ "name": name, "current": true });
            output.document(&done, |_| format!("context {name} is the current one\n"))
        }
        Command::List => {
            reach.only(&[])?;
            let contexts = contexts_file()?.load()?;
            output.list(&items(&contexts), |items| table(items))
        }
        Command::Show { name } => show::run(name.as_deref(), reach, output),
        Command::Remove { name } => {
            reach.only(&[])?;
            let was_current = contexts_file()?.change(|contexts| {
                contexts.get(&name)?;
                contexts.contexts.remove(&name);
                Ok(contexts.current.take_if(|current| *current == name).is_some())
            })?;
            let done = serde_json::json!({ "name": name, "removed": true, "was_current": was_current });
            output.document(&done, |_| {
                let next = "no context is current now; `enlist context use NAME` chooses one\n";
                format!("context {name} is removed\n{}", if was_current { next } else { "" })
            })
        }
    }
}

fn contexts_file() -> Result<ContextsFile, CommandError> {
    ContextsFile::find(&variable).ok_or_else(|| {
        let message = "this user has no place for configuration: neither XDG_CONFIG_HOME nor HOME is set";
        CommandError::usage(message, "set HOME, or use flags or ENLIST_* variables instead of a context")
    })
}

fn items(contexts: &Contexts) -> Vec<ContextItem<'_>> {
    let current = contexts.current.as_deref();
    let all = contexts.contexts.iter();
    all.map(|(name, context)| ContextItem {
        name,
        current: current == Some(name),
        fields: ContextFields::of(context),
    })
    .collect()
}

fn table(items: &[ContextItem<'_>]) -> Table {
    let head = ["CURRENT", "NAME", "CONTROL PLANE", "CREDENTIAL"];
    let mut table = Table::new(head, "no contexts; `enlist context add NAME` saves one");
    for item in items {
        let (mark, tone) = if item.current { ("*", Tone::Good) } else { ("", Tone::Plain) };
        table.row(tone, [mark, item.name, item.fields.place(), &item.fields.credential()]);
    }
    table
}
