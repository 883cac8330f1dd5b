//! Overlay addresses: one per node, from a ULA /48, not used again before a cool-down has passed.

use crate::names::{NodeId, Span, Timestamp};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// Hosts live in the first /64 of the prefix; its first 255 addresses stay free for the domain's own use.
const FIRST: u64 = 0x100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    pub prefix: Ipv6Addr,
    pub next: u64,
    pub held: OrdMap<Ipv6Addr, NodeId>,
    /// Released addresses and since when; the longest rested comes back first.
    pub resting: OrdMap<(Timestamp, Ipv6Addr), ()>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { prefix: Ipv6Addr::UNSPECIFIED, next: FIRST, held: OrdMap::new(), resting: OrdMap::new() }
    }
}

impl Addresses {
    /// The address that the next node gets.
    pub fn pick(&self, at: Timestamp, cooldown: Span) -> Option<Ipv6Addr> {
        if let Some(((released, address), ())) = self.resting.get_min()
            && released.plus(cooldown) <= at
        {
            return Some(*address);
        }
        (self.next < u64::MAX).then(|| Ipv6Addr::from(u128::from(self.prefix) | u128::from(self.next)))
    }

    pub(in crate::registry) fn hold(&mut self, address: Ipv6Addr, node: NodeId) {
        if let Some(key) = self.resting.keys().find(|(_, rested)| *rested == address).copied() {
            self.resting.remove(&key);
        } else {
            self.next = self.next.saturating_add(1);
        }
        self.held.insert(address, node);
    }

    /// Gives an address back; it rests from now on.
    pub fn release(&mut self, address: Ipv6Addr, at: Timestamp) {
        if self.held.remove(&address).is_some() {
            self.resting.insert((at, address), ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_address_rests_before_it_comes_back() {
        let mut addresses = Addresses {
            prefix: "fd12:3456:789a::".parse().unwrap_or(Ipv6Addr::UNSPECIFIED),
            ..Default::default()
        };
        let (start, rest) = (Timestamp::from_secs(1000), Span::from_days(30));
        let Ok(node) = NodeId::parse("n1") else { return };
        let first = addresses.pick(start, rest).unwrap_or(Ipv6Addr::UNSPECIFIED);
        assert_eq!(first.to_string(), "fd12:3456:789a::100");
        addresses.hold(first, node.clone());
        assert_eq!(
            addresses.pick(start, rest).map(|a| a.to_string()),
            Some("fd12:3456:789a::101".to_owned())
        );
        addresses.release(first, start);
        assert_ne!(addresses.pick(start.plus(Span::from_days(29)), rest), Some(first));
        let later = start.plus(rest);
        assert_eq!(addresses.pick(later, rest), Some(first));
        addresses.hold(first, node);
        assert_eq!(
            addresses.pick(later, rest).map(|a| a.to_string()),
            Some("fd12:3456:789a::101".to_owned())
        );
    }
}
