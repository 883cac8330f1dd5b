//! Telling systemd: a datagram to the socket that NOTIFY_SOCKET names.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::config::Environment;

pub const READY: &str = "READY=1";
pub const STOPPING: &str = "STOPPING=1";
const WATCHDOG: &str = "WATCHDOG=1";

/// The service manager, if there is one that wants to be told.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<OsString>,
    /// How often to say that all is well.
    pub watchdog: Option<Duration>,
}

impl Manager {
    pub fn of(environment: &Environment) -> Self {
        let number = |name: &str| environment.get(name)?.to_str()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|limit| ours && *limit > 0);
        Self {
            socket: environment.get("NOTIFY_SOCKET").cloned(),
            watchdog: limit.map(|limit| Duration::from_micros(limit / 2)),
        }
    }

    /// Does nothing where nobody asked to be told; that nobody listens is worth a line in the log.
    pub fn tell(&self, state: &str) {
        if let Some(Err(error)) = self.socket.as_deref().map(|name| send(name, state)) {
            tracing::debug!(%error, "the service manager could not be notified: {state}");
        }
    }

    pub fn all_is_well(&self) {
        self.tell(WATCHDOG);
    }
}

/// A name that begins with `@` is in Linux's abstract name space.
fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listener: &UnixDatagram, name: &str) {
        let manager = Manager::of(&Environment::of([("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "2000000")]));
        assert_eq!(manager.watchdog, Some(Duration::from_secs(1)));
        manager.tell(READY);
        let mut buffer = [0; 32];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(buffer.get(..length), Some(READY.as_bytes()));
    }

    #[test]
    fn both_kinds_of_socket_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        check(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
        let name = format!("enlist-agent-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        check(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
    }

    #[test]
    fn another_process_watchdog_is_not_ours() {
        let variables = [("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "1")];
        assert_eq!(Manager::of(&Environment::of(variables)).watchdog, None);
    }
}
