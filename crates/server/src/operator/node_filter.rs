//! Which nodes a list shows, and how many of them one request looks into.

use crate::http::extract::bad_in;
use crate::http::failure::Failure;
use api::code;
use api::rest::nodes::NodeQuery;
use lifecycle::names::Labels;
use lifecycle::registry::{Node, NodeState};

const SEARCH_CHARS: usize = 128;
/// How many nodes one request looks into where a glance is not enough, and how many bytes of their labels.
const EXAMINED: usize = 5_000;
const EXAMINED_BYTES: usize = 512 * 1024;

#[derive(Debug, Default)]
pub struct NodeFilter {
    state: Option<NodeState>,
    vcluster: Option<String>,
    unassigned: bool,
    hostname: Option<String>,
    labels: Labels,
    /// Without capital letters of ASCII.
    search: Option<String>,
}

impl NodeFilter {
    pub fn parse(query: &NodeQuery) -> Result<Self, Failure> {
        let labels = query.label.as_deref().map(Labels::parse_list).transpose().map_err(bad_in("label"))?;
        Ok(Self {
            state: query.state.as_deref().map(state_word).transpose()?,
            vcluster: query.vcluster.clone(),
            unassigned: query.unassigned == Some(true),
            hostname: query.hostname.clone(),
            labels: labels.unwrap_or_default(),
            search: query.search.as_deref().map(search_text).transpose()?,
        })
    }

    pub fn includes(&self, node: &Node) -> bool {
        let named = |name: &String| node.vcluster.as_ref().is_some_and(|has| has.as_str() == name);
        let host = |name: &String| node.hostname.as_ref().is_some_and(|has| is_hostname(has.as_str(), name));
        self.state.is_none_or(|state| node.state == state)
            && self.vcluster.as_ref().is_none_or(named)
            && !(self.unassigned && node.vcluster.is_some())
            && self.hostname.as_ref().is_none_or(host)
            && node.labels.include(&self.labels)
            && self.search.as_ref().is_none_or(|text| has_text(node, text))
    }

    /// Whether a glance at a node is not enough: a page ends then after some of them, and is made in turn.
    pub fn compares(&self) -> bool {
        self.hostname.is_some() || !self.labels.is_empty() || self.search.is_some()
    }

    /// Whether another node may be looked into after these.
    pub fn goes_on(&self, examined: LabelsRead) -> bool {
        !self.compares() || (examined.nodes < EXAMINED && examined.bytes < EXAMINED_BYTES)
    }
}

/// What a request has looked into.
#[derive(Debug, Clone, Copy, Default)]
pub struct LabelsRead {
    nodes: usize,
    bytes: usize,
}

impl LabelsRead {
    pub fn and(self, node: &Node) -> Self {
        let pairs = node.labels.pairs().iter().map(|(key, value)| key.len() + value.len());
        Self { nodes: self.nodes + 1, bytes: self.bytes + pairs.sum::<usize>() }
    }
}

/// DNS knows no case.
fn is_hostname(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn has_text(node: &Node, text: &str) -> bool {
    let has = |whole: &str| whole.to_ascii_lowercase().contains(text);
    has(node.id.as_str())
        || node.hostname.as_ref().is_some_and(|name| has(name.as_str()))
        || node.labels.pairs().iter().any(|(key, value)| has(&format!("{key}={value}")))
}

fn search_text(text: &str) -> Result<String, Failure> {
    if (1..=SEARCH_CHARS).contains(&text.chars().count()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(Failure::new(code::BAD_REQUEST, format!("search must be 1 to {SEARCH_CHARS} characters")))
}

fn state_word(word: &str) -> Result<NodeState, Failure> {
    let states = NodeState::ALL;
    states.into_iter().find(|state| state.as_str() == word).ok_or_else(|| {
        let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
        Failure::new(code::BAD_REQUEST, format!("state must be one of {}", words.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Label, NodeId, ProfileName, TenantId, Timestamp};

    fn node() -> Node {
        let id = NodeId::parse("Web-1").expect("a name");
        let (tenant, profile) = (TenantId::default_tenant(), ProfileName::default_profile());
        let mut node = Node::registered(id, tenant, profile, Timestamp::from_secs(0));
        node.hostname = Label::parse("Host7.Example.org").ok();
        node.labels = Labels::parse_list("env=Prod,rack=7").expect("labels");
        node
    }

    fn shows(query: NodeQuery) -> bool {
        NodeFilter::parse(&query).is_ok_and(|filter| filter.includes(&node()))
    }

    #[test]
    fn a_text_is_looked_for_in_id_hostname_and_labels_in_any_case() {
        let search = |text: &str| shows(NodeQuery { search: Some(text.to_owned()), ..NodeQuery::default() });
        for there in ["web", "B-1", "host7", "EXAMPLE", "env=prod", "rack=7", "v=P", "7"] {
            assert!(search(there), "{there}");
        }
        for absent in ["web-1host", "prod,rack", "8", "default", "", &"x".repeat(129)] {
            assert!(!search(absent), "{absent}");
        }
    }

    #[test]
    fn a_hostname_is_whole_and_every_label_holds() {
        let host = |name: &str| shows(NodeQuery { hostname: Some(name.to_owned()), ..NodeQuery::default() });
        assert!(host("host7.example.ORG") && !host("host7") && !host(""));
        let label = |list: &str| shows(NodeQuery { label: Some(list.to_owned()), ..NodeQuery::default() });
        assert!(label("env=Prod") && label("rack=7,env=Prod"));
        assert!(!label("env=prod") && !label("env=Prod,rack=8") && !label("env") && !label(""));
    }
}
