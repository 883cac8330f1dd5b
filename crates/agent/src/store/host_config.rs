//! `config/`: what the control plane wants of this host, for whoever acts on it, and for the next start while the control
//! plane is away.
//!
//! `received.json` holds what was sent, whole and with a checksum: one file, replaced at once, so a crash leaves the one or
//! the other. `current.json` is the document in force, made from it, and made again where it differs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::agent::Config;
use lifecycle::names::VclusterId;
use lifecycle::registry::DOCUMENT_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::disk;

const PLACE: &str = "config";
const RECEIVED: &str = "received.json";
const CURRENT: &str = "current.json";
/// What no control plane may set is not kept either.
const LONGEST: usize = DOCUMENT_MAX;
/// Two documents as JSON strings, in which every character may take two.
const FILE_BYTES: u64 = 5 * LONGEST as u64;

/// The document in force. It may be large and is shown often, so it is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigInForce(Arc<Value>);

impl Serialize for ConfigInForce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ConfigInForce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(Arc::new(value)))
    }
}

/// What was sent: the document of the vCluster, or of the domain's defaults, and the node's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReceivedConfig {
    /// Whose it is: that of another identity, which was here before, is not this one's.
    node_id: String,
    /// Nothing in maintenance mode.
    vcluster: Option<String>,
    sequence: u64,
    base_version: u64,
    base: String,
    node_version: u64,
    /// Empty if there is none.
    node: String,
    /// When it came. RFC 3339, UTC.
    received_at: String,
}

#[derive(Serialize, Deserialize)]
struct ReceivedFile {
    /// Over the text of the other field.
    sha256: String,
    config: String,
}

/// The configuration of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    received: ReceivedConfig,
    document: ConfigInForce,
}

impl HostConfig {
    /// Within bounds, and nothing but JSON objects.
    pub fn of(wire: &Config, node_id: &str, at: String) -> Result<Self, String> {
        let text = |bytes: &[u8], sha256: &str, what: &str| match std::str::from_utf8(bytes) {
            _ if bytes.len() > LONGEST => Err(format!("{what} is longer than {LONGEST} bytes")),
            Ok("") => Ok(String::new()),
            Ok(text) if checksum(text) == sha256 => Ok(text.to_owned()),
            Ok(_) => Err(format!("{what} is not what its checksum says")),
            Err(_) => Err(format!("{what} is not UTF-8")),
        };
        let vcluster = match wire.vcluster.as_str() {
            "" => None,
            name => Some(VclusterId::parse(name).map_err(|error| error.to_string())?.to_string()),
        };
        Self::checked(ReceivedConfig {
            node_id: node_id.to_owned(),
            vcluster,
            sequence: wire.sequence,
            base_version: wire.base_version,
            base: text(&wire.base, &wire.base_checksum, "the document")?,
            node_version: wire.node_version,
            node: text(&wire.node, &wire.node_checksum, "the node's own document")?,
            received_at: at,
        })
    }

    fn checked(received: ReceivedConfig) -> Result<Self, String> {
        let object = |text: &str, what: &str| match serde_json::from_str::<Value>(text) {
            Ok(value) if value.is_object() => Ok(value),
            Ok(_) => Err(format!("{what} is not a JSON object")),
            Err(error) => Err(format!("{what} is not JSON: {error}")),
        };
        let mut document = object(&received.base, "the document")?;
        if !received.node.is_empty() {
            merge(&mut document, object(&received.node, "the node's own document")?);
        }
        Ok(Self { received, document: ConfigInForce(Arc::new(document)) })
    }

    /// Nothing in maintenance mode.
    pub fn vcluster(&self) -> Option<&str> {
        self.received.vcluster.as_deref()
    }

    pub fn document(&self) -> &ConfigInForce {
        &self.document
    }

    /// The change up to which this host knows everything that concerns it.
    pub fn sequence(&self) -> u64 {
        self.received.sequence
    }

    pub fn state(&self, cached: bool) -> ConfigState {
        let ReceivedConfig { sequence, base_version, node_version, received_at, .. } = &self.received;
        let received_at = received_at.clone();
        ConfigState {
            sequence: *sequence,
            base_version: *base_version,
            node_version: *node_version,
            received_at,
            cached,
        }
    }

    /// Whether it asks for the same as another, whenever that came.
    pub fn is_same(&self, other: &Self) -> bool {
        let when = |config: &Self| ReceivedConfig { received_at: String::new(), ..config.received.clone() };
        when(self) == when(other)
    }

    /// As it was sent, where nothing was merged into it.
    fn text(&self) -> String {
        if self.received.node.is_empty() { self.received.base.clone() } else { self.document.0.to_string() }
    }
}

/// What is known of a configuration beside its document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigState {
    pub sequence: u64,
    pub base_version: u64,
    pub node_version: u64,
    pub received_at: String,
    /// Whether the control plane could say otherwise, if it were asked: it is not connected.
    pub cached: bool,
}

/// The node's own document over the other, as RFC 7396 merges: objects member by member, null takes away, all else replaces.
/// How deep it goes is bounded by the parser.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(&name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// On disk when this returns. What is there already is not written again.
pub fn keep(dir: &Path, config: &HostConfig) -> io::Result<()> {
    if !load(dir, &config.received.node_id).is_some_and(|found| found == *config) {
        let text = serde_json::to_string(&config.received)?;
        let file = ReceivedFile { sha256: checksum(&text), config: text };
        disk::private_dir(&place(dir))?;
        disk::replace(&place(dir).join(RECEIVED), &serde_json::to_vec(&file)?, disk::SECRET)?;
    }
    show(dir, config)
}

/// Puts the document in force where others read it.
pub fn show(dir: &Path, config: &HostConfig) -> io::Result<()> {
    let (path, text) = (place(dir).join(CURRENT), config.text());
    if read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    disk::replace(&path, text.as_bytes(), disk::SECRET)
}

/// The document in force, as others read it.
pub fn shown(dir: &Path) -> io::Result<Vec<u8>> {
    read(&place(dir).join(CURRENT))
}

/// Nothing if there is none of this node, or none that is whole: the control plane sends it again.
pub fn load(dir: &Path, node_id: &str) -> Option<HostConfig> {
    let file: ReceivedFile = serde_json::from_slice(&read(&place(dir).join(RECEIVED)).ok()?).ok()?;
    if checksum(&file.config) != file.sha256 {
        return None;
    }
    let received: ReceivedConfig = serde_json::from_str(&file.config).ok()?;
    HostConfig::checked(received).ok().filter(|config| config.received.node_id == node_id)
}

fn checksum(text: &str) -> String {
    pki::digest::fingerprint(text.as_bytes()).hex()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file: File = disk::open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn place(dir: &Path) -> PathBuf {
    dir.join(PLACE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn wire(base: &str, node: &str) -> Config {
        Config {
            vcluster: "ml".to_owned(),
            sequence: 7,
            base_version: 3,
            base: base.as_bytes().to_vec(),
            base_checksum: checksum(base),
            node_version: u64::from(!node.is_empty()),
            node: node.as_bytes().to_vec(),
            node_checksum: checksum(node),
        }
    }

    fn config(base: &str, node: &str) -> HostConfig {
        HostConfig::of(&wire(base, node), "n-1", "2030-01-01T00:00:00Z".to_owned()).unwrap()
    }

    #[test]
    fn it_is_kept_and_found_again_by_its_own_node_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path(), "n-1"), None);
        let config = config(r#"{"b": 1,  "a": 1.50}"#, "");
        keep(dir.path(), &config).unwrap();
        keep(dir.path(), &config).unwrap();
        assert_eq!(load(dir.path(), "n-1"), Some(config));
        assert_eq!(load(dir.path(), "n-2"), None);
        let shown = fs::read_to_string(dir.path().join("config/current.json")).unwrap();
        assert_eq!(shown, r#"{"b": 1,  "a": 1.50}"#, "byte for byte");
    }

    #[test]
    fn the_nodes_own_document_is_merged_over_the_other() {
        let config =
            config(r#"{"a":1,"b":{"c":1,"d":2},"e":[1]}"#, r#"{"b":{"c":null,"f":3},"e":{"g":{"h":1}}}"#);
        let expected = serde_json::json!({"a": 1, "b": {"d": 2, "f": 3}, "e": {"g": {"h": 1}}});
        assert_eq!(*config.document().0, expected);
    }

    #[test]
    fn a_damaged_file_is_ignored_and_one_that_was_changed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = config("{}", "");
        keep(dir.path(), &config).unwrap();
        let (received, current) =
            (dir.path().join("config/received.json"), dir.path().join("config/current.json"));
        let whole = fs::read_to_string(&received).unwrap();
        for damaged in ["", "{}", "[", &whole[..whole.len() / 2], &whole.replace("ml", "xx")] {
            fs::write(&received, damaged).unwrap();
            assert_eq!(load(dir.path(), "n-1"), None, "{damaged}");
        }
        fs::write(&current, "garbage").unwrap();
        keep(dir.path(), &config).unwrap();
        assert_eq!(load(dir.path(), "n-1"), Some(config));
        assert_eq!(fs::read_to_string(&current).unwrap(), "{}");
    }

    #[test]
    fn what_is_out_of_bounds_or_not_an_object_is_not_kept() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(LONGEST));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        for (base, node) in
            [(long.as_str(), ""), ("{}", &long), (&deep, ""), ("[]", ""), ("", ""), ("{}", "1")]
        {
            assert!(
                HostConfig::of(&wire(base, node), "n-1", String::new()).is_err(),
                "{base:.40} {node:.40}"
            );
        }
        let other = Config { base: b"{ }".to_vec(), ..wire("{}", "") };
        let binary = Config { base: vec![0xff], ..wire("{}", "") };
        for wrong in [other, binary] {
            assert!(HostConfig::of(&wrong, "n-1", String::new()).is_err());
        }
        let named = Config { vcluster: "../x".to_owned(), ..wire("{}", "") };
        assert!(HostConfig::of(&named, "n-1", String::new()).is_err());
    }
}
