//! The tunnel without an agent around it, to compare throughput with: `bare_tunnel INTERFACE PORT PRIVATE PUBLIC ENDPOINT ALLOWED`, keys as
//! `wg` prints them. The caller gives the interface its address and brings it up. `tests/overlay_throughput.py` runs it.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gotatun::device::{self, Peer};
use gotatun::x25519::{PublicKey, StaticSecret};

fn key(text: &str) -> [u8; 32] {
    STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, port, private, public, endpoint, allowed] = words.as_slice() else {
        return Err("six words are needed".into());
    };
    let (endpoint, allowed): (SocketAddr, IpAddr) = (endpoint.parse()?, allowed.parse()?);
    let peer =
        Peer::new(PublicKey::from(key(public))).with_endpoint(endpoint).with_allowed_ip(allowed.into());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let device = device::build()
            .with_default_udp()
            .udp_recv_buffer_size(4 << 20)
            .create_tun(interface)?
            .with_private_key(StaticSecret::from(key(private)))
            .with_listen_port(port.parse()?)
            .with_peer(peer)
            .build()
            .await?;
        println!("ready");
        std::future::pending::<()>().await;
        device.stop().await;
        Ok(())
    })
}
