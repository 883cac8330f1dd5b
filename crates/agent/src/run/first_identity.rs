//! A host without an identity of its own, beside SPIRE or with a bootstrap identity: it reads what that may read, and asks for its
//! own by every way it has. An SVID is one of them: the node that it stands for gets a certificate of the domain, by which it lives
//! on when SPIRE is gone. Until it has one, it never gives up.

use std::sync::Arc;
use std::time::Duration;

use api::agent::RenewRequest;
use api::code;
use client::{AgentApi, ServerUrl, Trust};
use lifecycle::host::{Backoff, FailureKind, IdentityProvider, Notices};
use lifecycle::names::Span;
use pki::agent_key::HostKey;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::socket;
use super::waiting;
use crate::bootstrap::{self, BootstrapIdentity};
use crate::cli::Contact;
use crate::code::AgentCode;
use crate::config::{AgentConfig, TrustChoice};
use crate::enroll::answer::take_trust;
use crate::enroll::persist;
use crate::enroll::plan::{EnrollPlan, KeptSettings, recognised};
use crate::enroll::rpc::fault;
use crate::enroll::{obtain, options};
use crate::failed_call::failure_kind;
use crate::fault::{Exit, Fault};
use crate::issued::{IssuedAnswer, check_tenant};
use crate::spire::{Svid, SvidNews, Svids};
use crate::status::{AgentState, ENROLLMENT_PENDING, Status, WaitingFor};
use crate::store::dir::Dir;
use crate::store::host_config::{self, HostConfig};
use crate::store::identity::{self, HostIdentity};
use crate::trust_offer::TrustOffer;
use crate::{chance, clock};

/// Between two rounds; a new SVID begins one at once.
const CAP: Span = Span::from_secs(30);
const NO_WAY: &str = "this host has a bootstrap identity, and neither a token nor hardware or SPIRE to obtain one of its own with";
const NO_WAY_REMEDY: &str = "give it a token (`token_file` in agent.toml or ENLIST_AGENT_TOKEN), set attestor = \"hardware\" or [spire] socket in agent.toml, and start the agent again";
const SPIRE_CA: &str = "have an operator put SPIRE's trust bundle (`spire-server bundle show`) into the file that `bundle` in [[spire]] of enlist.toml names, on every replica; `enlist ca show` lists the CAs that are accepted";

/// Until there is an identity, or what was given to obtain one is refused and there is no other way. `plan` is how it enrolls, if it
/// has what that takes.
pub async fn obtain_first(
    dir: &Dir,
    contact: &Contact,
    config: &AgentConfig,
    servers: &[ServerUrl],
    mut plan: Option<EnrollPlan>,
    mut svids: Option<Svids>,
) -> Result<HostIdentity, Fault> {
    let (choice, trust) = recognised(config, servers)?;
    let call = options(contact, None)?;
    let mut wait = FirstWait::new(dir);
    let mut shared =
        config.bootstrap_dir.as_deref().and_then(|path| match bootstrap::load(path, clock::now()) {
            Ok(found) => Some(found),
            Err(reason) => {
                tracing::warn!(dir = %path.display(), "the bootstrap identity cannot be used: {reason}");
                wait.needs(AgentCode::BootstrapUnusable, format!("{}: {reason}", path.display()));
                None
            }
        });
    if plan.is_none() && svids.is_none() && shared.is_some() {
        wait.needs(AgentCode::NotEnrolled, NO_WAY.to_owned());
    }
    let mut backoff = Backoff::new(CAP);
    let mut is_read = false;
    // The number of an SVID that policy gives no certificate to: it is not asked with again.
    let mut not_allowed = None;
    wait.show(shared.as_ref());
    loop {
        if let Some(shared) = shared.as_ref().filter(|_| !is_read) {
            is_read = read_config(dir, servers, &trust, shared, &call.correlation_id, &mut wait).await;
        }
        if let Some(way) = &plan {
            match obtain(dir, way, &call).await {
                Ok((identity, _)) => {
                    tracing::info!(node_id = identity.node_id(), "enrolled");
                    return Ok(promoted(identity, shared.take()));
                }
                Err(fault) => {
                    wait.tell("not enrolled yet", &fault);
                    let is_final = fault.exit == Exit::Refused && !waiting::is_passing(&fault);
                    if is_final && way.credential.token().is_some() {
                        // A spent token leads nowhere any more; SPIRE may.
                        if svids.is_none() {
                            return Err(fault);
                        }
                        plan = None;
                    }
                }
            }
        }
        let is_asking = plan.is_some();
        let newest = svids.as_mut().and_then(Svids::take);
        let at = clock::now();
        let newest = newest.filter(|svid| svid.term.is_usable(at));
        let has_svid = newest.is_some();
        if let Some(svid) = newest.filter(|svid| not_allowed != Some(svid.term.number)) {
            let kept = Kept { choice: &choice, config };
            wait.forget(AgentCode::SvidMissing);
            match by_svid(dir, &kept, servers, &trust, &svid, &call.correlation_id).await {
                Ok(identity) => {
                    tracing::info!(
                        node_id = identity.node_id(),
                        id = %svid.facts.id,
                        "certificate issued to the node of an SVID"
                    );
                    return Ok(promoted(identity, shared.take()));
                }
                Err(fault) => {
                    let is_refused = fault.code.is(code::SVID_RENEWAL_OFF);
                    not_allowed = is_refused.then_some(svid.term.number);
                    wait.tell("the SVID leads to no certificate yet", &fault);
                }
            }
        }
        let pause = backoff.next(chance::number(), None);
        let pause = tokio::time::sleep(Duration::from_millis(pause.millis()));
        tokio::pin!(pause);
        loop {
            if let Some(svids) = svids.as_mut().filter(|_| !has_svid && !is_asking) {
                wait.needs(AgentCode::SvidMissing, svids.trouble());
            }
            wait.show(shared.as_ref());
            tokio::select! {
                () = &mut pause => break,
                news = offered(&mut svids) => match news {
                    SvidNews::Svid => break,
                    SvidNews::Trouble => {}
                },
            }
        }
    }
}

/// The bootstrap identity goes with the first that is the host's own.
fn promoted(identity: HostIdentity, shared: Option<BootstrapIdentity>) -> HostIdentity {
    if let Some(shared) = shared {
        tracing::info!(serial = %shared.facts.serial, "the bootstrap identity is discarded");
    }
    identity
}

async fn offered(svids: &mut Option<Svids>) -> SvidNews {
    let news = match svids {
        Some(svids) => svids.news().await.ok(),
        None => None,
    };
    match news {
        Some(news) => news,
        None => {
            *svids = None;
            std::future::pending().await
        }
    }
}

/// What the bootstrap identity may read, for whoever acts on it before this host has its own. Whether it was answered.
async fn read_config(
    dir: &Dir,
    servers: &[ServerUrl],
    trust: &Trust,
    shared: &BootstrapIdentity,
    correlation_id: &str,
    wait: &mut FirstWait<'_>,
) -> bool {
    let read = async {
        let api = AgentApi::new(servers.to_vec(), trust, Some(&shared.credentials))?;
        api.boot_config("", correlation_id).await
    };
    match read.await {
        Ok(reply) => {
            let config = HostConfig::of(&reply.message, "", clock::now().to_string());
            let kept = config
                .map_err(|reason| reason.to_string())
                .and_then(|config| host_config::keep(dir.path(), &config).map_err(|error| error.to_string()));
            match kept {
                Ok(()) => tracing::info!(
                    serial = %shared.facts.serial,
                    version = reply.message.base_version,
                    "authenticated with the bootstrap identity; default configuration read"
                ),
                Err(reason) => tracing::warn!("the default configuration is not kept: {reason}"),
            }
            true
        }
        Err(error) => {
            let refused = fault(error);
            // What policy does not allow is not asked for again.
            let is_final = refused.exit == Exit::Refused && !refused.retryable;
            wait.tell("the default configuration was not read", &refused);
            is_final
        }
    }
}

/// What is kept beside the identity.
struct Kept<'a> {
    choice: &'a TrustChoice,
    config: &'a AgentConfig,
}

impl Kept<'_> {
    fn settings(&self) -> KeptSettings<'_> {
        let AgentConfig { files, storage, underlay_given, tenant, .. } = self.config;
        KeptSettings {
            files,
            storage: *storage,
            choice: self.choice,
            underlay_given: underlay_given.as_ref(),
            tenant: tenant.as_ref(),
        }
    }
}

/// A certificate of the domain for the node that an SVID stands for. The key is made here and is not the SVID's.
async fn by_svid(
    dir: &Dir,
    kept: &Kept<'_>,
    servers: &[ServerUrl],
    trust: &Trust,
    svid: &Arc<Svid>,
    correlation_id: &str,
) -> Result<HostIdentity, Fault> {
    let broken = |error: &dyn std::fmt::Display| {
        Fault::host(AgentCode::Fault, error.to_string(), "see the message; the agent tries again")
    };
    let key = HostKey::generate().map_err(|error| broken(&error))?;
    let lists = identity::stored_lists(dir.path());
    let trust = trust.clone().denying(lists.denied());
    let api = AgentApi::new(servers.to_vec(), &trust, Some(&svid.credentials())).map_err(fault)?;
    let refused = |error: client::Error| match failure_kind(&error) {
        FailureKind::UnknownIssuer => {
            let id = &svid.facts.id;
            let what = format!("the control plane does not accept the CA of SPIRE that issued {id}");
            Fault { hint: SPIRE_CA.into(), message: what, ..fault(error) }
        }
        _ => fault(error),
    };
    let request = RenewRequest {
        csr: key.csr_pem().map_err(|error| broken(&error))?,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RenewRequest::default()
    };
    let answer = api.renew(request, correlation_id, None).await.map_err(refused)?.message;
    let at = clock::now();
    let mut identity = IssuedAnswer::from(&answer).check(Arc::new(key), at)?;
    take_trust(&mut identity, TrustOffer::from(&answer), &trust, lists, at)?;
    check_tenant(&identity, kept.config.tenant.as_ref())?;
    let servers = persist::merged(servers, &answer.servers);
    persist::keep(dir.path(), &identity, None, &servers, kept.settings()).map_err(|error| {
        let what = format!("the new identity could not be written: {error}");
        Fault::host(AgentCode::NotPersisted, what, "see that this user may write there")
    })?;
    Ok(identity)
}

/// What `status` and the log say meanwhile.
struct FirstWait<'a> {
    dir: &'a Dir,
    notices: Notices,
    waiting: Option<WaitingFor>,
    served: Option<(watch::Sender<Status>, AbortHandle)>,
}

impl<'a> FirstWait<'a> {
    fn new(dir: &'a Dir) -> Self {
        Self { dir, notices: Notices::default(), waiting: None, served: None }
    }

    fn tell(&mut self, what: &str, fault: &Fault) {
        if let Some(count) = self.notices.note(fault.code.as_str(), clock::now()) {
            tracing::warn!(code = %fault.code, count, "{what}: {}; remedy: {}", fault.message, fault.hint);
        }
        let (code, message) = (fault.code.as_str().to_owned(), fault.message.clone());
        self.waiting = Some(WaitingFor { code, message, remedy: fault.hint.to_string() });
    }

    /// What is missing on this host, or behind its socket.
    fn needs(&mut self, code: AgentCode, message: String) {
        let remedy = match code {
            AgentCode::NotEnrolled => NO_WAY_REMEDY,
            code => code.remedy(),
        };
        let (code, remedy) = (code.word().to_owned(), remedy.to_owned());
        self.waiting = Some(WaitingFor { code, message, remedy });
    }

    /// It is there.
    fn forget(&mut self, code: AgentCode) {
        self.waiting.take_if(|waiting| waiting.code == code.word());
    }

    fn show(&mut self, shared: Option<&BootstrapIdentity>) {
        let mut status = Status::without(self.dir.path(), AgentState::Pending, ENROLLMENT_PENDING);
        status.is_kept_by(self.dir);
        status.identity_provider = match shared {
            Some(_) => IdentityProvider::Bootstrap,
            None => IdentityProvider::None,
        }
        .to_string();
        if let Some(shared) = shared {
            status.spiffe_id = shared.facts.spiffe.as_ref().map(ToString::to_string);
            status.cert_serial = Some(shared.facts.serial.to_string());
            status.cert_not_after = Some(shared.facts.not_after.to_string());
        }
        status.show_config(host_config::load(self.dir.path(), "").as_ref(), true);
        status.waiting = self.waiting.clone();
        match &self.served {
            Some((sender, _)) => {
                sender.send_replace(status);
            }
            None => {
                let (sender, reader) = watch::channel(status);
                match socket::serve(self.dir.socket(), reader, None) {
                    Ok(serving) => self.served = Some((sender, serving)),
                    Err(error) => tracing::debug!(%error, "`status` shows only what is on disk"),
                }
            }
        }
    }
}

/// The daemon serves the socket itself.
impl Drop for FirstWait<'_> {
    fn drop(&mut self) {
        if let Some((_, serving)) = &self.served {
            serving.abort();
            _ = std::fs::remove_file(self.dir.socket());
        }
    }
}
