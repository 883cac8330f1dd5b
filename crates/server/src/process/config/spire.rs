//! `[[spire]]`: trust domains whose SVIDs are accepted.

use super::form::{ABSOLUTE_PATH, Form};
use super::key::config_keys;
use super::mistake::ConfigMistake;
use super::shape::{Required, StringOr};
use lifecycle::names::{NodeId, TrustDomain};
use std::path::PathBuf;

/// Where the node's id stands in a path.
const NODE: &str = "{node}";

pub static TRUST_DOMAIN: Form<TrustDomain> = Form::new(
    |text| TrustDomain::parse(text).ok(),
    || "the name of a trust domain, such as spire.example.org".to_owned(),
);

pub static PATH_MAP: Form<PathMap> =
    Form::new(PathMap::parse, || "a SPIFFE path with {node} once, such as /enlist/{node}".to_owned());

config_keys! {
    /// `[[spire]]` as written.
    pub struct RawSpire as written;
    /// A trust domain whose SVIDs are accepted.
    pub struct SpireConfig {
        /// The trust domain of SPIRE; never the domain's own
        "trust_domain" trust_domain: Required<TrustDomain> = Required(&TRUST_DOMAIN, "");
        /// Its trust bundle, PEM (`spire-server bundle show`). Read again every 2 s; while it cannot be used, the last one that could
        /// is
        "bundle" bundle: Required<PathBuf> = Required(&ABSOLUTE_PATH, "");
        /// Which node an SVID stands for, by the path of its SPIFFE id
        "map" map: StringOr<PathMap> = StringOr(&PATH_MAP, "/enlist/{node}");
    }
}

/// What stands before and after the node's id in a SPIFFE path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathMap {
    before: String,
    after: String,
}

impl PathMap {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (before, after) = text.split_once(NODE)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/');
        let good = before.starts_with('/')
            && text.len() <= 1024
            && before.bytes().chain(after.bytes()).all(plain)
            && !text.contains("//")
            && !text.ends_with('/');
        good.then(|| Self { before: before.to_owned(), after: after.to_owned() })
    }

    /// The node that this path stands for.
    pub fn node(&self, path: &str) -> Option<NodeId> {
        let node = path.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        NodeId::parse(node).ok()
    }
}

impl std::fmt::Display for PathMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{NODE}{}", self.before, self.after)
    }
}

/// A trust domain that is named twice has two bundles, and which of them counts would be a matter of order.
pub fn distinct(all: &[SpireConfig]) -> Vec<ConfigMistake> {
    let twice = |(number, spire): &(usize, &SpireConfig)| {
        all.iter().take(*number).any(|before| before.trust_domain == spire.trust_domain)
    };
    let mistake = |(number, spire): (usize, &SpireConfig)| {
        let key = format!("spire[{}].trust_domain", number + 1);
        ConfigMistake::new(&key, spire.trust_domain.as_str(), "a trust domain that is named once")
    };
    all.iter().enumerate().filter(twice).map(mistake).collect()
}

/// An SVID that could name our own nodes and operators must never be believed.
pub fn own_domain(all: &[SpireConfig], own: &TrustDomain) -> Vec<ConfigMistake> {
    let ours = all.iter().enumerate().filter(|(_, spire)| spire.trust_domain == *own);
    let mistake = |(number, spire): (usize, &SpireConfig)| {
        let key = format!("spire[{}].trust_domain", number + 1);
        let expected = "another trust domain than the domain's own: its identities are issued here alone";
        ConfigMistake::new(&key, spire.trust_domain.as_str(), expected)
    };
    ours.map(mistake).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_for_one_node_or_none() {
        let map = PathMap::parse("/site/{node}/host").expect("a map");
        let node = |path: &str| map.node(path).map(|node| node.to_string());
        assert_eq!(node("/site/n-1/host").as_deref(), Some("n-1"));
        for other in [
            "/site/n-1",
            "/site//host",
            "/site/a/b/host",
            "/other/n-1/host",
            "/site/n-1/host/x",
            "/site/host",
        ] {
            assert_eq!(node(other), None, "{other}");
        }
        for bad in ["", "{node}", "/enlist/node", "/a/{node}/", "/a//{node}", "/{node}/{node}", "/a b/{node}"]
        {
            assert_eq!(PathMap::parse(bad), None, "{bad}");
        }
    }
}
