//! What a stranger sees: less than a screen, and every line of it usable.

use super::Demo;
use super::place::Place;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::output::Output;
use ::server::run::Server;
use api::rest::nodes::NodeItem;
use api::rest::tokens::MintedToken;
use serde::Serialize;
use std::path::{Path, PathBuf};

pub struct Scene<'a> {
    pub place: &'a Place,
    /// The agent's program.
    pub agent: &'a Path,
    pub server: &'a Server,
    /// For a node of the stranger's own.
    pub token: &'a MintedToken,
    pub demo: Option<&'a Demo>,
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
    output.document(&report, |report| text(scene, report))
}

fn text(scene: &Scene<'_>, report: &Report<'_>) -> String {
    let Report { server_url, ca_pin, token, demo_node, .. } = report;
    let (enlist, agent) = (program(), quoted(&scene.agent.display().to_string()));
    // As a shell must read it: these lines are pasted.
    let (dir, mine) = (quoted(&report.dir), quoted(&format!("{}/my-agent", report.dir)));
    let fields = Fields::new()
        .with("control plane", server_url)
        .with("data directory", &report.dir)
        .with_some("demo node", scene.demo.map(|demo| demo.story.as_str()))
        .with_some("SPIFFE id", demo_node.and_then(|node| node.spiffe_id.as_deref()));
    let end = match scene.once {
        true if scene.place.is_temporary() => {
            format!("Stopping now because of --once, and removing {dir} again (rm -rf).")
        }
        true => format!("Stopping now because of --once. To undo everything: rm -rf {dir}"),
        false => format!("Ctrl-C stops the control plane. To undo everything: rm -rf {dir}"),
    };
    format!(
        "A control plane is running.\n\
         Not for production: the key that seals its CA key lies in the same directory.\n\n\
         {fields}\n\
         In another terminal, enroll a node of your own.\n\
         The token works once, until {expires}:\n  \
         echo {token} | {agent} enroll --server {server_url} --ca-pin {ca_pin} --token - --dir {mine}\n\n\
         Keep that node connected and its certificate renewed, until Ctrl-C:\n  \
         {agent} run --dir {mine}\n\n\
         Look at the fleet:\n  \
         {enlist} --dir {dir} node list\n  \
         {enlist} --dir {dir} audit list\n  \
         {enlist} --dir {dir} token create\n\n\
         {end}\n",
        fields = fields.text(),
        expires = token.expires_at,
        token = token.token.reveal(),
    )
}

/// How to go on, or to be rid of it. With --json everything has been said.
pub fn farewell(place: &Place, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return Ok(());
    }
    let (enlist, dir) = (program(), quoted(&place.path()));
    output.verbatim(&format!(
        "\nStopped. All data is kept; start the control plane again with\n  {enlist} dev --dir {dir}\n\
         or remove the data:\n  rm -rf {dir}\n"
    ))
}

/// This program, the way it was called.
fn program() -> String {
    let enlist = std::env::args_os().next().map_or_else(|| PathBuf::from("enlist"), PathBuf::from);
    quoted(&enlist.display().to_string())
}

/// In single quotes wherever a shell would see more than a word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
