//! Replacing a host's WireGuard key: ordered by an operator, carried out by the host. The order is state: a host that is away
//! finds it when it comes back, and one that is never fetched ends with a note. The key before rests: for `overlay.cooldown` it
//! can be nobody else's.

use super::Wireguard;
use super::claim::{self, ClaimOverlay};
use crate::names::{NodeId, RequestId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::node::living;
use crate::registry::{Envelope, Event, Node, Rejection, Rotation, State};

/// An operator orders it. A second order while one is open changes nothing, unless only the second is for a host that has lost
/// its key.
pub(in crate::registry) fn order(state: &State, envelope: &Envelope, id: &NodeId, replace: bool) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if node.wireguard.is_none() => Rejection::NoOverlay { node: id.clone() }.into(),
        Ok(node) if node.rekey.as_ref().is_some_and(|open| open.replace || !replace) => {
            Decision::granted(Vec::new())
        }
        Ok(_) => Decision::granted(vec![Event::RekeyOrdered(RekeyOrdered {
            node: id.clone(),
            order: envelope.id,
            replace,
        })]),
    }
}

/// The host brings another key than the one on record. Without an order that is refused, and with one it must prove that key
/// too: whoever has the node's certificate alone cannot take its place in the overlay, whatever is ordered meanwhile.
pub(super) fn decide(envelope: &Envelope, node: &Node, claim: &ClaimOverlay) -> Decision {
    let Some(order) = &node.rekey else {
        return Rejection::RekeyNotOrdered { node: node.id.clone() }.into();
    };
    if claim.former_unproven && !order.replace {
        return Rejection::FormerKeyUnproven { node: node.id.clone() }.into();
    }
    let rekeyed = Event::Rekeyed(Rekeyed {
        node: node.id.clone(),
        wireguard: claim.wireguard,
        before: node.wireguard,
        order: order.order,
    });
    Decision::granted([rekeyed].into_iter().chain(claim::moved(envelope, node, claim)).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RekeyOrdered {
    pub node: NodeId,
    pub order: RequestId,
    /// Of a host that need not prove the key on record, once.
    pub replace: bool,
}

impl Happened for RekeyOrdered {
    const NAME: &'static str = "host.rekey_ordered";

    fn fields(&self) -> AuditFields {
        let mut fields = host(&self.node, [("order_id", AuditField::text(self.order))]);
        if self.replace {
            fields.push(("without_former_key", AuditField::Flag(true)));
        }
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let ordered = Rotation { order: self.order, at: state.at, replace: self.replace };
        state.change_node(&self.node, |node| node.rekey = Some(ordered));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RekeyExpired {
    pub node: NodeId,
    pub order: RequestId,
}

impl Happened for RekeyExpired {
    const NAME: &'static str = "host.rekey_expired";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("order_id", AuditField::text(self.order))])
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| node.rekey = None);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    pub node: NodeId,
    pub wireguard: Wireguard,
    pub before: Option<Wireguard>,
    pub order: RequestId,
}

impl Happened for Rekeyed {
    const NAME: &'static str = "host.rekeyed";

    fn fields(&self) -> AuditFields {
        let before = self.before.map(|before| before.fingerprint.labelled());
        host(
            &self.node,
            [
                ("wireguard_pubkey_fingerprint", AuditField::text(self.wireguard.fingerprint.labelled())),
                ("previous_wireguard_pubkey_fingerprint", AuditField::maybe(before)),
                ("order_id", AuditField::text(self.order)),
            ],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.take_wireguard_key(self.wireguard.key, &self.node);
        if let Some(before) = self.before {
            state.resting_keys.insert((state.at, before.key), self.node.clone());
        }
        state.change_node(&self.node, |node| {
            node.wireguard = Some(self.wireguard);
            node.rekey = None;
        });
    }
}
