//! What a stranger sees: less than a screen, and every line of it usable.

use super::place::Place;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::output::Output;
use ::server::run::Server;
use api::rest::nodes::NodeItem;
use api::rest::tokens::MintedToken;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Report<'a> {
    dir: String,
    server_url: String,
    ca_pin: &'a str,
    /// For a node of the stranger's own.
    token: &'a MintedToken,
    demo_node: Option<&'a NodeItem>,
    #[serde(skip)]
    once: bool,
}

pub fn tell(
    place: &Place,
    server: &Server,
    token: &MintedToken,
    demo_node: Option<&NodeItem>,
    once: bool,
    output: Output,
) -> Result<(), Failure> {
    let (dir, server_url) = (place.path(), server.url());
    output.document(&Report { dir, server_url, ca_pin: &token.ca_pin, token, demo_node, once }, text)
}

fn text(report: &Report<'_>) -> String {
    let Report { dir, server_url, ca_pin, token, demo_node, once } = report;
    let (enlist, agent) = programs();
    let node = demo_node.map(|node| format!("{} is {}", node.node_id, node.state));
    let identity = demo_node.and_then(|node| node.spiffe_id.as_deref());
    let fields = Fields::new()
        .with("control plane", server_url)
        .with("CA fingerprint", ca_pin)
        .with("data and keys", dir)
        .with_some("demo node", node.as_deref())
        .with_some("its identity", identity);
    let end = if *once { "Stopping now, as --once asks." } else { "Ctrl-C stops it." };
    format!(
        "A control plane is running. Not for production: the key that seals its CA lies beside it.\n\n\
         {fields}\n\
         Let a node of your own in (the token works once, until {expires}):\n  \
         echo {token} | {agent} enroll --server {server_url} --ca-pin {ca_pin} --token - --dir {dir}/my-agent\n\n\
         Then, in another terminal:\n  \
         {enlist} --dir {dir} node list\n  \
         {enlist} --dir {dir} audit list\n  \
         {enlist} --dir {dir} token create\n\n\
         {end} To undo everything: rm -rf {dir}\n",
        fields = fields.text(),
        expires = token.expires_at,
        token = token.token.reveal(),
    )
}

/// Both programs as the stranger can call them: the way this one was called, and its neighbour.
fn programs() -> (String, String) {
    let enlist = std::env::args_os().next().map_or_else(|| PathBuf::from("enlist"), PathBuf::from);
    let agent = enlist.with_file_name("enlist-agent");
    (enlist.display().to_string(), agent.display().to_string())
}
