//! What a server presents to a host that has not recognised it yet.

use super::world::{AT, issuer};
use client::Trust;
use client::trust::client_config;
use pki::pin::Pin;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Certificates that a client looks at, its server's own included.
const MOST: usize = 7;

/// By a CA file and by a pin on the same CA, at the moment for which kept certificates hold.
static CLIENTS: LazyLock<[Arc<ClientConfig>; 2]> = LazyLock::new(|| {
    let ca = CertificateDer::from(issuer().certificate().to_vec());
    [Trust::pin(Pin::of(&ca)), Trust::cas(vec![ca])].map(|trust| {
        let mut config = ClientConfig::clone(&*client_config(&trust, None, b"h2").expect("a configuration"));
        config.time_provider = Arc::new(Then);
        Arc::new(config)
    })
});

static KEY: LazyLock<Arc<dyn SigningKey>> = LazyLock::new(|| {
    let key = PrivateKeyDer::try_from(include_bytes!("issuer.key").to_vec()).expect("a key");
    aws_lc_rs::default_provider().key_provider.load_private_key(key).expect("a usable key")
});

#[derive(Debug)]
struct Then;

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(AT.secs())))
    }
}

/// Presents any bytes as its certificates.
#[derive(Debug)]
struct Any(Arc<CertifiedKey>);

impl ResolvesServerCert for Any {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Certificates one after the other, each with its length before it, in two bytes. The key is the CA's own, so that a host
/// that has pinned the CA takes it for the server itself.
pub fn server_chain(data: &[u8]) {
    let (mut chain, mut rest) = (Vec::new(), data);
    while let Some((length, after)) = rest.split_first_chunk() {
        let (one, after) = after.split_at(usize::from(u16::from_be_bytes(*length)).min(after.len()));
        chain.push(CertificateDer::from(one.to_vec()));
        rest = after;
    }
    let presented = chain.len();
    let any = Arc::new(Any(Arc::new(CertifiedKey::new(chain, KEY.clone()))));
    for client in CLIENTS.iter() {
        assert!(!trusts(client, any.clone()) || presented <= MOST, "trusted with {presented} certificates");
    }
}

/// Whether a client completes its handshake.
fn trusts(client: &Arc<ClientConfig>, any: Arc<Any>) -> bool {
    let server = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3 is there")
        .with_no_client_auth()
        .with_cert_resolver(any);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(client.clone(), name).expect("a client");
    let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
    for _ in 0..3 {
        let mut wire = Vec::new();
        while client.wants_write() && client.write_tls(&mut wire).is_ok() {}
        let mut unread = wire.as_slice();
        while !unread.is_empty() && server.read_tls(&mut unread).is_ok() {
            if server.process_new_packets().is_err() {
                return false;
            }
        }
        let mut wire = Vec::new();
        while server.wants_write() && server.write_tls(&mut wire).is_ok() {}
        let mut unread = wire.as_slice();
        while !unread.is_empty() && client.read_tls(&mut unread).is_ok() {
            if client.process_new_packets().is_err() {
                return false;
            }
        }
    }
    !client.is_handshaking()
}
