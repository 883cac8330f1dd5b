//! What `enlist dev` prints: less than a screen, and every line of it usable.

use super::Demo;
use super::directory::DevDirectory;
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
}

pub fn print(session: &DevSession<'_>, output: Output) -> Result<(), CommandError> {
    let summary = DevSummary {
        dir: session.directory.path(),
        server_url: session.server.url(),
        ca_pin: &session.token.ca_pin,
        token: session.token,
        demo_node: session.demo.map(|demo| &demo.node),
    };
    output.document(&summary, |summary| text(session, summary, output.screen()))
}

fn text(session: &DevSession<'_>, summary: &DevSummary<'_>, screen: Screen) -> String {
    let fields = Fields::new()
        .with("control plane", &summary.server_url)
        .with("data directory", &summary.dir)
        .with_some("log", session.log.map(|log| log.display().to_string()).as_deref())
        .with_some("demo node", session.demo.map(|demo| demo.story.as_str()))
        .with_some("SPIFFE ID", summary.demo_node.and_then(|node| node.spiffe_id.as_deref()));
    format!(
        "A control plane is running.\n\
         Not for production: the key that seals its CA key lies in the same directory.\n\n\
         {}\n{}",
        fields.text_on(screen),
        if session.once { ending(session, screen) } else { steps(session, summary, screen) }
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
         Ctrl-C stops the control plane. To undo everything:\n{undo}",
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
fn ending(session: &DevSession<'_>, screen: Screen) -> String {
    let dir = quoted(session.directory.dir.path());
    if session.directory.is_temporary() {
        return format!(
            "Everything works. Stopping now because of --once, and removing {dir}.\n\
             Without --once it keeps running, and says how to enroll a node of your own.\n"
        );
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
    let (enlist, dir) = (quoted(enlist), quoted(directory.dir.path()));
    output.verbatim(&format!(
        "\nStopped. All data is kept; start the control plane again with\n  {enlist} dev --dir {dir}\n\
         or remove the data:\n  rm -rf {dir}\n"
    ))
}
