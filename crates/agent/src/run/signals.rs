//! What ends the daemon. SIGHUP is taken and ignored, so that a closed terminal does not end it.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::code::AgentCode;
use crate::fault::Fault;

pub struct Stop {
    term: Signal,
    int: Signal,
    _hup: Signal,
}

impl Stop {
    pub fn listen() -> Result<Self, Fault> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                let hint = "check that the process may open files";
                Fault::host(
                    AgentCode::RuntimeFailed,
                    format!("signal handlers cannot be installed: {error}"),
                    hint,
                )
            })
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            _hup: listen(SignalKind::hangup())?,
        })
    }

    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
