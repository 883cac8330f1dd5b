//! `enlist node watch`: what is there, then what changes.

use super::state;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::table::harmless;
use api::rest::nodes::NodeItem;
use client::Operator;
use client::rest::Path;

/// Begins to listen before it lists, so that nothing happens unseen between the two; a change in between may
/// be told twice.
pub async fn follow(operator: &Operator, output: Output) -> Result<(), Failure> {
    let mut events = operator.events(&Path::new("/v1/events")).await?;
    let items: Vec<NodeItem> = operator.list(&Path::new("/v1/nodes")).await?;
    for item in &items {
        output.document(item, line)?;
    }
    while let Some(event) = events.next().await? {
        // A newer control plane may tell of other things as well.
        if event.name.as_deref() != Some("node") {
            continue;
        }
        let item: NodeItem = serde_json::from_str(&event.data).map_err(|error| {
            let hint = "use a version of enlist that is as new as the control plane";
            Failure::new(Exit::Fault, "event_unreadable", format!("an event cannot be read: {error}"), hint)
        })?;
        output.document(&item, line)?;
    }
    let hint = "check whether the control plane was stopped, and whether the operator may still read nodes";
    Err(Failure::unreachable("the control plane ended the event stream", hint))
}

fn line(item: &NodeItem) -> String {
    let mut line = format!("{}  {}  tenant {}", item.node_id, state(item), item.tenant);
    if let Some(until) = &item.cert_not_after {
        line.push_str(&format!("  certificate until {until}"));
    }
    if let Some(reason) = &item.health.reason {
        line.push_str(&format!("  {reason}"));
    }
    harmless(&line) + "\n"
}
