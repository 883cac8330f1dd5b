//! Why there is no overlay on this host.

use std::io;

use rustix::io::Errno;

/// In stable words, for `status`, evidence and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableReason {
    NoTunDevice,
    NoPermission,
    InterfaceInUse,
    PortInUse,
    NoKernelSupport,
    Failed,
    /// Nothing is wrong: the control plane has not answered yet, or the interface is just being made. For people alone; it is not
    /// reported.
    Waiting,
}

impl UnavailableReason {
    pub const ALL: [Self; 7] = [
        Self::NoTunDevice,
        Self::NoPermission,
        Self::InterfaceInUse,
        Self::PortInUse,
        Self::NoKernelSupport,
        Self::Failed,
        Self::Waiting,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoTunDevice => "no_tun_device",
            Self::NoPermission => "no_permission",
            Self::InterfaceInUse => "interface_in_use",
            Self::PortInUse => "port_in_use",
            Self::NoKernelSupport => "no_kernel_support",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
        }
    }

    /// The reason that goes by this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoTunDevice => {
                "load the module `tun` and let the agent see /dev/net/tun, as the drop-in docs/deploy/enlist-agent-overlay.conf does, or set overlay.backend to \"kernel\""
            }
            Self::NoPermission => {
                "give the agent CAP_NET_ADMIN, as the drop-in docs/deploy/enlist-agent-overlay.conf does, and let its user open /dev/net/tun"
            }
            Self::InterfaceInUse => "remove the interface of that name, or set overlay.interface to another",
            Self::PortInUse => {
                "see who has the port with `ss -ulpn`, and end it, or set overlay.port to another"
            }
            Self::NoKernelSupport => {
                "load the module `wireguard`, or set overlay.backend to \"auto\" or \"userspace\""
            }
            Self::Failed => "see the detail, and the agent's log",
            Self::Waiting => "wait; if it lasts, see whether the agent is connected: `enlist-agent status`",
        }
    }
}

/// There is no overlay for now. It is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub reason: UnavailableReason,
    /// What shows it, in a sentence.
    pub detail: String,
    /// What helps, where that is not the same for all of the reason.
    specific: Option<&'static str>,
}

impl Unavailable {
    pub fn new(reason: UnavailableReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), specific: None }
    }

    pub fn failed(detail: impl Into<String>) -> Self {
        Self::new(UnavailableReason::Failed, detail)
    }

    pub fn waiting(detail: impl Into<String>) -> Self {
        Self::new(UnavailableReason::Waiting, detail)
    }

    /// With what helps in this case.
    pub fn with(self, remedy: &'static str) -> Self {
        Self { specific: Some(remedy), ..self }
    }

    pub fn remedy(&self) -> &'static str {
        self.specific.unwrap_or_else(|| self.reason.remedy())
    }

    /// What was tried, and the system's answer to it.
    pub fn of_io(what: &str, error: &io::Error) -> Self {
        let reason = match Errno::from_io_error(error) {
            Some(Errno::PERM | Errno::ACCESS) => UnavailableReason::NoPermission,
            Some(Errno::ADDRINUSE) => UnavailableReason::PortInUse,
            _ => UnavailableReason::Failed,
        };
        Self::new(reason, format!("{what}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_known_by_its_word() {
        for reason in UnavailableReason::ALL {
            assert_eq!(UnavailableReason::of_word(reason.as_str()), Some(reason));
            assert!(!reason.remedy().is_empty());
        }
        assert_eq!(UnavailableReason::of_word("tired"), None);
    }
}
