//! Which nodes keep recovery tokens. A recovery token lives for months, so a node whose document bounds what a copied key
//! is good for by the life of its certificate gets none; nor does one that keeps its identity in memory, since the token could
//! only lie on the disk that is to hold nothing, or be lost with the identity. That is settled when the node enrolls, by API,
//! profile and storage, and is on its record: a certificate alone cannot change it.

use super::RecoveryKind;
use crate::names::ProfileName;
use crate::registry::{Door, Enroll, Node};

/// Profiles of documents without recovery, also where a node enrolls with one of them on the native API.
const WITHOUT: [&str; 3] = ["probectl", "taskrun", "taskrun-prod"];

/// Whether a node that enrolls so keeps recovery tokens.
pub(in crate::registry) fn at_enrollment(enroll: &Enroll, profile: &ProfileName) -> bool {
    !enroll.memory_storage && is_given_by(enroll.door, profile)
}

fn is_given_by(door: Door, profile: &ProfileName) -> bool {
    match door {
        Door::Native => !is_without(profile),
        Door::Plfm | Door::Pact | Door::Probectl | Door::Taskrun => false,
    }
}

fn is_without(profile: &ProfileName) -> bool {
    WITHOUT.contains(&profile.as_str())
}

/// A profile that an API other than the native one gives to those who enroll by it.
fn is_of_another_door(profile: &ProfileName) -> bool {
    is_without(profile) || Door::ALL.into_iter().any(|door| door.profile().as_ref() == Some(profile))
}

impl Node {
    /// Whether it may be given recovery tokens. Of a node that enrolled before this was on record, what is on record
    /// tells: it holds one, and its profile is not that of an API without recovery.
    pub fn keeps_recovery_tokens(&self) -> bool {
        self.recovery.eligible.unwrap_or_else(|| {
            let held = self.recovery.tokens.iter();
            let mut held = held.filter(|token| token.kind == RecoveryKind::Rotated && token.is_valid());
            held.next().is_some() && !is_of_another_door(&self.profile)
        })
    }

    /// Whether a token that it was given all the same, before this was on record, is worth nothing.
    pub(in crate::registry) fn is_without_recovery(&self) -> bool {
        self.recovery.eligible.map_or_else(|| is_of_another_door(&self.profile), |eligible| !eligible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{SecretHash, Span, TenantId, Timestamp, TokenId, Ulid};
    use crate::registry::{Mint, RecoveryToken};

    const AT: Timestamp = Timestamp::from_secs(1000);

    fn profile(name: &str) -> ProfileName {
        ProfileName::parse(name).expect("a name")
    }

    #[test]
    fn the_native_api_gives_them_except_with_a_profile_of_a_document_without_recovery() {
        for (door, name, expected) in [
            (Door::Native, "default", true),
            (Door::Native, "plfm", true),
            (Door::Native, "site", true),
            (Door::Native, "probectl", false),
            (Door::Native, "taskrun", false),
            (Door::Native, "taskrun-prod", false),
            (Door::Plfm, "default", false),
            (Door::Pact, "default", false),
            (Door::Probectl, "default", false),
            (Door::Taskrun, "default", false),
        ] {
            assert_eq!(is_given_by(door, &profile(name)), expected, "{door:?} {name}");
        }
    }

    #[test]
    fn of_a_node_of_before_its_token_and_its_profile_tell() {
        let before = |name: &str, holds: bool| {
            let id = crate::names::NodeId::parse("n1").expect("a name");
            let mut node = Node::registered(id, TenantId::default_tenant(), profile(name), AT);
            let mint = Mint { token: TokenId(Ulid::new(AT, [0; 10])), hash: SecretHash::new([0; 32]) };
            let token = RecoveryToken::of(mint, RecoveryKind::Rotated, None, AT, Span::from_days(90));
            node.recovery.tokens.extend(holds.then_some(token));
            node.keeps_recovery_tokens()
        };
        assert!(before("default", true));
        assert!(!before("default", false));
        for name in ["plfm", "pact", "probectl", "taskrun", "taskrun-prod"] {
            assert!(!before(name, true), "{name}");
        }
    }
}
