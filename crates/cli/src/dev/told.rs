//! What a stranger sees: less than a screen, and every line of it usable.

use super::Demo;
use super::place::Place;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use ::server::run::Server;
use api::rest::nodes::NodeItem;
use api::rest::tokens::MintedToken;
use serde::Serialize;
use std::path::Path;

pub struct Scene<'a> {
    pub place: &'a Place,
    /// This program, as another terminal finds it.
    pub enlist: &'a Path,
    /// The agent's program.
    pub agent: &'a Path,
    pub server: &'a Server,
    /// For a node of the stranger's own.
    pub token: &'a MintedToken,
    pub demo: Option<&'a Demo>,
    /// Where the log is, unless it goes to standard error.
    pub log: Option<&'a Path>,
    pub once: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    dir: String,
    server_url: String,
    ca_pin: &'a str,
    token: &'a MintedToken,
    demo_node: Option<&'a NodeItem>,
}

pub fn tell(scene: &Scene<'_>, output: Output) -> Result<(), Failure> {
    let report = Report {
        dir: scene.place.path(),
        server_url: scene.server.url(),
        ca_pin: &scene.token.ca_pin,
        token: scene.token,
        demo_node: scene.demo.map(|demo| &demo.node),
    };
    output.document(&report, |report| text(scene, report, output.screen()))
}

fn text(scene: &Scene<'_>, report: &Report<'_>, screen: Screen) -> String {
    let Report { server_url, ca_pin, token, demo_node, .. } = report;
    let (enlist, agent) = (quoted(scene.enlist), quoted(scene.agent));
    // As a shell must read it: these lines are pasted.
    let (dir, mine) = (quoted(scene.place.dir.path()), quoted(&scene.place.dir.path().join("my-agent")));
    let fields = Fields::new()
        .with("control plane", server_url)
        .with("data directory", &report.dir)
        .with_some("log", scene.log.map(|log| log.display().to_string()).as_deref())
        .with_some("demo node", scene.demo.map(|demo| demo.story.as_str()))
        .with_some("SPIFFE id", demo_node.and_then(|node| node.spiffe_id.as_deref()));
    let first = match scene.once {
        true => "Without --once it keeps running. In another terminal, enroll a node then.",
        false => "In another terminal, enroll a node of your own.",
    };
    let end = match scene.once {
        true if scene.place.is_temporary() => {
            "Stopping now because of --once, and removing everything again:"
        }
        true => "Stopping now because of --once. To undo everything:",
        false => "Ctrl-C stops the control plane. To undo everything:",
    };
    format!(
        "A control plane is running.\n\
         Not for production: the key that seals its CA key lies in the same directory.\n\n\
         {fields}\n\
         {first}\n\
         The token works once, until {expires}:\n  \
         echo {token} | {agent} enroll --server {server_url} --ca-pin {ca_pin} --token - --dir {mine}\n\n\
         Keep that node connected and its certificate renewed, until Ctrl-C\n\
         (a real host does so as a service: docs/agent.md):\n  \
         {agent} run --dir {mine}\n\n\
         Look at the fleet:\n  \
         {enlist} --dir {dir} node list\n  \
         {enlist} --dir {dir} audit list\n  \
         {enlist} --dir {dir} token create\n\n\
         {end}\n  \
         rm -rf {dir}\n",
        fields = fields.text(),
        expires = screen.full(&token.expires_at),
        token = token.token.reveal(),
    )
}

/// How to go on, or to be rid of it. With --json everything has been said.
pub fn farewell(place: &Place, enlist: &Path, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return Ok(());
    }
    let (enlist, dir) = (quoted(enlist), quoted(place.dir.path()));
    output.verbatim(&format!(
        "\nStopped. All data is kept; start the control plane again with\n  {enlist} dev --dir {dir}\n\
         or remove the data:\n  rm -rf {dir}\n"
    ))
}

/// In single quotes wherever a shell would see more than a word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
