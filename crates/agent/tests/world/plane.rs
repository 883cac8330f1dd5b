//! The control plane's side of an enrollment, with the faults that a test asks for.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use api::agent::{
    Agent, BootConfigRequest, CheckRequest, Config, ConfirmRequest, ConfirmResponse, ConfirmStatus,
    EnrollRequest, EnrollResponse, HardwareIdentity, LiveUp, NotNeeded, RecoverRequest, RecoverResponse,
    RecoveryGrant, RecoveryProfile, RenewRequest, RenewResponse, Standing,
};
use api::code;
use api::error::ErrorDetail;
use lifecycle::names::{IssuerUse, NodeId, Span, SpiffeId, TenantId, Timestamp};
use pki::agent_key::HostKey;
use pki::hierarchy::sign_intermediate;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use pki::{csr, describe, pem};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tonic::{Request, Response, Status, Streaming};

use super::live::{self, Down, Lives};
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
    /// Records the renewal and keeps the answer back until the fault is lifted.
    HoldsRenew,
    /// Welcomes nobody who has renewed.
    AwayForRenewed,
    /// Refuses renewed certificates for good.
    RefusesRenewed,
    /// Refuses streams of renewed certificates, for no fault of theirs.
    CrowdedForRenewed,
    /// Has seen another certificate than the first.
    Superseded,
    /// Renews with a bundle that nobody trusted has signed.
    ForeignBundle,
    /// Takes every node for revoked.
    Revoked,
    /// Records the recovery and keeps the answer back until the fault is lifted.
    HoldsRecover,
    /// Finds no node in need of recovery.
    NotNeeded,
    /// Takes every machine for one that is there already.
    AlreadyActive,
    /// Knows no machine.
    NotRegistered,
}

#[derive(Default)]
pub struct Record {
    pub fault: Fault,
    /// By token: what was asked and what was answered.
    enrolled: BTreeMap<String, (String, Vec<u8>, EnrollResponse)>,
    pub enrolls: usize,
    /// What the machines were said to be, where it was said, with the key.
    pub machines: Vec<(HardwareIdentity, Vec<u8>)>,
    pub confirms: Vec<(ConfirmStatus, String, String)>,
    /// The keys that certificates were asked for.
    pub renews: Vec<Vec<u8>>,
    /// Until the point of renewal, for enrollments from now on.
    pub renew_after: Option<Span>,
    pub lifetime: Option<Span>,
    /// What was asked for by recovery: node, key, and the undertaking.
    pub recoveries: Vec<(String, Vec<u8>, String)>,
    /// How many recovery tokens were given; only the last is good.
    pub granted: usize,
    /// The undertakings of confirms and of standing connections.
    pub undertakings: Vec<String>,
    pub lives: Lives,
}

impl Record {
    /// The next enrollment is a first one.
    pub fn forget_enrollments(&mut self) {
        self.enrolled.clear();
    }
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

    /// Until this holds of the record.
    pub fn wait(&self, what: &str, holds: impl Fn(&Record) -> bool) {
        let limit = std::time::Duration::from_secs(60);
        let waited = self.changed.wait_timeout_while(self.record(), limit, |record| !holds(record)).unwrap();
        assert!(!waited.1.timed_out(), "never happened: {what}; {:?}", waited.0.lives);
    }

    /// Changes the record, and wakes whoever waits for that.
    pub fn change(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record());
        self.changed.notify_all();
    }

    pub fn root_pem(&self) -> String {
        pem::certificate_pem(&self.domain.made.root_der)
    }

    /// A CA that the root has signed.
    pub fn another_ca_pem(&self) -> String {
        let key = pem::private_key(self.domain.made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&self.domain.made.root_der, key.secret_der()).unwrap();
        let spki = HostKey::generate().unwrap().spki();
        let signed =
            sign_intermediate(&root, &spki, IssuerUse::Node, [9; 16], self.at, Span::from_days(1)).unwrap();
        pem::certificate_pem(&signed.der)
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
        if let Some(machine) = &request.hardware_identity {
            record.machines.push((machine.clone(), spki.clone()));
        }
        match record.fault {
            Fault::AlreadyActive => {
                return Err(ErrorDetail::new(code::ALREADY_ACTIVE, "the node is active", "01REQUEST"));
            }
            Fault::NotRegistered => {
                return Err(ErrorDetail::new(code::NODE_NOT_ENROLLED, "not registered", "01REQUEST"));
            }
            Fault::Revoked => return Err(ErrorDetail::new(code::NODE_REVOKED, "revoked", "01REQUEST")),
            _ => {}
        }
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
        let asked = match record.fault {
            Fault::CertifiesAnotherKey => HostKey::generate().unwrap().spki(),
            _ => spki.clone(),
        };
        let lifetime = record.lifetime.unwrap_or(Span::from_hours(1));
        let renew_after = record.renew_after.unwrap_or(Span::from_minutes(40));
        let answer = self.certify(&node, &asked, lifetime, renew_after);
        record.enrolled.insert(request.token.clone(), (idempotency.to_owned(), spki, answer.clone()));
        Ok(answer)
    }

    /// Another recovery token, and where to turn with it.
    pub fn grant(&self, record: &mut Record) -> RecoveryGrant {
        record.granted += 1;
        RecoveryGrant {
            ineligible: false,
            token_id: format!("t-{}", record.granted),
            token: format!("recovery-{}", record.granted),
            expires_at: self.at.plus(Span::from_days(90)).to_string(),
            profile: Some(RecoveryProfile {
                id: "p-1".to_owned(),
                url: self.url.clone(),
                ca: self.root_pem(),
            }),
        }
    }

    fn certify(&self, node: &NodeId, spki: &[u8], lifetime: Span, renew_after: Span) -> EnrollResponse {
        let tenant = TenantId::default_tenant();
        let subject = SpiffeId::agent(&self.domain.name, &tenant, node);
        let issuance = Issuance {
            subject: subject.clone(),
            common_name: None,
            serial: pki::digest::secret_hash(spki).as_bytes()[..16].try_into().unwrap(),
            signing_time: self.at,
            lifetime,
        };
        let signed = sign_leaf(&self.domain.issuer, spki, &issuance).unwrap();
        EnrollResponse {
            vcluster: String::new(),
            node_id: node.to_string(),
            tenant: tenant.to_string(),
            spiffe_id: subject.to_string(),
            certificate: pem::certificate_pem(&signed.der),
            chain: pem::certificate_pem(&self.domain.made.node.der),
            bundle: self.root_pem(),
            cert_serial: signed.serial.to_string(),
            not_after: signed.not_after.to_string(),
            renew_at: self.at.plus(renew_after).to_string(),
            domain: self.domain.name.to_string(),
            profile: "default".to_owned(),
            servers: vec![self.url.clone(), "https://second.example:8443".to_owned()],
            bundle_version: 1,
            ..EnrollResponse::default()
        }
    }
}

fn undertaking<T>(request: &Request<T>) -> String {
    request.metadata().get("x-correlation-id").unwrap().to_str().unwrap().to_owned()
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
        record.undertakings.push(undertaking(&request));
        let request = request.into_inner();
        record.confirms.push((request.status(), request.reason, spiffe));
        let recovery = request.recovery_wanted.then(|| self.plane.grant(&mut record));
        Ok(Response::new(ConfirmResponse { state: "active".to_owned(), recovery, ..Default::default() }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        let peer = self.peer.as_ref().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        let spki = csr::read(request.get_ref().csr.as_bytes()).unwrap().spki;
        let spiffe = describe::facts(peer).unwrap().spiffe.unwrap().to_string();
        let node = NodeId::parse(spiffe.rsplit('/').next().unwrap()).unwrap();
        self.plane.change(|record| record.renews.push(spki.clone()));
        loop {
            let lifted = self.plane.lifted.notified();
            match self.plane.record().fault {
                Fault::HoldsRenew => {}
                Fault::Revoked => return Err(live::revoked()),
                Fault::Superseded => return Err(live::superseded()),
                _ => break,
            }
            lifted.await;
        }
        // The serial is made from the key, so the same key gets the same certificate.
        let mut answer = self.plane.certify(&node, &spki, Span::from_hours(1), Span::from_minutes(40));
        if self.plane.record().fault == Fault::ForeignBundle {
            let foreign = Domain::found(self.plane.at).made.root_der;
            (answer.bundle, answer.bundle_version) = (pem::certificate_pem(&foreign), 9);
        }
        Ok(Response::new(RenewResponse {
            certificate: answer.certificate,
            chain: answer.chain,
            bundle: answer.bundle,
            bundle_version: answer.bundle_version,
            cert_serial: answer.cert_serial,
            not_after: answer.not_after,
            renew_at: answer.renew_at,
            profile: answer.profile,
            servers: vec![self.plane.url.clone()],
            recovery: None,
            ..RenewResponse::default()
        }))
    }

    /// The serial is made from the key here, too: the same token and key get the same certificate.
    async fn recover(&self, request: Request<RecoverRequest>) -> Result<Response<RecoverResponse>, Status> {
        assert!(self.peer.is_none(), "the lost certificate is not shown");
        let (id, request) = (undertaking(&request), request.into_inner());
        let spki = csr::read(request.csr.as_bytes()).unwrap().spki;
        self.plane.change(|record| record.recoveries.push((request.node_id.clone(), spki.clone(), id)));
        let refused = |code, what: &str| Status::from(ErrorDetail::new(code, what, "01REQUEST"));
        loop {
            let lifted = self.plane.lifted.notified();
            match self.plane.record().fault {
                Fault::HoldsRecover => {}
                Fault::Revoked => return Err(live::revoked()),
                Fault::NotNeeded => {
                    let cure = NotNeeded {
                        bundle: self.plane.root_pem(),
                        bundle_version: 7,
                        ..NotNeeded::default()
                    };
                    return Err(cure.attached(refused(code::RECOVERY_NOT_NEEDED, "the node is well")));
                }
                _ => break,
            }
            lifted.await;
        }
        if request.token != format!("recovery-{}", self.plane.record().granted) {
            return Err(refused(code::TOKEN_INVALID, "not one of ours"));
        }
        let node = NodeId::parse("n-1").unwrap();
        let answer = self.plane.certify(&node, &spki, Span::from_hours(1), Span::from_minutes(40));
        Ok(Response::new(RecoverResponse {
            node_id: answer.node_id,
            tenant: answer.tenant,
            spiffe_id: answer.spiffe_id,
            domain: answer.domain,
            certificate: answer.certificate,
            chain: answer.chain,
            bundle: answer.bundle,
            bundle_version: answer.bundle_version,
            cert_serial: answer.cert_serial,
            not_after: answer.not_after,
            renew_at: answer.renew_at,
            profile: answer.profile,
            servers: vec![self.plane.url.clone()],
            ..RecoverResponse::default()
        }))
    }

    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<Standing>, Status> {
        self.peer.as_ref().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        match self.plane.record().fault {
            Fault::Revoked => Err(live::revoked()),
            Fault::Superseded => Err(live::superseded()),
            _ => Ok(Response::new(Standing { state: "active".to_owned(), ..Standing::default() })),
        }
    }

    async fn boot_config(&self, _: Request<BootConfigRequest>) -> Result<Response<Config>, Status> {
        Err(Status::permission_denied("this control plane has no bootstrap identities"))
    }

    type LiveStream = Down;

    async fn live(&self, request: Request<Streaming<LiveUp>>) -> Result<Response<Down>, Status> {
        let peer = self.peer.as_ref().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        let facts = describe::facts(peer).unwrap();
        self.plane.record().undertakings.push(undertaking(&request));
        let (fault, renewed) = {
            let record = self.plane.record();
            (record.fault, record.renews.contains(&facts.spki))
        };
        match fault {
            Fault::Revoked => return Err(live::revoked()),
            Fault::AwayForRenewed if renewed => return Err(Status::unavailable("not now")),
            Fault::RefusesRenewed if renewed => {
                return Err(ErrorDetail::new(code::UNAUTHENTICATED, "not that one", "01REQUEST").into());
            }
            Fault::CrowdedForRenewed if renewed => {
                return Err(ErrorDetail::new(code::TOO_MANY_STREAMS, "one too many", "01REQUEST").into());
            }
            Fault::Superseded if !renewed => return Err(live::superseded()),
            _ => {}
        }
        Ok(Response::new(live::serve(self.plane.clone(), facts.serial.to_string(), request.into_inner())))
    }
}
