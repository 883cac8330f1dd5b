//! Notifying systemd: a datagram to the socket that NOTIFY_SOCKET names. The agent and the control plane both do.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const READY: &str = "READY=1";
const STOPPING: &str = "STOPPING=1";
const WATCHDOG: &str = "WATCHDOG=1";

/// The service manager, if it wants to be notified.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<OsString>,
    /// How often its watchdog is to be notified.
    pub watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment names it.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|limit| ours && *limit > 0);
        Self {
            socket: variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()),
            watchdog: limit.map(|limit| Duration::from_micros(limit / 2)),
        }
    }

    pub fn ready(&self) {
        self.notify(READY);
    }

    pub fn stopping(&self) {
        self.notify(STOPPING);
    }

    /// For its watchdog; one notification that is lost is made up for by the next.
    pub fn alive(&self) {
        if let Err(error) = self.send(WATCHDOG) {
            tracing::debug!(%error, "the service manager's watchdog could not be notified");
        }
    }

    /// Asks it to keep a descriptor for the next process of the service. False if there is none to ask.
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<bool> {
        let Some(socket) = self.socket.as_deref() else { return Ok(false) };
        // It is kept for its own sake: nothing ever happens on it that would be worth waiting for.
        send_with(socket, &format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), descriptor).map(|()| true)
    }

    /// It is to keep no descriptor of that name any longer.
    pub fn forget(&self, name: &str) {
        self.notify(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    fn notify(&self, state: &str) {
        if let Err(error) = self.send(state) {
            tracing::warn!(%error, "the service manager could not be notified of {state}");
        }
    }

    /// Does nothing where no socket is named.
    fn send(&self, state: &str) -> io::Result<()> {
        self.socket.as_deref().map_or(Ok(()), |name| send(name, state))
    }
}

fn send(name: &OsStr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address(name)?).map(drop)
}

/// The same with a descriptor.
fn send_with(name: &OsStr, state: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address(name)?)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(&socket, &[IoSlice::new(state.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A name that begins with `@` is in Linux's abstract name space.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(variables: &[(&str, &str)]) -> ServiceManager {
        let named = |name: &str| variables.iter().find(|(known, _)| *known == name);
        ServiceManager::of(|name| named(name).map(|(_, value)| OsString::from(value)))
    }

    fn check(listener: &UnixDatagram, name: &str) {
        let manager = manager(&[("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "2000000")]);
        assert_eq!(manager.watchdog, Some(Duration::from_secs(1)));
        manager.ready();
        let mut buffer = [0; 32];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(buffer.get(..length), Some(READY.as_bytes()));
    }

    #[test]
    fn both_kinds_of_socket_are_notified() {
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
        assert_eq!(manager(&variables).watchdog, None);
    }
}
