//! The floor: a server that does the cryptography of a boot over TLS and nothing else, and machines that do their part of it.
//!
//! On one port, without a client certificate: a request in, its signature checked, a certificate out. On the other, with
//! that certificate: one byte in, the configuration out, and the connection stays. Lengths stand before what they count; nothing
//! is stored, parsed or limited.

use crate::framing::Error;
use crate::machine;
use crate::report::{Floor, Meter};
use crate::transport::Dialer;
use crate::usage;
use lifecycle::names::{NodeId, Span, SpiffeId, TenantId, TrustDomain};
use pki::agent_key::HostKey;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const BACKLOG: u32 = 4096;
/// Longer than anything that is sent here.
const LONGEST: usize = 1 << 20;

/// What signs, and how the leaves are named.
struct Authority {
    issuer: SigningIssuer,
    domain: TrustDomain,
    serial: AtomicU64,
}

/// Serves until it is killed. Says its two ports, and in hex what to trust.
pub async fn serve() -> Result<(), Error> {
    let at = server::clock::now();
    let domain = TrustDomain::parse("bench")?;
    let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]])?;
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key)?;
    let server_issuer = SigningIssuer::new(&made.server.der, &made.server.key)?;
    let own = pki::server_cert::issue_server(
        &server_issuer,
        &["localhost"],
        "bench",
        [6; 16],
        at,
        Span::from_days(1),
    )?;
    let chain: Vec<CertificateDer<'static>> =
        [own.signed.der.clone(), made.server.der.clone()].into_iter().map(CertificateDer::from).collect();
    let key = || PrivateKeyDer::Pkcs8(own.key_pkcs8.to_vec().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = || {
        ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
    };
    let mut anchors = RootCertStore::empty();
    anchors.add(CertificateDer::from(made.node.der.clone()))?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(anchors), provider.clone()).build()?;
    let mut open = builder()?.with_no_client_auth().with_single_cert(chain.clone(), key())?;
    let mut closed = builder()?.with_client_cert_verifier(verifier).with_single_cert(chain, key())?;
    (open.send_tls13_tickets, closed.send_tls13_tickets) = (0, 0);

    let (strangers, known) = (listen()?, listen()?);
    println!("{} {} {}", strangers.local_addr()?, known.local_addr()?, hex::encode(&made.root_der));
    let authority = Arc::new(Authority { issuer, domain, serial: AtomicU64::new(1) });
    let (open, closed) = (TlsAcceptor::from(Arc::new(open)), TlsAcceptor::from(Arc::new(closed)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = strangers.accept().await {
            let (acceptor, authority) = (open.clone(), authority.clone());
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                enroll(acceptor.accept(stream).await?, &authority).await
            });
        }
    });
    while let Ok((stream, _)) = known.accept().await {
        let acceptor = closed.clone();
        tokio::spawn(async move {
            stream.set_nodelay(true)?;
            configure(acceptor.accept(stream).await?).await
        });
    }
    Ok(())
}

fn listen() -> Result<TcpListener, Error> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(LOOPBACK)?;
    Ok(socket.listen(BACKLOG)?)
}

async fn enroll(mut stream: impl AsyncRead + AsyncWrite + Unpin, authority: &Authority) -> Result<(), Error> {
    let request = pki::csr::read_der(&receive(&mut stream).await?)?;
    let number = authority.serial.fetch_add(1, Ordering::Relaxed);
    let mut serial = [3; 16];
    for (place, byte) in serial.iter_mut().skip(8).zip(number.to_be_bytes()) {
        *place = byte;
    }
    let node = NodeId::parse(&format!("machine-{number:06}"))?;
    let issuance = Issuance {
        subject: SpiffeId::agent(&authority.domain, &TenantId::default_tenant(), &node),
        common_name: Some(node.to_string()),
        serial,
        signing_time: server::clock::now(),
        lifetime: Span::from_days(1),
    };
    let signed = sign_leaf(&authority.issuer, &request.spki, &issuance)?;
    send(&mut stream, &signed.der).await?;
    // Until the other side has left.
    let _ = stream.read(&mut [0]).await;
    Ok(())
}

async fn configure(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), Error> {
    let wanted = stream.read_u32().await? as usize;
    send(&mut stream, &vec![b'x'; wanted.min(LONGEST)]).await?;
    let _ = stream.read(&mut [0]).await;
    Ok(())
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Error> {
    let mut framed = u32::try_from(bytes.len())?.to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await?;
    Ok(stream.flush().await?)
}

async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Error> {
    let length = stream.read_u32().await? as usize;
    let mut bytes = vec![0; length.min(LONGEST)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// So many machines against it, all at once.
pub async fn measure(count: usize, document: usize) -> Result<Floor, Error> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--bare-server")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let floor = measured(&mut child, count, document).await;
    let _ = child.kill();
    let _ = child.wait();
    floor
}

async fn measured(child: &mut std::process::Child, count: usize, document: usize) -> Result<Floor, Error> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let mut word = || words.next().ok_or("the server of the floor did not say where it is");
    let (strangers, known, root) = (word()?.parse()?, word()?.parse()?, hex::decode(word()?)?);
    let dialers = (Dialer::new(strangers, [root.clone()])?, Dialer::new(known, [root])?);
    let stranger = dialers.0.tls(None, b"")?;
    let process = child.id();
    let before = usage::memory(process, "VmRSS:");
    let meter = Meter::begin(process);
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let machines: Vec<_> = (0..count)
        .map(|number| {
            let (dialers, stranger, arrived) = (dialers.clone(), stranger.clone(), arrived.clone());
            tokio::spawn(async move {
                let booted = boot(&dialers, stranger, number, document).await;
                let (kept, told) = match booted {
                    Ok(stream) => (Some(stream), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let _ = arrived.send(told);
                std::future::pending::<()>().await;
                drop(kept);
            })
        })
        .collect();
    for _ in 0..count {
        arrivals.recv().await.ok_or("no machine is left")??;
    }
    let cost = meter.end();
    let after = usage::memory(process, "VmRSS:");
    machines.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(Floor { cost, kb_each: after.saturating_sub(before) as f64 / count as f64 })
}

async fn boot(
    (strangers, known): &(Dialer, Dialer),
    stranger: Arc<rustls::ClientConfig>,
    number: usize,
    document: usize,
) -> Result<impl AsyncRead + Send + use<>, Error> {
    let key = HostKey::generate()?;
    let mut stream = strangers.connect(number, stranger).await?;
    send(&mut stream, &machine::request(&key)?).await?;
    let leaf = receive(&mut stream).await?;
    drop(stream);
    let tls = known.tls(Some((vec![leaf], key.private_key_der())), b"")?;
    let mut stream = known.connect(number, tls).await?;
    stream.write_u32(u32::try_from(document)?).await?;
    stream.flush().await?;
    receive(&mut stream).await?;
    Ok(stream)
}
