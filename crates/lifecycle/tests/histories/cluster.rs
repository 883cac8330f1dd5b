//! The rules of replicas once more, in plain words.

use lifecycle::names::{IssuerId, ReplicaId, SecretHash, Serial, Timestamp};
use lifecycle::registry::{Applied, Command, Envelope, Event, Issued, Outcome, State};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Cluster {
    tokens: BTreeMap<SecretHash, JoinToken>,
    replicas: BTreeMap<ReplicaId, Known>,
}

struct JoinToken {
    ends: Timestamp,
    spent: bool,
}

#[derive(Default)]
struct Known {
    removed: bool,
    peer: String,
    /// Everything ever issued to it, oldest first. The last two are good, if nothing else is against them.
    papers: Vec<ReplicaPaper>,
}

struct ReplicaPaper {
    serial: Serial,
    issuer: IssuerId,
    ends: Timestamp,
}

impl ReplicaPaper {
    fn of(issued: &Issued) -> Self {
        Self { serial: issued.serial.clone(), issuer: issued.issuer.clone(), ends: issued.not_after }
    }
}

impl Cluster {
    /// What came of a command about replicas; answers with what was special about it.
    pub fn check_step(
        &self,
        before: &State,
        after: &State,
        envelope: &Envelope,
        applied: &Applied,
    ) -> Option<&'static str> {
        match (&envelope.command, &applied.answer) {
            (Command::JoinReplica(join), Ok(Outcome::ReplicaJoined { replica })) => {
                let token = &self.tokens[&join.hash];
                assert!(!token.spent && after.at < token.ends, "a token that was over");
                assert_eq!(*replica, join.replica);
                let highest = self.replicas.keys().next_back().expect("somebody to join");
                assert_eq!(replica.0, highest.0 + 1, "an id out of turn");
                assert!(self.members().all(|known| known.peer != join.peer), "an address twice");
                None
            }
            (Command::JoinReplica(join), answer) => {
                let rejection = answer.as_ref().expect_err("a replica that joined");
                let of_node = before.token_by_hash.contains_key(&join.hash);
                (of_node && rejection.code() == "token_invalid").then_some("a token of another kind")
            }
            (Command::RemoveReplica { replica, .. }, Ok(_)) => {
                let first = *replica == ReplicaId::FIRST && !applied.events.is_empty();
                first.then_some("the first replica removed")
            }
            // Retiring an issuer, or a root, takes no certificate from a replica that is in use.
            (Command::RetireIssuer { .. } | Command::RetireRoot { .. }, Ok(_)) => {
                for member in before.members() {
                    let serial = member.serial.as_ref();
                    let lost = |serial: &&Serial| before.is_good(serial) && !after.is_good(serial);
                    let over = |serial: &&Serial| before.certificates[*serial].not_after <= after.at;
                    assert!(!serial.is_some_and(|serial| lost(&serial) && !over(&serial)), "cut off");
                }
                None
            }
            _ => None,
        }
    }

    fn members(&self) -> impl Iterator<Item = &Known> {
        self.replicas.values().filter(|known| !known.removed)
    }

    pub fn learn(
        &mut self,
        after: &State,
        event: &Event,
        serials: &mut BTreeSet<Serial>,
    ) -> Option<&'static str> {
        let mut recorded = |issued: &Issued| assert!(serials.insert(issued.serial.clone()), "a serial twice");
        match event {
            Event::ReplicaTokenCreated(token) => {
                let known = JoinToken { ends: token.expires_at, spent: false };
                let twice = self.tokens.insert(token.hash, known);
                assert!(twice.is_none_or(|old| old.spent || old.ends <= after.at), "a value minted twice");
            }
            Event::ReplicaJoined(joined) => {
                recorded(&joined.certificate);
                let used = after.replica_tokens[&joined.token].hash;
                self.tokens.get_mut(&used).expect("a known token").spent = true;
                let papers = vec![ReplicaPaper::of(&joined.certificate)];
                let known = Known { removed: false, peer: joined.replica.peer.clone(), papers };
                assert!(self.replicas.insert(joined.replica.id, known).is_none(), "an id twice");
            }
            Event::ReplicaAnnounced(announced) => {
                let founding = self.replicas.is_empty() && announced.replica == ReplicaId::FIRST;
                assert!(founding || self.replicas.contains_key(&announced.replica), "nobody knows it");
                let known = self.replicas.entry(announced.replica).or_default();
                assert!(!known.removed, "a removed replica was heard");
                known.peer = announced.peer.clone();
                if let Some(issued) = &announced.certificate {
                    recorded(issued);
                    known.papers.push(ReplicaPaper::of(issued));
                }
                let denied = announced.denied.as_ref();
                return denied.map(|_| "the certificate of a replica renewed twice");
            }
            Event::ReplicaRemoved(removed) => {
                let known = self.replicas.get_mut(&removed.replica).expect("a known replica");
                assert!(!known.removed, "removed twice");
                known.removed = true;
                assert!(self.members().next().is_some(), "nobody is left");
                assert_eq!(after.server_certificate_of(removed.replica), None);
                assert_eq!(after.ephemeral_issuer(removed.replica), None);
            }
            Event::RollbackAccepted(_) => {
                for token in self.tokens.values_mut() {
                    token.ends = token.ends.min(after.at);
                }
            }
            _ => {}
        }
        None
    }

    /// The registry accepts exactly what is good here: the last two certificates of a member, until they end.
    pub fn check(&self, after: &State, ended_issuers: &BTreeSet<IssuerId>) {
        assert_eq!(after.replicas.len(), self.replicas.len());
        for (id, known) in &self.replicas {
            assert_eq!(after.replicas[id].is_member(), !known.removed, "replica {id}");
            assert_eq!(after.replicas[id].peer, known.peer, "replica {id}");
            for (age, paper) in known.papers.iter().rev().enumerate() {
                let good = !known.removed
                    && age < 2
                    && after.at < paper.ends
                    && !ended_issuers.contains(&paper.issuer);
                assert_eq!(after.is_good(&paper.serial), good, "{} of replica {id}", paper.serial);
            }
        }
    }
}
