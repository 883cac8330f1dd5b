//! One simulated machine: what it is known by, and its life.

use crate::arguments::Api;
use crate::fleet::Shared;
use crate::framing::Error;
use crate::transport::{Messages, Up};
use crate::{native, pact};
use hyper::client::conn::http2::SendRequest;
use lifecycle::host::Backoff;
use lifecycle::names::Span;
use pki::agent_key::HostKey;
use rustls::ClientConfig;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::Duration;

/// The longest pause of a host that finds nobody, as `enlist-agent` has it.
const LONGEST_PAUSE: Span = Span::from_minutes(1);

pub fn node_id(number: usize) -> String {
    format!("machine-{number:06}")
}

pub fn mac(number: usize) -> String {
    let [_, _, _, _, _, a, b, c] = (number as u64).to_be_bytes();
    format!("0c:42:a1:{a:02x}:{b:02x}:{c:02x}")
}

/// Of every attempt of a machine to enroll: they are one enrollment, whichever answer it reads.
pub fn idempotency_key(number: usize) -> String {
    format!("boot-{number}")
}

pub fn serial(number: usize) -> String {
    format!("BMC{number:08}")
}

/// A request for a key, in DER.
pub fn request(key: &HostKey) -> Result<Vec<u8>, Error> {
    let pem = key.csr_pem()?;
    Ok(CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())?.to_vec())
}

/// A machine that was let in.
pub struct Identity {
    pub node: String,
    pub tls: Arc<ClientConfig>,
}

/// A stream that is open, and what keeps its connection.
pub struct Opened {
    pub down: Messages,
    /// While it is held, so is the connection.
    pub _sender: SendRequest<Up>,
    /// The change up to which it has the configuration.
    pub received: u64,
}

/// Boots, and stays on a stream for as long as the run lasts; comes back when it is lost.
pub async fn live(shared: Arc<Shared>, number: usize) {
    let mut backoff = Backoff::new(LONGEST_PAUSE);
    let mut key = None;
    let identity = loop {
        match enrolled(&shared, number, &mut key).await {
            Ok(identity) => break identity,
            Err(error) => shared.tally.failed("Enroll", &*error),
        }
        pause(&mut backoff).await;
    };
    let mut received = 0;
    loop {
        shared.tally.attempted();
        match opened(&shared, number, &identity, received).await {
            Ok(opened) => {
                backoff.reset();
                let _up = shared.up();
                received = followed(&shared, number, opened).await;
            }
            Err(error) => shared.tally.failed("stream", &*error),
        }
        pause(&mut backoff).await;
    }
}

/// With the key of the first attempt, as hosts do: an answer that was lost is for no other, and the machine's place is taken by it.
async fn enrolled(shared: &Shared, number: usize, key: &mut Option<HostKey>) -> Result<Identity, Error> {
    let key = match key {
        Some(key) => key,
        None => key.insert(HostKey::generate()?),
    };
    match shared.api {
        Api::Pact => pact::enroll(&shared.dialer, &shared.stranger, number, key).await,
        Api::Native => native::enroll(&shared.dialer, &shared.stranger, number, key).await,
    }
}

async fn opened(shared: &Shared, number: usize, identity: &Identity, received: u64) -> Result<Opened, Error> {
    match shared.api {
        Api::Pact => pact::open(shared, number, identity, received).await,
        Api::Native => native::open(shared, number, identity, received).await,
    }
}

/// Reads until the stream ends. The last change that came.
async fn followed(shared: &Shared, number: usize, mut opened: Opened) -> u64 {
    let mut received = opened.received;
    loop {
        let change = match shared.api {
            Api::Pact => pact::change(&mut opened.down).await,
            Api::Native => native::change(&mut opened.down).await,
        };
        match change {
            Ok(Some((sequence, document))) => {
                received = sequence;
                shared.has(number, &document);
            }
            Ok(None) | Err(_) => return received,
        }
    }
}

async fn pause(backoff: &mut Backoff) {
    let mut chance = [0; 4];
    let _ = rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty());
    let pause = backoff.next(u32::from_ne_bytes(chance), None);
    tokio::time::sleep(Duration::from_millis(pause.millis())).await;
}
