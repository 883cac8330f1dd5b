//! A daemon that has no identity yet: what it says while it asks for one, in the log, in the diagnostics and to `status`.

use client::ServerUrl;
use lifecycle::host::{Class, Notices, recovery};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::socket;
use crate::clock;
use crate::code::AgentCode;
use crate::config::Upkeep;
use crate::diagnostics::{Record, Ring};
use crate::failed_call::refusal_kind;
use crate::fault::{Exit, Fault};
use crate::fault_code::FaultCode;
use crate::status::{AgentState, ENROLLMENT_PENDING, Status, WaitingFor};
use crate::store::dir::Dir;

/// Whether the same request may succeed later without anybody doing anything about it.
pub fn is_passing(fault: &Fault) -> bool {
    fault.exit == Exit::Unreachable || fault.retryable || fault.code.agent() == Some(AgentCode::ClockSkew)
}

/// The class of a failed enrollment, where it has one.
pub fn class(fault: &Fault) -> Option<Class> {
    match &fault.code {
        FaultCode::Agent(code) => code.class(),
        code @ (FaultCode::ControlPlane(_) | FaultCode::Unknown(_)) => {
            Some(recovery::classify(refusal_kind(code, fault.retryable)))
        }
    }
}

/// From the first failure until the host is let in.
pub struct EnrollmentWait<'a> {
    dir: &'a Dir,
    ring: Ring,
    notices: Notices,
    correlation_id: String,
    /// Once there is something to say.
    served: Option<(watch::Sender<Status>, AbortHandle)>,
}

impl<'a> EnrollmentWait<'a> {
    pub fn new(dir: &'a Dir, upkeep: &Upkeep, correlation_id: &str) -> Self {
        Self {
            dir,
            ring: Ring::open(&upkeep.diagnostic_path, upkeep.diagnostic_bytes),
            notices: Notices::default(),
            correlation_id: correlation_id.to_owned(),
            served: None,
        }
    }

    pub fn tell(&mut self, fault: &Fault, class: Option<Class>, servers: &[ServerUrl]) {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let what = format!("not enrolled yet: {} (tried {})", fault.message, servers.join(", "));
        if let Some(count) = self.notices.note(fault.code.as_str(), clock::now()) {
            match class {
                Some(class) if class.as_str() != fault.code.as_str() => {
                    tracing::warn!(class = class.as_str(), code = %fault.code, count, "{what}; remedy: {}", fault.hint);
                }
                Some(_) | None => {
                    tracing::warn!(code = %fault.code, count, "{what}; remedy: {}", fault.hint);
                }
            }
        }
        if let Some(class) = class {
            let record = Record::new(clock::now(), class, &self.correlation_id, &what, "asks again");
            // That a record cannot be written ends nothing: the log says the same.
            if let Err(error) = self.ring.write(&record.with_remedy(&fault.hint)) {
                tracing::debug!(?error, "no diagnostic record");
            }
        }
        let (code, message) = (fault.code.as_str().to_owned(), fault.message.clone());
        self.show(class, WaitingFor { code, message, remedy: fault.hint.to_string() });
    }

    fn show(&mut self, class: Option<Class>, waiting: WaitingFor) {
        let mut status = Status::without(self.dir.path(), AgentState::Pending, ENROLLMENT_PENDING);
        status.is_kept_by(self.dir);
        status.reason(class.map_or("", Class::as_str), class.is_some());
        status.waiting = Some(waiting);
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
impl Drop for EnrollmentWait<'_> {
    fn drop(&mut self) {
        if let Some((_, serving)) = &self.served {
            serving.abort();
            _ = std::fs::remove_file(self.dir.socket());
        }
    }
}
