//! Where this host's WireGuard can be reached, when nobody said: at the address from which it reaches the control
//! plane itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use client::ServerUrl;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::config::UnderlayAddresses;

/// A name that takes longer to look up will not be waited for a second time.
const LIMIT: Duration = Duration::from_secs(5);

/// By the first of these servers to which there is a way. Nothing is sent to it.
pub async fn from_here(servers: &[ServerUrl]) -> Option<UnderlayAddresses> {
    for server in servers {
        let host = server.host();
        let Ok(Ok(found)) = timeout(LIMIT, lookup_host((host.as_str(), server.port()))).await else {
            continue;
        };
        for address in found {
            if let Some(underlay) = towards(address).await {
                return Some(underlay);
            }
        }
    }
    None
}

/// A datagram socket that is connected has chosen its address, and has not spoken yet.
async fn towards(there: SocketAddr) -> Option<UnderlayAddresses> {
    let any: IpAddr = match there {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(there).await.ok()?;
    UnderlayAddresses::at(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_the_address_on_the_way_to_the_first_server_that_has_one() {
        let servers = |texts: &[&str]| -> Vec<ServerUrl> {
            texts.iter().map(|text| ServerUrl::parse(text).unwrap()).collect()
        };
        let here = from_here(&servers(&["https://127.0.0.1:1"])).await;
        assert_eq!(here, UnderlayAddresses::parse(["127.0.0.1"]));
        assert_eq!(from_here(&servers(&["https://[::ffff:127.0.0.1]:1"])).await, here);
        assert_eq!(from_here(&servers(&["https://nowhere.invalid", "https://127.0.0.1:1"])).await, here);
        assert_eq!(from_here(&[]).await, None);
    }
}
