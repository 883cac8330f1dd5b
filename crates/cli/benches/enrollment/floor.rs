//! What cannot be done for less: handshake, request, signature.

use lifecycle::names::{NodeId, Span, SpiffeId, TenantId, Timestamp, TrustDomain};
use pki::agent_key::HostKey;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::sync::Arc;

pub struct Floor {
    pub handshake: f64,
    pub csr: f64,
    pub sign: f64,
}

impl Floor {
    pub fn sum(&self) -> f64 {
        self.handshake + self.csr + self.sign
    }
}

/// CPU time of this thread, in µs.
pub fn thread_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn best_of_five(rounds: usize, mut measure: impl FnMut() -> f64) -> f64 {
    let run = |_| (0..rounds).map(|_| measure()).sum::<f64>() / rounds as f64;
    (0..5).map(run).fold(f64::INFINITY, f64::min)
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = thread_cpu();
    work();
    thread_cpu() - start
}

pub fn measure() -> Result<Floor, Box<dyn std::error::Error>> {
    // Now, because rustls asks the clock.
    let at = server::clock::now();
    let domain = TrustDomain::parse("bench")?;
    let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]])?;
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key)?;
    let pem = HostKey::generate()?.csr_pem()?;
    let csr = best_of_five(500, || timed(|| drop(std::hint::black_box(pki::csr::read(pem.as_bytes())))));
    let request = pki::csr::read(pem.as_bytes())?;
    let issuance = Issuance {
        subject: SpiffeId::agent(&domain, &TenantId::default_tenant(), &NodeId::parse("01JBENCHMARKNODE")?),
        common_name: Some("01JBENCHMARKNODE".to_owned()),
        serial: [3; 16],
        signing_time: at,
        lifetime: Span::from_days(1),
    };
    let sign = best_of_five(500, || {
        timed(|| drop(std::hint::black_box(sign_leaf(&issuer, &request.spki, &issuance))))
    });
    let (server, client) = configs(&made, at)?;
    let handshake = best_of_five(200, || handshake(&server, &client));
    Ok(Floor { handshake, csr, sign })
}

fn configs(
    made: &pki::hierarchy::Hierarchy,
    at: Timestamp,
) -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), Box<dyn std::error::Error>> {
    let names = ["localhost"];
    let issuer = SigningIssuer::new(&made.server.der, &made.server.key)?;
    let identity = pki::server_cert::issue_server(&issuer, &names, "bench", [6; 16], at, Span::from_days(1))?;
    let chain = [identity.signed.der.clone(), made.server.der.clone(), made.root_der.clone()];
    let chain = chain.into_iter().map(CertificateDer::from).collect();
    let key = PrivateKeyDer::Pkcs8(identity.key_pkcs8.to_vec().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.root_der.clone()))?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((Arc::new(server), Arc::new(client)))
}

/// A whole handshake in memory; counts only what the server does.
fn handshake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> f64 {
    let name = ServerName::try_from("localhost").expect("a host name");
    let mut client = ClientConnection::new(client.clone(), name).expect("a client");
    let mut spent = 0.0;
    let mut end = None;
    spent += timed(|| end = ServerConnection::new(server.clone()).ok());
    let mut server = end.expect("a server");
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("client writes");
        }
        let mut input = wire.as_slice();
        let mut output = Vec::new();
        spent += timed(|| {
            while !input.is_empty() {
                server.read_tls(&mut input).expect("server reads");
                server.process_new_packets().expect("server agrees");
            }
            while server.wants_write() {
                server.write_tls(&mut output).expect("server writes");
            }
        });
        let mut back = output.as_slice();
        while !back.is_empty() {
            client.read_tls(&mut back).expect("client reads");
            client.process_new_packets().expect("client agrees");
        }
    }
    spent
}
