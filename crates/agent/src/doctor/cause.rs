//! One cause is one fault: what follows from the fault of another check is not counted, and says so.

use super::check::Check;

/// Checks that are listed only when they are at fault themselves, or warn.
const ONLY_AT_FAULT: [&str; 2] = ["identity", "config"];

/// Turns every fault that only follows from another into a check that was not made.
pub fn settle(checks: &mut Vec<Check>) {
    let at_fault: Vec<&'static str> =
        checks.iter().filter(|check| !check.ok).map(|check| check.name).collect();
    for check in checks.iter_mut().filter(|check| !check.ok || check.warning.is_some()) {
        let cause = check.follows.iter().find(|(name, _)| at_fault.contains(name));
        if let Some((by, why)) = cause.copied() {
            *check = Check::skipped(check.name, by, why);
        }
    }
    // What was skipped because of a check that was itself skipped names the check where the fault is.
    let known: Vec<(&'static str, &'static str)> =
        checks.iter().filter_map(|check| Some((check.name, check.skipped?))).collect();
    for check in checks.iter_mut() {
        for _ in 0..known.len() {
            let further = known.iter().find(|(name, _)| Some(*name) == check.skipped);
            let Some((_, by)) = further else { break };
            check.skipped = Some(by);
        }
    }
    checks.retain(|check| !(check.ok && check.warning.is_none() && ONLY_AT_FAULT.contains(&check.name)));
}

#[cfg(test)]
mod tests {
    use lifecycle::host::Class;

    use super::*;
    use crate::code::AgentCode;

    #[test]
    fn a_cause_is_named_once_and_everything_that_follows_points_to_it() {
        let gone = |name| Check::bad(name, Class::EndpointUnreachable, "x");
        let mut checks = vec![
            gone("reachability").follows("resolution", "no name"),
            gone("resolution"),
            Check::skipped("tls", "reachability", "control plane unreachable"),
            gone("recovery").follows("reachability", "control plane unreachable"),
            Check::bad("disk", Class::DiskFull, "x"),
        ];
        settle(&mut checks);
        let seen: Vec<_> = checks.iter().map(|check| (check.name, check.ok, check.skipped)).collect();
        let by = Some("resolution");
        let expected = [
            ("reachability", true, by),
            ("resolution", false, None),
            ("tls", true, by),
            ("recovery", true, by),
            ("disk", false, None),
        ];
        assert_eq!(seen, expected);
        assert!(
            checks
                .iter()
                .all(|check| check.ok == check.class.is_none() && check.ok == check.remedy.is_empty())
        );
    }

    #[test]
    fn without_the_cause_it_is_a_fault_of_its_own() {
        let exposed = || Check::wrong("identity", AgentCode::KeyExposed, "x").follows("permissions", "open");
        let mut checks = vec![Check::good("permissions", "fine"), exposed()];
        settle(&mut checks);
        assert!(checks.iter().any(|check| check.name == "identity" && !check.ok), "{checks:?}");
        let mut checks = vec![
            Check::wrong("permissions", AgentCode::KeyExposed, "x"),
            Check::skipped("expiry", "identity", "no certificate"),
            exposed(),
        ];
        settle(&mut checks);
        assert_eq!(checks.len(), 2, "a check that is only listed at fault is left out: {checks:?}");
        assert!(checks.iter().any(|check| check.skipped == Some("permissions")), "{checks:?}");
    }
}
