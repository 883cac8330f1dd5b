//! `enlist node label`: what operators sort nodes by.

use super::named;
use crate::error::CommandError;
use crate::output::Output;
use crate::table::harmless;
use api::rest::nodes::{LabelNode, NodeItem};
use client::OperatorApi;
use client::rest::Path;
use lifecycle::names::{LabelKey, Labels, Malformed};
use std::collections::BTreeMap;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
    id: String,
    /// Labels to set, KEY=VALUE, and keys to remove, KEY-
    #[arg(required = true, value_name = "KEY=VALUE|KEY-", value_parser = change)]
    changes: Vec<LabelChange>,
}

#[derive(Debug, Clone)]
enum LabelChange {
    Set(String, String),
    Remove(String),
}

pub async fn run(arguments: Arguments, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let mut request = LabelNode::default();
    let mut set = Vec::new();
    for change in arguments.changes {
        match change {
            LabelChange::Set(key, value) => set.push((key, value)),
            LabelChange::Remove(key) => request.remove.push(key),
        }
    }
    request.set = map(set)?;
    let labelled = async |id: &str| {
        let path = Path::new("/v1/nodes").segment(id).segment("label");
        operator.post::<NodeItem>(&path, &request).await
    };
    let item = named::ask(operator, &arguments.id, labelled).await?;
    output.document(&item, |item| {
        let labels = shown(&item.labels).unwrap_or_else(|| "none".to_owned());
        format!("node {} has the labels {}\n", harmless(&item.node_id), harmless(&labels))
    })
}

fn change(text: &str) -> Result<LabelChange, Malformed> {
    if text.contains('=') {
        return pair(text).map(|(key, value)| LabelChange::Set(key, value));
    }
    let key = text.strip_suffix('-').ok_or(Malformed {
        what: "a change of a label",
        expected: "KEY=VALUE, which sets it, or KEY-, which removes it",
    })?;
    LabelKey::parse(key).map(|key| LabelChange::Remove(key.into()))
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), Malformed> {
    let missing = Malformed { what: "a label", expected: "KEY=VALUE" };
    let (key, value) = text.split_once('=').ok_or(missing)?;
    let pair = (key.to_owned(), value.to_owned());
    Labels::parse([pair.clone()].into()).map(|_| pair)
}

/// Each key once.
pub fn map(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, CommandError> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.contains_key(&key) {
            let message = format!("the label {key} is given twice");
            return Err(CommandError::usage(message, "a node has one value of a label: give one"));
        }
        map.insert(key, value);
    }
    Ok(map)
}

/// As a query names them; none if there are none.
pub fn list(pairs: Vec<(String, String)>) -> Result<Option<String>, CommandError> {
    let labels = Labels::parse(map(pairs)?)
        .map_err(|error| CommandError::usage(error.to_string(), "give fewer labels"))?;
    Ok((!labels.is_empty()).then(|| labels.to_list()))
}

/// As people read them.
pub fn shown(labels: &BTreeMap<String, String>) -> Option<String> {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}
