//! `on_renew`, `on_config`: a command that is run after each renewal, or when the configuration is another, so that others can
//! take it up. It is given half a minute, and whatever becomes of it, the daemon goes on.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::config::TOKENS;

const LIMIT: Duration = Duration::from_secs(30);
/// By which the service manager says what it handed to this process, and to no other.
const HANDED_OVER: [&str; 3] = ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"];

/// What a command finds on its standard input, at the moment at which it is run.
pub type HookInput = Box<dyn Fn() -> io::Result<Zeroizing<Vec<u8>>> + Send + Sync>;

/// What happens while it runs leads to one more run.
#[derive(Debug, Clone)]
pub struct Hook(Arc<Notify>);

impl Hook {
    /// Runs the command whenever it is asked to, for as long as the runtime lives.
    pub fn start(key: &'static str, command: Option<Vec<String>>, input: Option<HookInput>) -> Self {
        let wanted = Arc::new(Notify::new());
        if let Some(command) = command {
            let asked = wanted.clone();
            tokio::spawn(async move {
                loop {
                    asked.notified().await;
                    let input = input.as_ref().map(|input| input()).transpose();
                    let ended = match input {
                        Ok(input) => perform(&command, input, LIMIT).await,
                        Err(error) => Err(error.to_string()),
                    };
                    if let Err(reason) = ended {
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
async fn perform(
    command: &[String],
    input: Option<Zeroizing<Vec<u8>>>,
    limit: Duration,
) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(program);
    // Not for others to see, whatever it is called.
    for name in TOKENS.iter().chain(&HANDED_OVER) {
        child.env_remove(name);
    }
    let mut child = child
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // Whether it reads that is its own affair, so nobody waits for it.
        tokio::spawn(timeout(limit, async move { pipe.write_all(&input).await }));
    }
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
        assert_eq!(perform(&command("exit 0"), None, long).await, Ok(()));
        assert!(perform(&command("exit 3"), None, long).await.unwrap_err().contains('3'));
        assert!(perform(&["/nonexistent".to_owned()], None, long).await.is_err());
        let endless = perform(&command("sleep 1000 & wait"), None, Duration::from_millis(50)).await;
        assert!(endless.unwrap_err().contains("killed"));
    }

    #[tokio::test]
    async fn it_reads_what_it_is_given_or_does_not() {
        let long = Duration::from_secs(60);
        let input = || Some(Zeroizing::new(vec![b'x'; 200_000]));
        assert_eq!(perform(&command("test $(wc -c) = 200000"), input(), long).await, Ok(()));
        assert_eq!(perform(&command("exit 0"), input(), long).await, Ok(()));
        assert_eq!(perform(&command("test $(wc -c) = 0"), None, long).await, Ok(()));
    }
}
