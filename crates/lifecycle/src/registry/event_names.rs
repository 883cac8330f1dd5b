//! Every name that a line of the audit trail can have, for whoever asks for lines by name.

/// In alphabetical order.
pub const AUDIT_EVENTS: &[&str] = &[
    "alert.acknowledged",
    "alert.cleared",
    "alert.raised",
    "audit.checkpoint",
    "audit.gap",
    "ca.activated",
    "ca.prepared",
    "ca.requested",
    "ca.retired",
    "ca.revoked",
    "ca.rewrapped",
    "certificate.renewed",
    "certificate.rotation_expired",
    "certificate.rotation_ordered",
    "certificate.superseded",
    "domain.founded",
    "enrollment.refused",
    "enrollment_token.created",
    "enrollment_token.expired",
    "enrollment_token.revoked",
    "host.active",
    "host.confirmed",
    "host.decommissioned",
    "host.described",
    "host.draining",
    "host.enrolled",
    "host.imported",
    "host.inactive",
    "host.quarantined",
    "host.registered",
    "host.reinstated",
    "host.released",
    "host.revoked",
    "host.undrained",
    "operator.added",
    "operator.certificate_replaced",
    "operator.removed",
    "operator.renewed",
    "operator_key.created",
    "operator_key.revoked",
    "policy.changed",
    "recovery.issued",
    "recovery.refused",
    "recovery.requested",
    "recovery.resolved",
    "recovery_token.kept",
    "recovery_token.rotated",
    "registry.tidied",
    "repair_bundle.issued",
    "server_certificate.issued",
    "tenant.created",
];

#[cfg(test)]
mod tests {
    use super::AUDIT_EVENTS;

    /// The names are given where the events are; this list must hold each of them.
    #[test]
    fn the_list_holds_every_name_that_an_event_gives_itself() {
        let source = include_str!("event.rs");
        let table = source.split("pub fn name(&self)").nth(1).expect("the table");
        let table = table.split("pub fn is_audited").next().expect("its end");
        let mut names: Vec<&str> = table
            .split("=> \"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .filter(|name| !["host.seen", "certificate.seen"].contains(name))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(AUDIT_EVENTS, names);
    }
}
