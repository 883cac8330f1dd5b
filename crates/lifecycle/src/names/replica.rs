//! Which control-plane process.

use super::Malformed;

/// One replica of the control plane, by the number that replication knows it by: it stays the same for a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u64);

const ID: Malformed =
    Malformed { what: "a replica id", expected: "a number from 1 on, without leading zeros" };

impl ReplicaId {
    /// The replica that initialized the domain; the only one of a domain that is no cluster.
    pub const FIRST: ReplicaId = ReplicaId(1);

    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let number: u64 = text.parse().map_err(|_| ID)?;
        // One spelling each: "+2" and "02" would be further names of replica 2.
        if number > 0 && number.to_string() == text { Ok(Self(number)) } else { Err(ID) }
    }

    pub(crate) fn first() -> Self {
        Self::FIRST
    }

    pub(crate) fn is_first(&self) -> bool {
        *self == Self::FIRST
    }
}

impl std::fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_id_has_one_spelling() {
        assert_eq!(ReplicaId::parse("12"), Ok(ReplicaId(12)));
        for bad in ["", "0", "02", "+2", "-1", " 2", "2 ", "two", "18446744073709551616"] {
            assert!(ReplicaId::parse(bad).is_err(), "{bad}");
        }
    }
}
