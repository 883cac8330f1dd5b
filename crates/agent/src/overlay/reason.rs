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
}

impl UnavailableReason {
    pub const ALL: [Self; 6] = [
        Self::NoTunDevice,
        Self::NoPermission,
        Self::InterfaceInUse,
        Self::PortInUse,
        Self::NoKernelSupport,
        Self::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoTunDevice => "no_tun_device",
            Self::NoPermission => "no_permission",
            Self::InterfaceInUse => "interface_in_use",
            Self::PortInUse => "port_in_use",
            Self::NoKernelSupport => "no_kernel_support",
            Self::Failed => "failed",
        }
    }

    /// The reason that goes by this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoTunDevice => {
                "load the module `tun` and let the agent see /dev/net/tun (in a unit: DeviceAllow=/dev/net/tun rw), or set overlay.backend to \"kernel\""
            }
            Self::NoPermission => {
                "give the agent CAP_NET_ADMIN (in a unit: AmbientCapabilities=CAP_NET_ADMIN), and let its user open /dev/net/tun"
            }
            Self::InterfaceInUse => "remove the interface of that name, or set overlay.interface to another",
            Self::PortInUse => {
                "see who has the port with `ss -ulpn`, and end it, or set overlay.port to another"
            }
            Self::NoKernelSupport => {
                "load the module `wireguard`, or set overlay.backend to \"auto\" or \"userspace\""
            }
            Self::Failed => "see the detail, and the agent's log",
        }
    }
}

/// There is no overlay for now. It is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub reason: UnavailableReason,
    /// What shows it, in a sentence.
    pub detail: String,
}

impl Unavailable {
    pub fn new(reason: UnavailableReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }

    pub fn failed(detail: impl Into<String>) -> Self {
        Self::new(UnavailableReason::Failed, detail)
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
