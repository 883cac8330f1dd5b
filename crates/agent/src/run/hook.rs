//! `on_renew`, `on_config`: a command that is run after each renewal, or when the configuration is another, so that others can
//! take it up. It is given half a minute, and whatever becomes of it, the daemon goes on.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::TOKENS;

const LIMIT: Duration = Duration::from_secs(30);

/// What happens while it runs leads to one more run.
#[derive(Debug, Clone)]
pub struct Hook(Arc<Notify>);

impl Hook {
    /// Runs the command whenever it is asked to, for as long as the runtime lives.
    pub fn start(key: &'static str, command: Option<Vec<String>>) -> Self {
        let wanted = Arc::new(Notify::new());
        if let Some(command) = command {
            let asked = wanted.clone();
            tokio::spawn(async move {
                loop {
                    asked.notified().await;
                    if let Err(reason) = perform(&command, LIMIT).await {
                        tracing::warn!(command = command.first(), "{key} failed: {reason}");
                    }
                }
            });
        }
        Self(wanted)
    }

    pub fn run(&self) {
        self.0.notify_one();
    }
}

/// In a process group of its own, so that what it started ends with it.
async fn perform(command: &[String], limit: Duration) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(program);
    // Not for others to see, whatever it is called.
    for name in TOKENS {
        child.env_remove(name);
    }
    let mut child = child
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    match timeout(limit, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            if let Some(group) = group {
                _ = kill_process_group(group, Signal::KILL);
            }
            _ = child.wait().await;
            Err(format!("still running after {} s, killed", limit.as_secs_f32()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn it_is_bounded_and_its_failure_is_told() {
        let long = Duration::from_secs(60);
        assert_eq!(perform(&command("exit 0"), long).await, Ok(()));
        assert!(perform(&command("exit 3"), long).await.unwrap_err().contains('3'));
        assert!(perform(&["/nonexistent".to_owned()], long).await.is_err());
        let endless = perform(&command("sleep 1000 & wait"), Duration::from_millis(50)).await;
        assert!(endless.unwrap_err().contains("killed"));
    }
}
