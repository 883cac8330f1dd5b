//! What has happened to alerts between two moments, and who may know of it.

use api::rest::alerts::AlertChange;
use imbl::ordmap::DiffItem;
use lifecycle::registry::{Alert, State, Tenants};

/// An alert about a node is for those who may see the node, one about a tenant for those of the tenant; one about the domain is for
/// those who see all of it.
pub fn is_visible(state: &State, tenants: &Tenants, alert: &Alert) -> bool {
    match &alert.node {
        Some(node) => state.nodes.get(node).is_some_and(|node| tenants.include(&node.tenant)),
        None => match &alert.tenant {
            Some(tenant) => tenants.include(tenant),
            None => *tenants == Tenants::All,
        },
    }
}

/// Every alert that has changed, as it is now or was at last. What came and went in between leaves no trace.
pub fn changes<'a>(
    before: &'a State,
    after: &'a State,
) -> impl Iterator<Item = (AlertChange, &'a Alert)> + 'a {
    before.alerts.diff(&after.alerts).filter_map(|item| match item {
        DiffItem::Add(_, alert) => Some((AlertChange::Raised, alert)),
        DiffItem::Update { old: (_, old), new: (_, new) } => Some((AlertChange::between(old, new)?, new)),
        DiffItem::Remove(_, alert) => Some((AlertChange::Cleared, alert)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{AlertId, TenantId, Timestamp, Ulid};
    use lifecycle::registry::AlertKind;

    fn alert(number: u8) -> Alert {
        Alert {
            id: AlertId(Ulid::new(Timestamp::from_secs(1), [number; 10])),
            kind: AlertKind::IssuerExpiring,
            node: None,
            since: Timestamp::from_secs(1),
            count: 1,
            detail: String::new(),
            acknowledged: false,
            again: None,
            acknowledged_at: None,
            tenant: None,
        }
    }

    fn with(alerts: impl IntoIterator<Item = Alert>) -> State {
        let alerts = alerts.into_iter().map(|alert| (alert.id, alert)).collect();
        State { alerts, ..State::default() }
    }

    #[test]
    fn an_alert_about_the_domain_is_for_those_who_see_all_of_it() {
        let state = State::default();
        assert!(is_visible(&state, &Tenants::All, &alert(1)));
        let own = Tenants::Only([TenantId::default_tenant()].into());
        assert!(!is_visible(&state, &own, &alert(1)));
        let of = |name: &str| Alert { tenant: TenantId::parse(name).ok(), ..alert(1) };
        assert!(is_visible(&state, &own, &of("default")) && !is_visible(&state, &own, &of("other")));
    }

    #[test]
    fn each_change_has_its_name() {
        let acknowledged = Alert { acknowledged: true, ..alert(2) };
        let counted = Alert { count: 2, ..alert(3) };
        let before = with([alert(1), alert(2), alert(3), alert(5)]);
        let after = with([acknowledged, counted, alert(4), alert(5)]);
        let found: Vec<_> = changes(&before, &after).map(|(change, alert)| (change, alert.id)).collect();
        let expected = [
            (AlertChange::Cleared, alert(1).id),
            (AlertChange::Acknowledged, alert(2).id),
            (AlertChange::Raised, alert(3).id),
            (AlertChange::Raised, alert(4).id),
        ];
        assert_eq!(found, expected);
    }
}
