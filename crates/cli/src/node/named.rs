//! A node by its id or, if one node alone has it, by its hostname. A hostname is what a host says of itself, so an id always comes
//! first, and a name that several hosts claim stands for none of them.

use super::is_gone;
use crate::error::{CommandError, Exit};
use crate::table::harmless;
use api::code;
use api::rest::nodes::{NodeDetail, NodeItem, NodeQuery};
use client::OperatorApi;
use client::rest::Path;
use std::io::Write;

/// How many ids a remedy names.
const NAMED: usize = 10;

/// Asks about the node with this id or, if there is none, about the one with this hostname.
pub async fn ask<T>(
    operator: &OperatorApi,
    name: &str,
    asked: impl AsyncFn(&str) -> Result<T, client::Error>,
) -> Result<T, CommandError> {
    match asked(name).await {
        Err(error) if error.code() == code::NODE_NOT_FOUND.word => match by_hostname(operator, name).await? {
            Some(id) => Ok(asked(&id).await?),
            None => Err(error.into()),
        },
        answer => Ok(answer?),
    }
}

/// The node as it is.
pub async fn node(operator: &OperatorApi, name: &str) -> Result<NodeDetail, CommandError> {
    ask(operator, name, async |id| operator.get(&Path::new("/v1/nodes").segment(id)).await).await
}

/// The id of the node that is meant, for looking something up. A name that no node has is looked for as it is: the trail
/// names nodes that are gone.
pub async fn id(operator: &OperatorApi, name: String) -> Result<String, CommandError> {
    let answer = node(operator, &name).await;
    let refused = |word: &str| {
        let details = answer.as_ref().err().and_then(CommandError::details);
        details.is_some_and(|report| report.code() == word)
    };
    let (is_unknown, is_forbidden) = (refused(code::NODE_NOT_FOUND.word), refused(code::FORBIDDEN.word));
    match answer {
        Ok(node) => Ok(node.item.node_id),
        Err(_) if is_unknown => {
            let mut stderr = anstream::stderr().lock();
            // A closed standard error does not fail the command.
            let _ = writeln!(stderr, "notice: no node has the id or the hostname {}", harmless(&name));
            Ok(name)
        }
        // Whoever may read alerts or the trail need not read nodes.
        Err(_) if is_forbidden => Ok(name),
        Err(error) => Err(error),
    }
}

/// A host that was installed again has left ended records behind: they count only where no other node has the name.
async fn by_hostname(operator: &OperatorApi, name: &str) -> Result<Option<String>, CommandError> {
    let query = NodeQuery { hostname: Some(name.to_owned()), ..NodeQuery::default() };
    let nodes: Vec<NodeItem> = match operator.list(&Path::new("/v1/nodes").queries(&query)?).await {
        // A control plane of before knows no such query.
        Err(error) if error.code() == code::BAD_REQUEST.word => return Ok(None),
        nodes => nodes?,
    };
    let (ended, living): (Vec<NodeItem>, Vec<NodeItem>) = nodes.into_iter().partition(is_gone);
    // A host of another tenant that has the name of one that has ended may not be the one that is meant.
    let is_another = |node: &NodeItem| ended.iter().any(|gone| gone.tenant != node.tenant);
    let found =
        if living.is_empty() || living.iter().any(is_another) { [living, ended].concat() } else { living };
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.node_id.clone())),
        several => {
            let message = format!("{} nodes have the hostname {name}", several.len());
            let ids = several.iter().map(|item| item.node_id.as_str());
            let hint = format!("give the id of the one that is meant: {}", some_of(ids));
            Err(CommandError::new(Exit::Refused, "hostname_ambiguous", message, hint))
        }
    }
}

/// As many names as a reader takes in.
pub fn some_of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let shown: Vec<&str> = names.take(NAMED).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
