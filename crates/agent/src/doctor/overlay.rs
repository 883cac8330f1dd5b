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
        OverlayState::Up => {
            let check = Check::good(NAME, overlay.to_string());
            Some(match silence(overlay) {
                Some(warning) => check.warn(warning),
                None => check,
            })
        }
        OverlayState::Unavailable => {
            let detail = overlay.detail.as_deref().unwrap_or_default();
            let reason = overlay.reason.as_deref().and_then(UnavailableReason::of_word);
            let remedy = reason.unwrap_or(UnavailableReason::Failed).remedy();
            let remedy = overlay.remedy.as_deref().unwrap_or(remedy);
            if reason == Some(UnavailableReason::Waiting) {
                return Some(Check::good(NAME, format!("{overlay}: {detail}")).warn(remedy));
            }
            let check = Check::wrong(NAME, AgentCode::OverlayUnavailable, format!("{overlay}: {detail}"));
            let check = check.with(remedy);
            Some(check.follows("reachability", "it takes the control plane's word where this host is"))
        }
    }
}

/// Peers with which nothing can be exchanged.
fn silence(overlay: &OverlayStatus) -> Option<String> {
    let OverlayStatus { unreachable, unanswered, .. } = overlay;
    let unreachable = (*unreachable > 0).then(|| {
        format!(
            "peers without an address in a family that this host has: {unreachable}; give both sides IPv4, or both IPv6, and name the addresses in overlay.endpoint where the agent does not find them"
        )
    });
    let unanswered = (*unanswered > 0).then(|| {
        format!(
            "peers to which packets were sent and never answered, for over 3 minutes: {unanswered}; see that those hosts run, that firewalls let UDP pass to their overlay.port, and that `enlist overlay status` has addresses at which they can be reached, else set overlay.endpoint there"
        )
    });
    let warnings: Vec<String> = [unreachable, unanswered].into_iter().flatten().collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
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
            remedy: None,
            interface: Some("wg0".to_owned()),
            address: Some("fd00::1".to_owned()),
            public_key: None,
            peers: 1,
            unreachable: 0,
            unanswered: 0,
        };
        assert_eq!(check(&overlay(OverlayState::Off, None)), None);
        let up = check(&overlay(OverlayState::Up, None)).unwrap();
        assert_eq!((up.ok, up.evidence.as_str()), (true, "up (wg0, fd00::1, 1 peer)"));
        let down = check(&overlay(OverlayState::Unavailable, Some("no_tun_device"))).unwrap();
        assert_eq!((down.ok, down.class), (false, Some("overlay_unavailable")));
        assert_eq!(down.evidence, "unavailable (no_tun_device): /dev/net/tun: no such file");
        assert_eq!(down.remedy, UnavailableReason::NoTunDevice.remedy());
        let silent = OverlayStatus { unreachable: 1, unanswered: 2, ..overlay(OverlayState::Up, None) };
        let silent = check(&silent).unwrap();
        let warning = silent.warning.unwrap();
        assert!(silent.ok && warning.contains("has: 1;") && warning.contains("3 minutes: 2;"), "{warning}");
        let specific = OverlayStatus {
            remedy: Some("do that".to_owned()),
            ..overlay(OverlayState::Unavailable, Some("failed"))
        };
        assert_eq!(check(&specific).unwrap().remedy, "do that");
        let waiting = check(&overlay(OverlayState::Unavailable, Some("waiting"))).unwrap();
        assert!(waiting.ok && waiting.warning.is_some(), "{waiting:?}");
    }
}
