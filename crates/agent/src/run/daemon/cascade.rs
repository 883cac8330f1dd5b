//! How the identity in use changes between SPIRE and the host's own certificate.

use lifecycle::host::{FailureKind, Input};

use super::Daemon;
use crate::code::AgentCode;
use crate::fault::Fault;
use crate::run::call::CallTarget;
use crate::run::identity_cascade::{CascadeEnd, CascadeEvent};
use crate::run::session::LiveSession;

impl Daemon {
    /// Connects with the host's own certificate, or with the one that is to be proven.
    pub(super) fn open_own(&mut self) {
        let known = self.configuration.sequence();
        if let Err(error) = self.session.begin(&self.core, self.servers(), known) {
            self.core.learn(Input::Opened(Err(FailureKind::Transient.into())));
            self.core.reporting.log(AgentCode::Fault, &error.to_string());
        }
    }

    /// Begins what is due: to prove an SVID, or to leave one.
    pub(super) fn step_cascade(&mut self) {
        let (servers, known) = (self.servers(), self.configuration.sequence());
        let Self { core, spire, .. } = self;
        let correlation_id = core.machine.correlation_id();
        spire.step(
            core,
            |svid| {
                let credentials = svid.map_or_else(|| core.identity.credentials(), |svid| svid.credentials());
                CallTarget::by(servers.clone(), &core.identity, &credentials, correlation_id).ok()
            },
            |call, target| LiveSession::switch(call, core, target, known),
        );
    }

    /// Asks for another certificate by the SVID where the control plane refuses the host's own.
    pub(super) fn ask_for_own(&mut self) {
        let Some(reason) = self.spire.asks_for_own(&self.core) else { return };
        let (serial, reason) = (self.core.identity.facts.serial.to_string(), reason.to_owned());
        self.renewal_ordered = true;
        if self.core.reporting.is_new("own certificate refused") {
            tracing::warn!(
                serial,
                reason,
                "the host's own certificate is refused, so there is none to fall back on; another is asked for by the SVID"
            );
        }
    }

    pub(super) fn cascade_event(&mut self, event: CascadeEvent) -> Result<(), Fault> {
        match event {
            CascadeEvent::Offered => self.spire.take_offer(&mut self.core),
            CascadeEvent::Ended(ended) => match self.spire.ended(&mut self.core, ended) {
                CascadeEnd::Switched(opened) => self.welcomed(*opened),
                CascadeEnd::Stayed { open_own: true } => self.open_own(),
                CascadeEnd::Stayed { open_own: false } => {}
            },
        }
        Ok(())
    }
}
