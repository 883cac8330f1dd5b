//! The control plane's side of an enrollment, with the faults that a test asks for.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use api::agent::{Agent, ConfirmRequest, ConfirmResponse, ConfirmStatus, EnrollRequest, EnrollResponse};
use api::code;
use api::error::ErrorDetail;
use lifecycle::names::{NodeId, Span, SpiffeId, TenantId, Timestamp};
use pki::agent_key::HostKey;
use pki::leaf::{Issuance, sign_leaf};
use pki::{csr, describe, pem};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

use super::tls::{Domain, listen};

/// What it does instead of answering as it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Records the enrollment and keeps the answer back until the fault is lifted.
    HoldsEnroll,
    /// Certifies a key that is not the caller's.
    CertifiesAnotherKey,
    /// Has nothing to say to Confirm.
    RefusesConfirm,
}

#[derive(Default)]
pub struct Record {
    pub fault: Fault,
    /// By token: what was asked and what was answered.
    enrolled: BTreeMap<String, (String, Vec<u8>, EnrollResponse)>,
    pub enrolls: usize,
    pub confirms: Vec<(ConfirmStatus, String, String)>,
}

pub struct Plane {
    pub domain: Domain,
    pub url: String,
    record: Mutex<Record>,
    changed: Condvar,
    lifted: Notify,
    at: Timestamp,
}

impl Plane {
    /// Serves on loopback until the test ends. Every token is good for one node.
    pub fn start() -> Arc<Self> {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        let at = Timestamp::from_secs(since.as_secs());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let plane = Arc::new(Self {
            domain: Domain::found(at),
            url,
            record: Mutex::default(),
            changed: Condvar::new(),
            lifted: Notify::new(),
            at,
        });
        let serving = plane.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let tls = serving.domain.tls(at);
                listen(TcpListener::from_std(listener).unwrap(), tls, serving).await;
            });
        });
        plane
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    /// How often Enroll and Confirm were called.
    pub fn calls(&self) -> (usize, usize) {
        let record = self.record();
        (record.enrolls, record.confirms.len())
    }

    pub fn set(&self, fault: Fault) {
        self.record().fault = fault;
        self.lifted.notify_waiters();
    }

    /// Until this many Enroll calls have come in.
    pub fn wait_for_enrolls(&self, count: usize) {
        let limit = std::time::Duration::from_secs(30);
        let (_record, late) =
            self.changed.wait_timeout_while(self.record(), limit, |record| record.enrolls < count).unwrap();
        assert!(!late.timed_out(), "the agent never called");
    }

    pub fn root_pem(&self) -> String {
        pem::certificate_pem(&self.domain.made.root_der)
    }

    pub fn pin(&self) -> String {
        pki::pin::Pin::of(&self.domain.made.root_der).to_string()
    }

    /// The same answer for the same token, key and idempotency key; a refusal for any other second use.
    fn enroll(&self, idempotency: &str, request: &EnrollRequest) -> Result<EnrollResponse, ErrorDetail> {
        let spki = csr::read(request.csr.as_bytes()).unwrap().spki;
        let mut record = self.record();
        record.enrolls += 1;
        self.changed.notify_all();
        if request.token == "expired" {
            return Err(ErrorDetail::new(code::TOKEN_EXPIRED, "the token has expired", "01REQUEST"));
        }
        if let Some((key, asked, answer)) = record.enrolled.get(&request.token) {
            return if key == idempotency && *asked == spki {
                Ok(answer.clone())
            } else {
                Err(ErrorDetail::new(code::TOKEN_USED, "the token was used", "01REQUEST"))
            };
        }
        let node = NodeId::parse(&format!("n-{}", record.enrolled.len() + 1)).unwrap();
        let answer = match record.fault {
            Fault::CertifiesAnotherKey => self.certify(&node, &HostKey::generate().unwrap().spki()),
            _ => self.certify(&node, &spki),
        };
        record.enrolled.insert(request.token.clone(), (idempotency.to_owned(), spki, answer.clone()));
        Ok(answer)
    }

    fn certify(&self, node: &NodeId, spki: &[u8]) -> EnrollResponse {
        let tenant = TenantId::default_tenant();
        let subject = SpiffeId::agent(&self.domain.name, &tenant, node);
        let lifetime = Span::from_hours(1);
        let issuance = Issuance {
            subject: subject.clone(),
            common_name: None,
            serial: pki::digest::secret_hash(node.as_str().as_bytes()).as_bytes()[..16].try_into().unwrap(),
            signing_time: self.at,
            lifetime,
        };
        let signed = sign_leaf(&self.domain.issuer, spki, &issuance).unwrap();
        EnrollResponse {
            node_id: node.to_string(),
            tenant: tenant.to_string(),
            spiffe_id: subject.to_string(),
            certificate: pem::certificate_pem(&signed.der),
            chain: pem::certificate_pem(&self.domain.made.intermediate_der),
            bundle: self.root_pem(),
            cert_serial: signed.serial.to_string(),
            not_after: signed.not_after.to_string(),
            renew_at: self.at.plus(Span::from_minutes(40)).to_string(),
            domain: self.domain.name.to_string(),
            profile: "default".to_owned(),
            servers: vec![self.url.clone(), "https://second.example:8443".to_owned()],
        }
    }
}

/// One connection to the plane.
pub struct Door {
    pub plane: Arc<Plane>,
    pub peer: Option<CertificateDer<'static>>,
}

#[tonic::async_trait]
impl Agent for Door {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        let idempotency = request.metadata().get("idempotency-key").unwrap().to_str().unwrap().to_owned();
        let answer = self.plane.enroll(&idempotency, request.get_ref())?;
        loop {
            let lifted = self.plane.lifted.notified();
            if self.plane.record().fault != Fault::HoldsEnroll {
                return Ok(Response::new(answer));
            }
            lifted.await;
        }
    }

    async fn confirm(&self, request: Request<ConfirmRequest>) -> Result<Response<ConfirmResponse>, Status> {
        let peer = self.peer.as_ref().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        let spiffe = describe::facts(peer).unwrap().spiffe.unwrap().to_string();
        let mut record = self.plane.record();
        if record.fault == Fault::RefusesConfirm {
            return Err(Status::unavailable("not now"));
        }
        let request = request.into_inner();
        record.confirms.push((request.status(), request.reason, spiffe));
        Ok(Response::new(ConfirmResponse { node_id: String::new(), state: "active".to_owned() }))
    }
}
