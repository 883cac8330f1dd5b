//! When this host claims its place in the overlay, and what of the answer is accepted. No I/O.

use std::net::Ipv6Addr;
use std::time::Duration;

use api::agent::OverlayAnswer;
use pki::wireguard::WireguardPublic;
use tokio::time::Instant;

use crate::config::UnderlayAddresses;
use crate::run::rate_limit::RateLimit;

/// How often a claim is made, whatever asks for it.
const BURST: u32 = 4;
const EVERY: Duration = Duration::from_secs(5);
/// After a refusal, and while a place that was lost has not come back.
const AGAIN: Duration = Duration::from_secs(10);
/// What the control plane means by nothing.
const MTU: u32 = 1420;
/// Less does not carry IPv6; more is no interface.
pub const MTUS: std::ops::RangeInclusive<u32> = 1280..=9000;
/// Hosts are told to which network they belong: a site of private addresses has 48 bits (RFC 4193), and a larger network would take
/// the traffic to other sites.
const PREFIXES: std::ops::RangeInclusive<u32> = 48..=128;
const MOST_KEEPALIVE: u32 = 3600;

/// What a claim says beside its proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceClaim {
    pub key: WireguardPublic,
    pub underlay: Option<UnderlayAddresses>,
}

/// The claims of one connection.
#[derive(Debug)]
pub struct Claims {
    sent: Option<PlaceClaim>,
    /// The same is to be claimed again then.
    again_at: Option<Instant>,
    /// Changes are missing, so the whole set is asked for.
    lost: bool,
    rate: RateLimit,
}

impl Claims {
    pub fn new(now: Instant) -> Self {
        Self { sent: None, again_at: None, lost: false, rate: RateLimit::new(BURST, EVERY, now) }
    }

    /// The connection is no more; the next one begins with a claim.
    pub fn disconnected(&mut self) {
        (self.sent, self.again_at, self.lost) = (None, None, false);
    }

    fn is_needed(&self, claim: PlaceClaim, now: Instant) -> bool {
        self.sent != Some(claim) || self.again_at.is_some_and(|at| at <= now)
    }

    /// Whether this is to be claimed now.
    pub fn is_due(&self, claim: PlaceClaim, now: Instant) -> bool {
        self.is_needed(claim, now) && self.rate.wait(now).is_zero()
    }

    /// It was claimed. A place that was lost is claimed again until it is there.
    pub fn claimed(&mut self, claim: PlaceClaim, now: Instant) {
        self.sent = Some(claim);
        self.again_at = self.lost.then(|| now + AGAIN);
        self.rate.count(now);
    }

    pub fn wake(&self, claim: PlaceClaim, now: Instant) -> Option<Instant> {
        let at = if self.sent != Some(claim) { Some(now) } else { self.again_at };
        at.map(|at| at.max(now + self.rate.wait(now)))
    }

    pub fn refused(&mut self, now: Instant) {
        self.again_at = Some(now + AGAIN);
    }

    /// Changes are missing, or were not to be believed.
    pub fn place_lost(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.lost, true) {
            self.again_at = Some(now);
        }
    }

    /// Whether the whole set is asked for.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    pub fn found(&mut self) {
        (self.lost, self.again_at) = (false, None);
    }
}

/// The place that the control plane has on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedPlace {
    pub address: Ipv6Addr,
    pub prefix_length: u8,
    pub mtu: u32,
    pub keepalive: Option<u16>,
}

impl GrantedPlace {
    /// Whoever sends this must not be able to take over how this host reaches others: the address is one for private networks, and
    /// the network is not a large one.
    pub fn of(answer: &OverlayAnswer) -> Result<Self, String> {
        let address: Ipv6Addr =
            answer.address.parse().map_err(|_| "the address in the overlay is none of IPv6".to_owned())?;
        if !address.is_unique_local() {
            return Err(format!("{address} is not an address for private networks (fc00::/7)"));
        }
        if !PREFIXES.contains(&answer.prefix_length) {
            return Err(format!("a network of {} bits", answer.prefix_length));
        }
        let mtu = if answer.mtu == 0 { MTU } else { answer.mtu };
        if !MTUS.contains(&mtu) || answer.keepalive_s > MOST_KEEPALIVE {
            return Err(format!("an MTU of {mtu}, a keepalive of {} s", answer.keepalive_s));
        }
        let keepalive = u16::try_from(answer.keepalive_s).ok().filter(|seconds| *seconds > 0);
        let prefix_length = u8::try_from(answer.prefix_length).unwrap_or(128);
        Ok(Self { address, prefix_length, mtu, keepalive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(key: u8, at: &str) -> PlaceClaim {
        PlaceClaim { key: [key; 32], underlay: UnderlayAddresses::parse([at]) }
    }

    #[test]
    fn a_claim_is_made_once_per_connection_and_for_every_change() {
        let now = Instant::now();
        let mut claims = Claims::new(now);
        assert!(claims.is_due(claim(1, "192.0.2.1"), now));
        claims.claimed(claim(1, "192.0.2.1"), now);
        assert!(!claims.is_due(claim(1, "192.0.2.1"), now + AGAIN * 10));
        assert_eq!(claims.wake(claim(1, "192.0.2.1"), now), None);
        assert!(claims.is_due(claim(1, "192.0.2.2"), now) && claims.is_due(claim(2, "192.0.2.1"), now));
        claims.disconnected();
        assert!(claims.is_due(claim(1, "192.0.2.1"), now));
    }

    #[test]
    fn a_place_that_was_lost_is_claimed_at_once_and_then_patiently_until_it_is_there() {
        let now = Instant::now();
        let (mut claims, claim) = (Claims::new(now), claim(1, "192.0.2.1"));
        claims.claimed(claim, now);
        claims.place_lost(now);
        assert!(claims.is_due(claim, now) && claims.is_lost());
        claims.claimed(claim, now);
        claims.place_lost(now);
        assert!(!claims.is_due(claim, now), "one that is lost cannot be lost again");
        assert!(claims.is_due(claim, now + AGAIN));
        claims.found();
        assert!(!claims.is_due(claim, now + AGAIN * 10) && !claims.is_lost());
    }

    #[test]
    fn nobody_makes_a_host_claim_without_end() {
        let now = Instant::now();
        let mut claims = Claims::new(now);
        let made = (0..1000).filter(|number| {
            let claim = PlaceClaim { key: [u8::try_from(number % 256).unwrap(); 32], underlay: None };
            let due = claims.is_due(claim, now);
            if due {
                claims.claimed(claim, now);
            }
            due
        });
        assert_eq!(made.count(), usize::try_from(BURST).unwrap());
    }

    #[test]
    fn a_place_is_in_a_private_network_of_a_sane_size() {
        let answer = |address: &str, prefix_length, mtu| OverlayAnswer {
            address: address.to_owned(),
            prefix_length,
            mtu,
            keepalive_s: 25,
            ..OverlayAnswer::default()
        };
        let good = GrantedPlace::of(&answer("fd00::1", 48, 0)).unwrap();
        assert_eq!((good.prefix_length, good.mtu, good.keepalive), (48, 1420, Some(25)));
        assert!(GrantedPlace::of(&answer("fd00::1", 128, 0)).is_ok());
        for (address, prefix, mtu) in [
            ("2001:db8::1", 48, 1420),
            ("10.0.0.1", 48, 1420),
            ("fd00::1", 0, 1420),
            ("fd00::1", 16, 1420),
            ("fd00::1", 47, 1420),
            ("fd00::1", 129, 1420),
            ("fd00::1", 48, 1279),
            ("", 48, 1420),
        ] {
            assert!(GrantedPlace::of(&answer(address, prefix, mtu)).is_err(), "{address} {prefix} {mtu}");
        }
    }
}
