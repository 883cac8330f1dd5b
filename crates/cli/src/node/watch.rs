//! `enlist node watch`: what is there, then what changes, each with its time.

use super::{certificate_end, state};
use crate::clock;
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::screen::Screen;
use crate::table::{harmless, shortened};
use api::rest::nodes::{NodeEvent, NodeItem};
use client::OperatorApi;
use client::rest::Path;

/// Begins to listen before it lists, so that nothing happens unseen between the two; a change in between may
/// be printed twice.
pub async fn follow(operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let mut events = operator.events(&Path::new("/v1/events")).await?;
    let items: Vec<NodeItem> = operator.list(&Path::new("/v1/nodes")).await?;
    let now = clock::now().to_string();
    for item in &items {
        output.document(item, |item| line(&now, item, output.screen()))?;
    }
    while let Some(event) = events.next().await? {
        // A newer control plane may send events of other names.
        if event.name.as_deref() != Some("node") {
            continue;
        }
        let event: NodeEvent = serde_json::from_str(&event.data).map_err(|error| {
            let hint = "use a version of enlist that is as new as the control plane";
            CommandError::new(
                Exit::Fault,
                "event_unreadable",
                format!("an event cannot be read: {error}"),
                hint,
            )
        })?;
        let at = event.at.clone().unwrap_or_else(|| clock::now().to_string());
        output.document(&event, |event| line(&at, &event.item, output.screen()))?;
    }
    let hint = "check whether the control plane was stopped, and whether the operator may still read nodes";
    Err(CommandError::unreachable("the control plane ended the event stream", hint))
}

/// One line of the terminal: what wants attention stands before what may be cut off.
fn line(at: &str, item: &NodeItem, screen: Screen) -> String {
    let mut line = format!("{}  {}  {}", screen.stamp(at), item.node_id, state(item));
    if let Some(reason) = &item.health.reason {
        line.push_str(&format!("  {reason}"));
    }
    line.push_str(&format!("  tenant {}", item.tenant));
    if let Some(vcluster) = &item.vcluster {
        line.push_str(&format!("  vCluster {vcluster}"));
    }
    if let Some(until) = certificate_end(item) {
        line.push_str(&format!("  certificate until {until}"));
    }
    let line = harmless(&line);
    screen.columns().map_or_else(|| line.clone(), |columns| shortened(&line, columns)) + "\n"
}
