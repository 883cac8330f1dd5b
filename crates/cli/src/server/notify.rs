//! Telling systemd: a datagram to the socket that NOTIFY_SOCKET names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub const READY: &str = "READY=1";
pub const STOPPING: &str = "STOPPING=1";

/// Does nothing where nobody asked to be told; that nobody listens is worth a line in the log.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    if let Err(error) = send(&name, state) {
        tracing::warn!(%error, "the service manager could not be notified of {state}");
    }
}

/// A name that begins with `@` is in Linux's abstract name space.
fn send(name: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listener: &UnixDatagram, name: &OsStr) {
        send(name, READY).unwrap();
        let mut buffer = [0; 32];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(buffer.get(..length), Some(READY.as_bytes()));
    }

    #[test]
    fn both_kinds_of_socket_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        check(&UnixDatagram::bind(&path).unwrap(), path.as_os_str());
        let name = format!("enlist-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        check(&UnixDatagram::bind_addr(&address).unwrap(), OsStr::new(&format!("@{name}")));
    }
}
