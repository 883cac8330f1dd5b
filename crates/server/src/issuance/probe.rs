//! Is a host where it says it is? Looked at from here, for a second.
//!
//! Nobody may use this to have the control plane call others: it comes after the token, and goes to the
//! address that the request came from unless policy allows more.

use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, join_all};
use futures::stream::FuturesUnordered;
use lifecycle::names::{NodeId, Source};
use lifecycle::registry::{Actor, AlertKind, Command, Policy, RaiseAlert, Underlay, UnderlayProbe};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(1);
/// How many hosts are looked for at once.
pub(super) const AT_ONCE: usize = 128;
/// Identifier and sequence of the echo; the system replaces the first.
const ECHO: [u8; 4] = [0, 0, 0, 1];

/// What one way of asking came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeAnswer {
    /// The host is there. A port that is not open says so as well: its WireGuard is not up yet.
    There,
    NoRoute(String),
    Silent,
    EchoUnanswered,
    /// This system does not let us ask in this way.
    Unable,
}

/// What all of them came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reachability {
    Reachable,
    Unreachable(String),
    /// Silence tells nothing, unless an echo should have been answered.
    Unknown {
        echoed: bool,
    },
}

/// Where policy requires it: nobody enrolls who cannot be reached.
pub async fn demand(
    app: &App,
    origin: &Provenance,
    policy: &Policy,
    underlay: Option<&Underlay>,
) -> Result<(), Failure> {
    let Some(underlay) = underlay.filter(|_| policy.underlay_probe == UnderlayProbe::Require) else {
        return Ok(());
    };
    let refused = |message: String| Err(Failure::new(code::UNDERLAY_UNREACHABLE, message));
    let addresses: Vec<SocketAddr> = addresses(underlay).collect();
    let foreign = |address: &&SocketAddr| !policy.underlay_probe_any && !is_callers(origin, address.ip());
    if let Some(address) = addresses.iter().find(foreign) {
        return refused(format!(
            "{address} is not where the request came from ({}), so it was not probed",
            origin.source
        ));
    }
    let Ok(Ok(_permit)) = timeout(LIMIT, app.issuance.probes.acquire()).await else {
        return Err(Failure::new(code::OVERLOADED, "too many hosts are being probed now").retry_after(2));
    };
    for (address, verdict) in look(&addresses).await {
        match verdict {
            Reachability::Unreachable(why) => return refused(format!("{address}: {why}")),
            Reachability::Unknown { echoed: true } => return refused(format!("{address} does not answer")),
            Reachability::Reachable | Reachability::Unknown { echoed: false } => {}
        }
    }
    Ok(())
}

/// Where policy only warns: the enrollment does not wait, and operators are told.
pub fn warn(app: &Arc<App>, origin: &Provenance, policy: &Policy, node: &NodeId, underlay: Option<Underlay>) {
    let named = underlay.filter(|_| policy.underlay_probe == UnderlayProbe::Warn);
    let any = policy.underlay_probe_any;
    let addresses: Vec<SocketAddr> =
        named.iter().flat_map(addresses).filter(|address| any || is_callers(origin, address.ip())).collect();
    // Nothing to probe: what an earlier enrollment named is over all the same.
    if addresses.is_empty() && app.view().state.open_alert(KIND, Some(node)).is_none() {
        return;
    }
    let (app, node) = (app.clone(), node.clone());
    tokio::spawn(async move {
        let Ok(_permit) = app.issuance.probes.try_acquire() else { return };
        let verdicts = look(&addresses).await;
        let open = app.view().state.open_alert(KIND, Some(&node)).map(|alert| alert.id);
        let unreachable = verdicts.iter().find_map(|(address, verdict)| match verdict {
            Reachability::Unreachable(why) => Some(format!("{address}: {why}")),
            _ => None,
        });
        let command = match (unreachable, open) {
            (Some(detail), _) => Command::RaiseAlert(RaiseAlert { kind: KIND, node: Some(node), detail }),
            (None, Some(alert)) => Command::ClearAlert { alert },
            (None, None) => return,
        };
        if let Err(failure) = app.commit(Actor::Reconciler, &Provenance::internal(), command).await {
            tracing::warn!(code = failure.code.word, "an alert was not recorded: {}", failure.message);
        }
    });
}

const KIND: AlertKind = AlertKind::UnderlayUnreachable;

fn addresses(underlay: &Underlay) -> impl Iterator<Item = SocketAddr> + use<> {
    let port = underlay.port;
    let given = underlay.ipv6.map(IpAddr::V6).into_iter().chain(underlay.ipv4.map(IpAddr::V4));
    given.map(move |address| SocketAddr::new(address.to_canonical(), port))
}

fn is_callers(origin: &Provenance, address: IpAddr) -> bool {
    matches!(origin.source, Source::Address(source) if source.to_canonical() == address)
}

async fn look(addresses: &[SocketAddr]) -> Vec<(SocketAddr, Reachability)> {
    join_all(addresses.iter().map(|address| async { (*address, look_at(*address).await) })).await
}

/// Asks in every way at once. The first that finds the host ends it.
async fn look_at(address: SocketAddr) -> Reachability {
    let ways: [BoxFuture<'_, ProbeAnswer>; 3] =
        [datagram(address).boxed(), connection(address).boxed(), echo(address.ip()).boxed()];
    let mut ways: FuturesUnordered<_> = ways.into_iter().collect();
    let mut signs = Vec::new();
    while let Some(sign) = ways.next().await {
        if sign == ProbeAnswer::There {
            return Reachability::Reachable;
        }
        signs.push(sign);
    }
    judge(signs)
}

fn judge(signs: Vec<ProbeAnswer>) -> Reachability {
    let echoed = signs.contains(&ProbeAnswer::EchoUnanswered);
    let no_route = signs.into_iter().find_map(|sign| match sign {
        ProbeAnswer::NoRoute(why) => Some(why),
        _ => None,
    });
    no_route.map_or(Reachability::Unknown { echoed }, Reachability::Unreachable)
}

async fn datagram(address: SocketAddr) -> ProbeAnswer {
    let ask = async {
        let socket = UdpSocket::bind(unspecified(address.ip())).await.map_err(|_| ProbeAnswer::Unable)?;
        socket.connect(address).await.map_err(sign)?;
        // One octet: no message of WireGuard, so no answer but the system's.
        socket.send(&[0]).await.map_err(sign)?;
        socket.recv(&mut [0; 64]).await.map_err(sign)
    };
    within(ask, ProbeAnswer::Silent).await
}

/// The system tells a connection of a host or a network that cannot be reached; a datagram it does not.
async fn connection(address: SocketAddr) -> ProbeAnswer {
    within(async { TcpStream::connect(address).await.map_err(sign) }, ProbeAnswer::Silent).await
}

async fn echo(address: IpAddr) -> ProbeAnswer {
    let ask = async {
        let (family, protocol, request) = match address {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(protocol));
        let socket = socket.map_err(|_| ProbeAnswer::Unable)?;
        let socket = UdpSocket::from_std(socket.into()).map_err(|_| ProbeAnswer::Unable)?;
        socket.connect(SocketAddr::new(address, 0)).await.map_err(sign)?;
        let [a, b, c, d] = ECHO;
        socket.send(&[request, 0, 0, 0, a, b, c, d]).await.map_err(sign)?;
        socket.recv(&mut [0; 64]).await.map_err(sign)
    };
    within(ask, ProbeAnswer::EchoUnanswered).await
}

async fn within<T>(ask: impl Future<Output = Result<T, ProbeAnswer>>, late: ProbeAnswer) -> ProbeAnswer {
    match timeout(LIMIT, ask).await {
        Ok(Ok(_)) => ProbeAnswer::There,
        Ok(Err(sign)) => sign,
        Err(_) => late,
    }
}

fn unspecified(like: IpAddr) -> SocketAddr {
    let address = match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(address, 0)
}

fn sign(error: io::Error) -> ProbeAnswer {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => ProbeAnswer::There,
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::AddrNotAvailable
        | ErrorKind::InvalidInput => ProbeAnswer::NoRoute(format!("no route ({error})")),
        _ => ProbeAnswer::Unable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closed_port_is_a_host_that_is_there() {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let Ok(address) = port else { return };
        assert_eq!(look_at(address).await, Reachability::Reachable);
    }

    #[tokio::test]
    async fn an_address_without_a_route_is_unreachable() {
        let link_local = SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)), 51820);
        let verdict = look_at(link_local).await;
        assert!(matches!(verdict, Reachability::Unreachable(_)), "{verdict:?}");
    }

    #[test]
    fn silence_tells_nothing_unless_an_echo_should_have_been_answered() {
        let judged = |echo| judge(vec![ProbeAnswer::Silent, ProbeAnswer::Silent, echo]);
        assert_eq!(judged(ProbeAnswer::Unable), Reachability::Unknown { echoed: false });
        assert_eq!(judged(ProbeAnswer::EchoUnanswered), Reachability::Unknown { echoed: true });
        assert_eq!(
            judged(ProbeAnswer::NoRoute("why".to_owned())),
            Reachability::Unreachable("why".to_owned())
        );
    }
}
