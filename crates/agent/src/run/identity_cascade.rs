//! SPIRE before the host's own certificate: an SVID is proven on a connection of its own before the one in use is given up, and
//! left the same way while it is still good. What is decided is in [`lifecycle::host::IdentityCascade`].

use std::sync::Arc;

use lifecycle::host::{CascadeStep, FailureKind, IdentityCascade, IdentityProvider};
use tokio::time::Instant;

use super::call::{Call, CallPanicked, CallTarget};
use super::core::AgentCore;
use super::session::{OpenResult, Opened};
use crate::chance;
use crate::failed_call::FailedCall;
use crate::spire::{Svid, Svids};
use crate::status::{AgentState, FallBack, Status};

/// Characters of a word of the control plane.
const OWN_REFUSED: usize = 32;
const EXPIRED: &str = "expired";

/// What a connection under way is for.
#[derive(Debug, Clone)]
enum Switch {
    Promote(Arc<Svid>),
    FallBack,
}

#[derive(Debug)]
pub enum CascadeEvent {
    /// SPIRE has given another SVID.
    Offered,
    /// A connection by which the identity changes was welcomed, or not.
    Ended(Result<OpenResult, CallPanicked>),
}

/// How a connection with an SVID, or back from one, ended.
pub enum CascadeEnd {
    /// It takes the place of the one before.
    Switched(Box<Opened>),
    /// What is in use stays. Whether the host's own certificate is to be tried now: nothing else is under way.
    Stayed { open_own: bool },
}

pub struct SpireIdentity {
    svids: Option<Svids>,
    cascade: IdentityCascade,
    newest: Option<Arc<Svid>>,
    in_use: Option<Arc<Svid>>,
    switch: Option<Switch>,
    call: Call<OpenResult>,
    /// There is no connection, and the one that is awaited is made with an SVID.
    opens: bool,
    /// Why the control plane refuses the host's own certificate, said on a connection with an SVID: there is nothing to fall back on.
    own_refused: Option<String>,
    /// That another certificate was asked for because of that.
    asked: bool,
}

impl SpireIdentity {
    pub fn new(svids: Option<Svids>) -> Self {
        Self {
            svids,
            cascade: IdentityCascade::default(),
            newest: None,
            in_use: None,
            switch: None,
            call: Call::default(),
            opens: false,
            own_refused: None,
            asked: false,
        }
    }

    /// What happens next; waits for ever where there is no SPIRE.
    pub async fn next(&mut self) -> CascadeEvent {
        let Self { svids, call, .. } = self;
        tokio::select! {
            () = changed(svids) => CascadeEvent::Offered,
            ended = call.ended() => CascadeEvent::Ended(ended),
        }
    }

    /// Takes the newest SVID, unless it claims to be of our own trust domain: those are issued by the control plane alone.
    pub fn take_offer(&mut self, core: &mut AgentCore) {
        let Some(svid) = self.svids.as_mut().and_then(Svids::take) else {
            return;
        };
        if svid.facts.id.domain == core.identity.spiffe.domain {
            if core.reporting.is_new("SVID of our own trust domain") {
                tracing::warn!(id = %svid.facts.id, "an SVID of the control plane's own trust domain is not used");
            }
            return;
        }
        self.cascade.offered(svid.term);
        self.newest = Some(svid);
    }

    /// Whether the next connection is made with an SVID, so that none with the host's own certificate is needed.
    pub fn takes_over(&mut self, core: &AgentCore) -> bool {
        let now = core.now();
        let takes = self.switch.is_some()
            || self.cascade.wait(now.wall, now.steady).is_some_and(|wait| wait.millis() == 0);
        self.opens = takes;
        takes
    }

    /// Begins what is due. `target` reaches the control plane with an SVID, or with the host's own certificate.
    pub fn step(
        &mut self,
        core: &AgentCore,
        target: impl Fn(Option<&Svid>) -> Option<CallTarget>,
        open: impl FnOnce(&mut Call<OpenResult>, CallTarget),
    ) {
        let now = core.now();
        let switch = match self.cascade.step(now.wall, now.steady) {
            CascadeStep::Stay => return,
            CascadeStep::Promote(term) => {
                match self.newest.clone().filter(|svid| svid.term.number == term.number) {
                    Some(svid) => Switch::Promote(svid),
                    None => return self.cascade.not_promoted(now.steady, chance::number()),
                }
            }
            CascadeStep::FallBack => Switch::FallBack,
        };
        let svid = match &switch {
            Switch::Promote(svid) => Some(svid.as_ref()),
            Switch::FallBack => None,
        };
        match target(svid) {
            Some(target) => {
                self.switch = Some(switch);
                open(&mut self.call, target);
            }
            None => self.cascade.not_promoted(now.steady, chance::number()),
        }
    }

    pub fn ended(&mut self, core: &mut AgentCore, ended: Result<OpenResult, CallPanicked>) -> CascadeEnd {
        let (now, opens) = (core.now(), std::mem::take(&mut self.opens));
        match (self.switch.take(), ended) {
            (Some(Switch::Promote(svid)), Ok(Ok(opened))) => {
                let id = svid.facts.id.to_string();
                if self.in_use.is_none() || core.reporting.is_new("SVID rotated") {
                    tracing::info!(id, serial = %svid.facts.serial, not_after = %svid.facts.not_after, "identity: spire");
                }
                self.cascade.promoted(svid.term);
                self.in_use = Some(svid);
                CascadeEnd::Switched(opened)
            }
            (Some(Switch::FallBack), Ok(Ok(opened))) => {
                tracing::info!(
                    "identity: control-plane; the SVID was about to end and SPIRE has given no other"
                );
                self.cascade.fell_back();
                self.in_use = None;
                CascadeEnd::Switched(opened)
            }
            (Some(Switch::Promote(svid)), Ok(Err(failed))) => {
                let id = svid.facts.id.to_string();
                let code = failed.code();
                if core.reporting.is_new(&format!("SVID refused {code}")) {
                    tracing::warn!(id, code = code.as_str(), "the SVID is not accepted: {}", failed.error);
                }
                match is_unanswered(&failed) {
                    true => self.cascade.promotion_unanswered(now.steady),
                    false => self.cascade.not_promoted(now.steady, chance::number()),
                }
                CascadeEnd::Stayed { open_own: opens }
            }
            (Some(Switch::FallBack), _) => {
                self.cascade.not_fallen_back(now.steady, chance::number());
                CascadeEnd::Stayed { open_own: opens }
            }
            (Some(Switch::Promote(_)) | None, _) => {
                self.cascade.not_promoted(now.steady, chance::number());
                CascadeEnd::Stayed { open_own: opens }
            }
        }
    }

    /// The connection is no more, or is one with the host's own certificate.
    pub fn not_in_use(&mut self) {
        self.cascade.lost();
        self.in_use = None;
        (self.own_refused, self.asked) = (None, false);
    }

    /// What the control plane says of the host's own certificate; nothing where it is good.
    pub fn own_certificate(&mut self, refused: &str) {
        let refused = Some(refused).filter(|word| self.in_use.is_some() && !word.is_empty());
        let refused = refused.map(|word| word.chars().take(OWN_REFUSED).collect());
        if refused != self.own_refused {
            (self.own_refused, self.asked) = (refused, false);
        }
    }

    /// Why the host's own certificate is refused, where another is to be asked for now: once for each refusal. While another is
    /// being proven, the one before may be superseded already.
    pub fn asks_for_own(&mut self, core: &AgentCore) -> Option<&str> {
        if self.asked || core.candidate.is_some() {
            return None;
        }
        self.asked = self.own_refused.is_some();
        self.own_refused.as_deref()
    }

    /// The SVID by which the host must act, because its own certificate is no use.
    pub fn instead_of_own(&self, core: &AgentCore) -> Option<&Arc<Svid>> {
        self.in_use.as_ref().filter(|_| core.is_expired() || self.own_refused.is_some())
    }

    pub fn is_switching(&self) -> bool {
        self.switch.is_some()
    }

    pub fn wake(&self, core: &AgentCore) -> Option<Instant> {
        let now = core.now();
        let wait = self.cascade.wait(now.wall, now.steady)?;
        Some(Instant::now() + std::time::Duration::from_millis(wait.millis()))
    }

    pub fn status(&self, status: &mut Status) {
        status.identity_provider = IdentityProvider::ControlPlane.to_string();
        if let Some(svid) = &self.in_use {
            let (serial, not_after) = (status.cert_serial.take(), status.cert_not_after.take());
            let ended = (status.state == AgentState::Expired).then(|| EXPIRED.to_owned());
            let refused = self.own_refused.clone().or(ended);
            status.fall_back = Some(FallBack { cert_serial: serial, cert_not_after: not_after, refused });
            status.identity_provider = IdentityProvider::Spire.to_string();
            status.spiffe_id = Some(svid.facts.id.to_string());
            status.cert_serial = Some(svid.facts.serial.to_string());
            status.cert_not_after = Some(svid.facts.not_after.to_string());
        }
    }
}

/// Whether the control plane said nothing about the SVID.
fn is_unanswered(failed: &FailedCall) -> bool {
    match failed.kind {
        FailureKind::Transient
        | FailureKind::WrongServer
        | FailureKind::Untrusted
        | FailureKind::ClockSkew
        | FailureKind::DiskFull => true,
        FailureKind::UnknownIssuer
        | FailureKind::Expired
        | FailureKind::Revoked
        | FailureKind::Unacceptable
        | FailureKind::Superseded
        | FailureKind::Refused => false,
    }
}

async fn changed(svids: &mut Option<Svids>) {
    let gone = match svids {
        Some(svids) => svids.changed().await.is_err(),
        None => true,
    };
    if gone {
        *svids = None;
        std::future::pending::<()>().await;
    }
}
