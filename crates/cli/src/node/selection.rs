//! Which nodes an act is for: one, or all that a selection finds.

use super::label::{self, pair};
use super::{is_gone, named, states};
use crate::error::CommandError;
use api::rest::nodes::{NodeItem, NodeQuery};
use client::OperatorApi;
use client::rest::Path as Url;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// No id and no hostname is as long, comments included.
const LINE_BYTES: u64 = 1024;
const LINES: usize = 1_000_000;
const SELECTORS: [&str; 5] = ["vcluster", "tenant", "state", "label", "file"];

#[derive(Debug, clap::Args)]
pub struct ActTarget {
    /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
    #[arg(required_unless_present_any = SELECTORS, conflicts_with_all = SELECTORS)]
    pub id: Option<String>,
    #[command(flatten)]
    pub selection: NodeSelection,
    /// Do it for every selected node without asking
    #[arg(long, conflicts_with = "id")]
    pub yes: bool,
}

/// What is given together must hold together. Without a state, nodes that have ended are left out.
#[derive(Debug, clap::Args)]
pub struct NodeSelection {
    /// Select the nodes of this vCluster
    #[arg(long)]
    vcluster: Option<String>,
    /// Select the nodes of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Select the nodes in this state [default: all but revoked and decommissioned]
    #[arg(long, value_parser = states())]
    state: Option<String>,
    /// Select the nodes with this label; repeatable: all must be there
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,
    /// Select the nodes of this file, or of standard input with `-`: an id or a hostname on each line, comments after `#`
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["vcluster", "tenant", "state", "label"])]
    file: Option<PathBuf>,
}

impl NodeSelection {
    /// Each once.
    pub async fn nodes(self, operator: &OperatorApi) -> Result<Vec<SelectedNode>, CommandError> {
        let NodeSelection { vcluster, tenant, state, label, file } = self;
        if let Some(file) = file {
            return named_in(&file, operator).await;
        }
        let named = vcluster.clone();
        let takes_ended = state.is_some();
        let label = label::list(label)?;
        let query = NodeQuery { state, tenant, vcluster, label, ..NodeQuery::default() };
        let items: Vec<NodeItem> = operator.list(&Url::new("/v1/nodes").queries(&query)?).await?;
        let nodes: Vec<SelectedNode> =
            items.into_iter().filter(|item| takes_ended || !is_gone(item)).map(SelectedNode::from).collect();
        if let Some(name) = named.filter(|_| nodes.is_empty()) {
            // A name that is mistyped must not read as done.
            let _: serde::de::IgnoredAny = operator.get(&Url::new("/v1/vclusters").segment(&name)).await?;
        }
        Ok(nodes)
    }
}

/// A node that an act is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedNode {
    /// Its id; what a file has for it where that is no node's, or several have it.
    pub name: String,
    hostname: Option<String>,
    pub is_known: bool,
}

impl SelectedNode {
    /// By what people know it.
    pub fn shown(&self) -> String {
        match &self.hostname {
            Some(hostname) => format!("{hostname} ({})", self.name),
            None => self.name.clone(),
        }
    }
}

impl From<NodeItem> for SelectedNode {
    fn from(item: NodeItem) -> Self {
        Self { name: item.node_id, hostname: item.hostname, is_known: true }
    }
}

async fn named_in(file: &Path, operator: &OperatorApi) -> Result<Vec<SelectedNode>, CommandError> {
    let (mut nodes, mut known) = (Vec::new(), BTreeSet::new());
    for name in names_in(file)? {
        let node = match named::node(operator, &name).await {
            Ok(node) => SelectedNode::from(node.item),
            // The act is refused for it, and says why.
            Err(error) if error.is_refusal() => SelectedNode { name, hostname: None, is_known: false },
            Err(error) => return Err(error),
        };
        if known.insert(node.name.clone()) {
            nodes.push(node);
        }
    }
    Ok(nodes)
}

fn names_in(file: &Path) -> Result<Vec<String>, CommandError> {
    let unreadable = |error: &std::io::Error| CommandError::file(file, error);
    if file.as_os_str() == "-" {
        return names_from(&mut std::io::stdin().lock(), unreadable);
    }
    let opened = File::open(file).map_err(|error| unreadable(&error))?;
    names_from(&mut BufReader::new(opened), unreadable)
}

fn names_from(
    input: &mut impl BufRead,
    unreadable: impl Fn(&std::io::Error) -> CommandError,
) -> Result<Vec<String>, CommandError> {
    let hint = "the file has an id or a hostname on each line; what follows a # is a comment";
    let (mut names, mut known) = (Vec::new(), BTreeSet::new());
    for number in 1.. {
        let mut line = Vec::new();
        let length =
            input.take(LINE_BYTES).read_until(b'\n', &mut line).map_err(|error| unreadable(&error))?;
        if length == 0 {
            break;
        }
        if length as u64 == LINE_BYTES && line.last() != Some(&b'\n') {
            return Err(CommandError::usage(
                format!("line {number} is longer than {LINE_BYTES} bytes"),
                hint,
            ));
        }
        let text = String::from_utf8(line)
            .map_err(|_| CommandError::usage(format!("line {number} is not UTF-8"), hint))?;
        let name = text.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default().trim();
        if name.contains(char::is_whitespace) {
            return Err(CommandError::usage(format!("line {number} holds more than one name"), hint));
        }
        if !name.is_empty() && known.insert(name.to_owned()) {
            names.push(name.to_owned());
        }
        if number > LINES {
            return Err(CommandError::usage(format!("the file has more than {LINES} lines"), hint));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &[u8]) -> Result<Vec<String>, CommandError> {
        names_from(&mut &*text, |error| CommandError::fault("file", error.to_string()))
    }

    #[test]
    fn a_file_has_a_name_on_each_line_and_comments() {
        let text = b"\xef\xbb\xbf# rack 7\nweb-1\n\n  web-2  # the second\r\nweb-1\nlast";
        assert_eq!(names(text).ok(), Some(["web-1", "web-2", "last"].map(str::to_owned).into()));
        assert_eq!(names(b"").ok(), Some(Vec::new()));
    }

    #[test]
    fn a_line_that_is_no_name_ends_the_reading() {
        for bad in [b"web-1 web-2\n".as_slice(), b"\xff\n", &[b'x'; 2000]] {
            assert_eq!(names(bad).err().map(|error| error.code().to_owned()).as_deref(), Some("usage"));
        }
    }
}
