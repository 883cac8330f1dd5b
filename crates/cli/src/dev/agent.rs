//! The demo node: a real agent, in a process of its own, which enrolls over TLS like any other.

use crate::error::{CommandError, Exit};
use api::rest::nodes::NodeItem;
use api::rest::tokens::MintedToken;
use client::OperatorApi;
use client::rest::Path;
use std::path::Path as FilePath;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// What the demo node is called.
pub const NODE: &str = "demo";
const ENROLL_LIMIT: Duration = Duration::from_secs(60);
const ACTIVE_LIMIT: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(50);

pub async fn find(operator: &OperatorApi) -> Result<Option<NodeItem>, CommandError> {
    let nodes: Vec<NodeItem> = operator.list(&Path::new("/v1/nodes")).await?;
    Ok(nodes.into_iter().find(|node| node.node_id == NODE))
}

/// Enrolls it. The token goes through standard input, so that it does not show among the processes.
pub async fn enroll(
    program: &FilePath,
    server: &str,
    token: &MintedToken,
    dir: &FilePath,
) -> Result<(), CommandError> {
    let failed = |what: String| {
        let hint = "use --no-agent to run the control plane alone, or set ENLIST_LOG=debug to log more";
        CommandError::new(Exit::Fault, "demo_agent", what, hint)
    };
    let mut command = Command::new(program);
    command.args(["enroll", "--server", server, "--ca-pin", &token.ca_pin, "--token", "-", "--dir"]);
    command.arg(dir);
    // Nothing that is meant for another agent may reach this one.
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child =
        command.spawn().map_err(|error| failed(format!("the demo agent did not start: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // An agent that ends without reading it says why itself.
        let _ = stdin.write_all(token.token.reveal().as_bytes()).await;
    }
    match timeout(ENROLL_LIMIT, child.wait_with_output()).await {
        Err(_) => Err(failed("the demo agent did not enroll in time".to_owned())),
        Ok(Err(error)) => Err(failed(format!("the demo agent cannot be waited for: {error}"))),
        Ok(Ok(ended)) if ended.status.success() => Ok(()),
        Ok(Ok(ended)) => {
            let said = String::from_utf8_lossy(&ended.stderr);
            Err(failed(format!("the demo agent did not enroll ({}):\n{}", ended.status, said.trim_end())))
        }
    }
}

pub async fn until_active(operator: &OperatorApi) -> Result<NodeItem, CommandError> {
    let wait = async {
        loop {
            match find(operator).await? {
                Some(node) if node.state == "active" => return Ok(node),
                _ => sleep(GLANCE).await,
            }
        }
    };
    timeout(ACTIVE_LIMIT, wait).await.unwrap_or_else(|_| {
        let hint = "set ENLIST_LOG=debug to log what the control plane does";
        Err(CommandError::new(Exit::Fault, "demo_agent", "the demo node did not become active in time", hint))
    })
}
