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
use std::path::PathBuf;

pub struct Scene<'a> {
    pub place: &'a Place,
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
    let (enlist, agent) = programs();
    // As a shell must read it: these lines are pasted.
    let (dir, mine) = (quoted(&report.dir), quoted(&format!("{}/my-agent", report.dir)));
    let fields = Fields::new()
        .with("control plane", server_url)
        .with("CA fingerprint", ca_pin)
        .with("data and keys", &report.dir)
        .with_some("demo node", scene.demo.map(|demo| demo.story.as_str()))
        .with_some("its identity", demo_node.and_then(|node| node.spiffe_id.as_deref()));
    let end = match scene.once {
        true if scene.place.is_temporary() => {
            format!("Stopping now, as --once asks, and removing everything again (rm -rf {dir}).")
        }
        true => format!("Stopping now, as --once asks. To undo everything: rm -rf {dir}"),
        false => format!("Ctrl-C stops it. To undo everything: rm -rf {dir}"),
    };
    format!(
        "A control plane is running. Not for production: the key that seals its CA lies beside it.\n\n\
         {fields}\n\
         Let a node of your own in (the token works once, until {expires}):\n  \
         echo {token} | {agent} enroll --server {server_url} --ca-pin {ca_pin} --token - --dir {mine}\n\n\
         Then, in another terminal:\n  \
         {enlist} --dir {dir} node list\n  \
         {enlist} --dir {dir} audit list\n  \
         {enlist} --dir {dir} token create\n\n\
         {end}\n",
        fields = fields.text(),
        expires = token.expires_at,
        token = token.token.reveal(),
    )
}

/// Both programs as the stranger can call them: the way this one was called, and its neighbour.
fn programs() -> (String, String) {
    let enlist = std::env::args_os().next().map_or_else(|| PathBuf::from("enlist"), PathBuf::from);
    let agent = enlist.with_file_name("enlist-agent");
    (quoted(&enlist.display().to_string()), quoted(&agent.display().to_string()))
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
