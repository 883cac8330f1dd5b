//! The overlay, as the running daemon has it. A host without one has nothing to check.

use super::check::Check;
use super::subject::DoctorSubject;
use crate::code::AgentCode;
use crate::overlay::UnavailableReason;
use crate::status::{OverlayState, OverlayStatus};

const NAME: &str = "overlay";

pub fn examine(subject: &DoctorSubject) -> Option<Check> {
    subject.daemon.as_ref()?.overlay.as_ref().and_then(check)
}

fn check(overlay: &OverlayStatus) -> Option<Check> {
    match overlay.state {
        OverlayState::Off => None,
        OverlayState::Up => Some(Check::good(NAME, overlay.to_string())),
        OverlayState::Unavailable => {
            let detail = overlay.detail.as_deref().unwrap_or_default();
            let reason = overlay.reason.as_deref().and_then(UnavailableReason::of_word);
            let remedy = reason.unwrap_or(UnavailableReason::Failed).remedy();
            let check = Check::wrong(NAME, AgentCode::OverlayUnavailable, format!("{overlay}: {detail}"));
            let check = check.with(remedy);
            Some(check.follows("reachability", "it takes the control plane's word where this host is"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_is_checked_where_there_is_to_be_one() {
        let overlay = |state, reason: Option<&str>| OverlayStatus {
            state,
            reason: reason.map(str::to_owned),
            detail: reason.map(|_| "/dev/net/tun: no such file".to_owned()),
            interface: Some("wg0".to_owned()),
            address: Some("fd00::1".to_owned()),
            public_key: None,
            peers: 1,
        };
        assert_eq!(check(&overlay(OverlayState::Off, None)), None);
        let up = check(&overlay(OverlayState::Up, None)).unwrap();
        assert_eq!((up.ok, up.evidence.as_str()), (true, "up (wg0, fd00::1, 1 peer)"));
        let down = check(&overlay(OverlayState::Unavailable, Some("no_tun_device"))).unwrap();
        assert_eq!((down.ok, down.class), (false, Some("overlay_unavailable")));
        assert_eq!(down.evidence, "unavailable (no_tun_device): /dev/net/tun: no such file");
        assert_eq!(down.remedy, UnavailableReason::NoTunDevice.remedy());
    }
}
