//! What `enlist dev` prints: less than a screen, and every line of it usable.

use super::Demo;
use super::directory::{DevDirectory, RootKeyFile};
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use crate::shell::{self, quoted};
use ::server::run::Server;
use api::rest::nodes::NodeItem;
use api::rest::tokens::MintedToken;
use serde::Serialize;
use std::path::Path;

pub struct DevSession<'a> {
    pub directory: &'a DevDirectory,
    /// This program, as another terminal finds it.
    pub enlist: &'a Path,
    /// The agent's program.
    pub agent: &'a Path,
    pub server: &'a Server,
    /// For a node of the user's own.
    pub token: &'a MintedToken,
    pub demo: Option<&'a Demo>,
    pub root_key: RootKeyFile,
    /// Where the log is, unless it goes to standard error.
    pub log: Option<&'a Path>,
    pub once: bool,
}

#[derive(Serialize)]
struct DevSummary<'a> {
    dir: String,
    server_url: String,
    ca_pin: &'a str,
    token: &'a MintedToken,
    demo_node: Option<&'a NodeItem>,
    /// For trying rolls of issuers and of the root; not there in a directory of an older version, nor once the root has rolled.
    #[serde(skip_serializing_if = "Option::is_none")]
    root_key: Option<String>,
}

pub fn print(session: &DevSession<'_>, output: Output) -> Result<(), CommandError> {
    let summary = DevSummary {
        dir: session.directory.path(),
        server_url: session.server.url(),
        ca_pin: &session.token.ca_pin,
        token: session.token,
        demo_node: session.demo.map(|demo| &demo.node),
        root_key: active_root_key(session.directory, session.root_key),
    };
    output.document(&summary, |summary| text(session, summary, output.screen()))
}

/// The file of the active root's key, if it is here.
pub fn active_root_key(directory: &DevDirectory, file: RootKeyFile) -> Option<String> {
    match file {
        RootKeyFile::Active => Some(directory.root_key().display().to_string()),
        RootKeyFile::Former | RootKeyFile::Absent => None,
    }
}

/// Where to look for it.
pub fn root_key_place(directory: &DevDirectory, file: RootKeyFile) -> Option<String> {
    match file {
        RootKeyFile::Former => Some(format!(
            "where `sign-root` wrote it: {} is the key of an earlier root",
            directory.root_key().display()
        )),
        RootKeyFile::Active | RootKeyFile::Absent => active_root_key(directory, file),
    }
}

fn text(session: &DevSession<'_>, summary: &DevSummary<'_>, screen: Screen) -> String {
    let root_key = root_key_place(session.directory, session.root_key);
    let fields = Fields::new()
        .with("control plane", &summary.server_url)
        .with("data directory", &summary.dir)
        .with_some("root key", root_key.as_deref())
        .with_some("log", session.log.map(|log| log.display().to_string()).as_deref())
        .with_some("demo node", session.demo.map(|demo| demo.story.as_str()))
        .with_some("SPIFFE ID", summary.demo_node.and_then(|node| node.spiffe_id.as_deref()));
    format!(
        "A control plane is running.\n\
         Not for production: all its keys, also the root key, lie in one directory.\n\n\
         {}\n{}",
        fields.text_on(screen),
        if session.once { ending(session.directory, screen) } else { steps(session, summary, screen) }
    )
}

/// What to do in another terminal. These lines are pasted into a shell.
fn steps(session: &DevSession<'_>, summary: &DevSummary<'_>, screen: Screen) -> String {
    let DevSummary { server_url, ca_pin, token, .. } = summary;
    let (enlist, agent) = (quoted(session.enlist), quoted(session.agent));
    let (dir, mine) =
        (quoted(session.directory.dir.path()), quoted(&session.directory.dir.path().join("my-agent")));
    let shown = |line: String| shell::paragraph(&line, screen);
    format!(
        "In another terminal, enroll a node of your own.\n\
         The token works once, until {expires}:\n{enroll}\n\
         Keep that node connected and its certificate renewed, until Ctrl-C\n\
         (a real host does so as a service: docs/agent.md):\n{run}\n\
         Look at the fleet:\n{list}{audit}{create}\n\
         Ctrl-C stops the control plane.\n\
         To undo everything, stop it and its agents first, then:\n{undo}",
        expires = screen.full(&token.expires_at),
        enroll = shown(format!(
            "echo {} | {agent} enroll --server {server_url} --ca-pin {ca_pin} --token - --dir {mine}",
            token.token.reveal()
        )),
        run = shown(format!("{agent} run --dir {mine}")),
        list = shown(format!("{enlist} --dir {dir} node list")),
        audit = shown(format!("{enlist} --dir {dir} audit list")),
        create = shown(format!("{enlist} --dir {dir} token create")),
        undo = shown(format!("rm -rf {dir}")),
    )
}

/// With --once nothing stays to be tried.
pub fn ending(directory: &DevDirectory, screen: Screen) -> String {
    let dir = quoted(directory.base());
    if directory.is_temporary() {
        let text = format!(
            "Everything works. Stopping now because of --once, and removing {dir}.\n\
             Without --once it keeps running, and says how to enroll a node of your own."
        );
        return screen.hang(0, 0, &text) + "\n";
    }
    format!(
        "Everything works. Stopping now because of --once. To undo everything:\n{}",
        shell::paragraph(&format!("rm -rf {dir}"), screen)
    )
}

/// How to go on, or to be rid of it. With --json everything has been said.
pub fn print_stopped(directory: &DevDirectory, enlist: &Path, output: Output) -> Result<(), CommandError> {
    if output.is_json() {
        return Ok(());
    }
    let (enlist, dir) = (quoted(enlist), quoted(directory.base()));
    output.verbatim(&format!(
        "\nStopped. All data is kept; start the control plane again with\n  {enlist} dev --dir {dir}\n\
         or stop the agents that you started, and remove the data:\n  rm -rf {dir}\n"
    ))
}
