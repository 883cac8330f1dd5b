//! Signals, and ending in good order.

use crate::error::{CommandError, Exit};
use ::agent::service_manager::ServiceManager;
use ::server::run::Server;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Service managers are promised an end within 10 seconds.
const STOP_LIMIT: Duration = Duration::from_millis(9_700);

/// SIGTERM and SIGINT, caught from the beginning: one that comes while starting is not lost.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub fn listen() -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| {
            CommandError::fault("signals", format!("signal handlers cannot be installed: {error}"))
        };
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        Ok(Self { terminate, interrupt })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// As systemd names itself in the environment.
pub fn manager() -> ServiceManager {
    ServiceManager::of(|name| std::env::var_os(name))
}

/// Why a control plane that served ended by itself.
pub fn replication_stopped(cause: &str, dir: &Path) -> CommandError {
    let dir = dir.display();
    let message = format!("the log in {dir} cannot be written any more: {cause}");
    let hint = format!(
        "correct the cause, such as a full disk (`df -h {dir}`) or a failing one, then start the control plane again; what was acknowledged is \
         kept"
    );
    CommandError::new(Exit::Fault, "replication_stopped", message, hint)
}

/// Drains and stops. Whoever signals a second time does not want to wait; nothing acknowledged is lost then,
/// but what was only counted is.
pub async fn stop(server: Server, signals: &mut StopSignals) -> Result<(), CommandError> {
    manager().stopping();
    tracing::info!("stopping");
    tokio::select! {
        stopped = tokio::time::timeout(STOP_LIMIT, server.stop()) => {
            if stopped.is_err() {
                tracing::warn!("shutdown took too long; exiting anyway");
            }
            Ok(())
        }
        () = signals.next() => {
            let hint = "acknowledged changes are kept; an orderly stop takes up to 10 seconds after the first signal";
            Err(CommandError::new(Exit::Fault, "interrupted", "a second signal ended the shutdown early", hint))
        }
    }
}
