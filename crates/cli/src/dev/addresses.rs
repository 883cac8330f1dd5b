//! Which addresses the replicas of `enlist dev --replicas` have. They keep them: others find them there after a restart.

use super::LISTEN;
use crate::error::CommandError;
use ::server::run::RunError;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// From one replica to the next: 8443, 9443, 10443.
const STEP: u16 = 1000;

/// For hosts and operators, and for the other replicas. `asked` is where the first one is to listen; a port that is taken is no
/// reason to fail, unless it was asked for.
pub fn of_replica(number: u8, asked: Option<SocketAddr>) -> Result<(SocketAddr, SocketAddr), CommandError> {
    let first = asked.unwrap_or(LISTEN);
    let base = LISTEN.port() + STEP * u16::from(number - 1);
    let usual = |port: u16| SocketAddr::new(first.ip(), if asked.is_some() { 0 } else { port });
    let listen = match asked {
        Some(asked) if number == 1 => bind(asked)?,
        _ => bind_or_any(usual(base))?,
    };
    // Both are held until both are known: they differ.
    let peer = bind_or_any(usual(base + 1))?;
    let at = |listener: &TcpListener| listener.local_addr().map_err(|error| failed(first, error));
    Ok((at(&listen)?, at(&peer)?))
}

/// The same of one that is alone.
pub fn of_the_only_one() -> Result<SocketAddr, CommandError> {
    bind_or_any(LISTEN)?.local_addr().map_err(|error| failed(LISTEN, error))
}

fn bind_or_any(address: SocketAddr) -> Result<TcpListener, CommandError> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bind(SocketAddr::new(address.ip(), 0)),
        bound => bound.map_err(|error| failed(address, error)),
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).map_err(|error| failed(address, error))
}

fn failed(address: SocketAddr, error: std::io::Error) -> CommandError {
    RunError::Listen { address, error }.into()
}
