//! One act for every node of a selection: each is done by itself, so that some may be refused, and each has a result.

use super::act::NodeAct;
use super::named;
use super::selection::{NodeSelection, SelectedNode};
use crate::confirm::ConfirmFlag;
use crate::error::{CommandError, ErrorReport, Exit};
use crate::output::Output;
use crate::progress::Progress;
use crate::table::harmless;
use api::rest::nodes::NodeItem;
use client::OperatorApi;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What became of one node.
#[derive(Serialize)]
struct NodeResult<'a> {
    /// As it was given, where it is not known otherwise.
    node_id: &'a str,
    result: NodeOutcome,
    /// As it is then.
    node: Option<&'a NodeItem>,
    error: Option<&'a ErrorReport>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum NodeOutcome {
    Done,
    Refused,
    /// It may be done: the answer did not come.
    Failed,
    NotDone,
}

#[derive(Default)]
struct BulkTally {
    nodes: usize,
    done: usize,
    refused: usize,
}

impl BulkTally {
    fn text(&self) -> String {
        let left = self.nodes - self.done - self.refused;
        let left = if left > 0 { format!(", {left} not done") } else { String::new() };
        format!("{}: {} done, {} refused{left}", counted(self.nodes), self.done, self.refused)
    }
}

fn list(nodes: &[SelectedNode]) -> String {
    let shown: Vec<String> = nodes.iter().map(SelectedNode::shown).collect();
    if shown.is_empty() {
        String::new()
    } else {
        format!(": {}", named::some_of(shown.iter().map(String::as_str)))
    }
}

fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

pub async fn run<W: Serialize>(
    act: &NodeAct<W>,
    selection: NodeSelection,
    confirm: &ConfirmFlag,
    operator: &OperatorApi,
    output: Output,
) -> Result<(), CommandError> {
    let nodes = selection.nodes(operator).await?;
    if nodes.is_empty() {
        notice("notice: no node is selected: nothing was changed");
        return Ok(());
    }
    let (known, unknown): (Vec<SelectedNode>, Vec<SelectedNode>) =
        nodes.iter().cloned().partition(|node| node.is_known);
    let question = format!("`node {}` would be done for {}{}", act.verb, counted(known.len()), list(&known));
    let question = match unknown.as_slice() {
        [] => question,
        unknown => format!("{question}; refused for what names no node, or several{}", list(unknown)),
    };
    confirm.or_ask_about(&question, output).map_err(|error| error.affecting(known.len()))?;
    let interrupted = noticed_interruption(output);
    let mut progress = Progress::new(act.verb, output);
    let mut tally = BulkTally { nodes: nodes.len(), ..BulkTally::default() };
    let mut stopped = None;
    let mut left = nodes.iter().map(|node| node.name.as_str());
    while stopped.is_none()
        && let Some(name) = left.next()
    {
        let answer = act.perform(operator, name).await;
        progress.clear();
        let outcome = outcome_of(&answer);
        match outcome {
            NodeOutcome::Done => tally.done += 1,
            NodeOutcome::Refused => tally.refused += 1,
            NodeOutcome::Failed | NodeOutcome::NotDone => {}
        }
        let (node, error) = (answer.as_ref().ok(), answer.as_ref().err().and_then(CommandError::details));
        let node_id = node.map_or(name, |node| node.node_id.as_str());
        print(&NodeResult { node_id, result: outcome, node, error }, act, output)?;
        progress.at(|| tally.text());
        stopped = match answer {
            Err(error) if outcome == NodeOutcome::Failed => Some(error),
            _ if interrupted.load(Ordering::Relaxed) && left.len() > 0 => Some(interruption()),
            _ => None,
        };
    }
    drop(progress);
    for name in left {
        let result = NodeResult { node_id: name, result: NodeOutcome::NotDone, node: None, error: None };
        print(&result, act, output)?;
    }
    if let Some(error) = stopped {
        return Err(error.after(&tally.text()));
    }
    if !output.is_json() {
        output.verbatim(&format!("{}\n", tally.text()))?;
    }
    if tally.refused == 0 {
        return Ok(());
    }
    let message = format!("{} of {} refused", tally.refused, counted(tally.nodes));
    let hint = "the result of each node says why; the others are done and stay so";
    Err(CommandError::new(Exit::Refused, "nodes_refused", message, hint))
}

/// Ctrl-C from now on: it ends nothing that is under way.
fn noticed_interruption(output: Output) -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let noticed = interrupted.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            noticed.store(true, Ordering::Relaxed);
            if !output.is_json() {
                // The terminal has shown ^C in the line.
                notice("\nnotice: the command ends after the node that is under way");
            }
        }
    });
    interrupted
}

fn interruption() -> CommandError {
    let hint = "run the command again for the nodes that are not done";
    CommandError::new(Exit::Fault, "interrupted", "Ctrl-C ended the command", hint)
}

fn outcome_of(answer: &Result<NodeItem, CommandError>) -> NodeOutcome {
    match answer {
        Ok(_) => NodeOutcome::Done,
        Err(error) if error.is_refusal() => NodeOutcome::Refused,
        Err(_) => NodeOutcome::Failed,
    }
}

fn print<W: Serialize>(
    result: &NodeResult<'_>,
    act: &NodeAct<W>,
    output: Output,
) -> Result<(), CommandError> {
    output.document(result, |result| match (result.node, result.error) {
        (Some(node), _) => (act.human)(node),
        (None, Some(error)) => {
            harmless(&format!("node {}: {}: {}", result.node_id, error.code(), error.message())) + "\n"
        }
        (None, None) => harmless(&format!("node {}: not done", result.node_id)) + "\n",
    })
}

/// What is no result.
fn notice(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // A closed standard error does not fail the command.
    let _ = writeln!(stderr, "{text}");
}
