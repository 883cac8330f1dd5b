//! Certificates that a step-ca signs, once more in plain words: whatever it was asked for goes on record in time and once, or was never
//! signed, or is to be revoked where it was signed.

use lifecycle::names::{KeyHash, RequestId, Serial, SpiffeId, Timestamp};
use lifecycle::registry::event::IssuanceBegun;
use lifecycle::registry::{
    Applied, CertificateStatus, Command, Envelope, Event, INTENT_LAPSE, IntentEnd, Issued, State,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Issuance {
    /// Intents that have not come to an end.
    asked: BTreeMap<RequestId, Asked>,
    /// What step-ca has yet to revoke, and when that is of no use any more.
    owed: BTreeMap<Serial, Timestamp>,
}

struct Asked {
    serial: Serial,
    key: KeyHash,
    subject: SpiffeId,
    not_after: Timestamp,
    lapses: Timestamp,
}

/// The certificate that a command brings.
fn brought(command: &Command) -> Option<&Issued> {
    match command {
        Command::Enroll(enroll) => enroll.prepared.as_ref().map(|prepared| &prepared.certificate),
        Command::Recover(recover) => recover.prepared.as_ref().map(|prepared| &prepared.certificate),
        Command::Renew(renew) => renew.prepared.as_ref(),
        _ => None,
    }
}

/// The certificate that an event grants to a node.
fn granted(event: &Event) -> Option<&Issued> {
    match event {
        Event::NodeEnrolled(enrolled) => Some(&enrolled.certificate),
        Event::CertificateRenewed(renewed) => Some(&renewed.certificate),
        Event::RecoveryIssued(issued) => Some(&issued.certificate),
        _ => None,
    }
}

impl Issuance {
    /// Holds a step against the rules, and learns from it; answers with what was special about it.
    pub fn check(
        &mut self,
        before: &State,
        after: &State,
        envelope: &Envelope,
        applied: &Applied,
    ) -> Vec<&'static str> {
        let mut special = Vec::new();
        let external = brought(&envelope.command).and_then(|issued| issued.external.as_ref());
        if let (Some(external), Err(rejection)) = (external, &applied.answer)
            && rejection.code() == "try_again"
        {
            special.extend(match self.asked.get(&external.intent) {
                None => Some("a result after its intent's end"),
                Some(asked) if asked.lapses <= after.at => Some("a result after a minute"),
                Some(_) => None,
            });
        }
        for event in &applied.events {
            if let Some(issued) = granted(event) {
                special.extend(self.recorded(before, after, issued));
            }
            self.learn(before, after, envelope, event);
        }
        special.extend(self.owe_denied(before, after));
        if matches!(&envelope.command, Command::Tidy) && applied.answer.is_ok() {
            assert!(
                self.asked.values().all(|asked| after.at < asked.lapses),
                "an intent outlives its minute"
            );
        }
        self.agrees(after);
        special
    }

    /// Only what was asked for, for the same key, name and end, while the intent was open, goes on record.
    fn recorded(&mut self, before: &State, after: &State, issued: &Issued) -> Option<&'static str> {
        let Some(external) = &issued.external else {
            assert!(!before.has_step_ca(), "signed by another than step-ca");
            return None;
        };
        assert!(before.has_step_ca(), "signed by a step-ca that is not there");
        let asked = self.asked.remove(&external.intent).expect("recorded without an intent");
        assert!(after.at < asked.lapses, "recorded after its intent had lapsed");
        assert_eq!(
            (&asked.key, &asked.subject, asked.not_after),
            (&issued.key, &issued.subject, issued.not_after)
        );
        assert!(!self.owed.contains_key(&issued.serial), "recorded, and to be revoked");
        let others = || self.asked.values().map(|other| &other.serial);
        assert!(!others().any(|other| *other == issued.serial), "recorded, and asked for by another");
        (asked.lapses < after.at.plus(INTENT_LAPSE)).then_some("recorded some time after its intent")
    }

    fn learn(&mut self, before: &State, after: &State, envelope: &Envelope, event: &Event) {
        match event {
            Event::IssuanceBegun(begun) => self.learn_begun(before, after, envelope, begun),
            Event::IssuanceEnded(ended) => {
                let asked = self.asked.remove(&ended.intent).expect("ended without an intent");
                assert_eq!(asked.serial, ended.asked);
                let own = asked.serial.clone();
                let signed: Vec<Serial> = match &ended.end {
                    IntentEnd::NotSigned => Vec::new(),
                    IntentEnd::NotRecorded { serial } => vec![serial.clone()],
                    IntentEnd::Misbehaved { serial, .. } => serial.iter().cloned().chain([own]).collect(),
                };
                signed.into_iter().for_each(|serial| self.owe_unrecorded(after, serial, asked.not_after));
            }
            Event::IssuancesLapsed(lapsed) => {
                let mut told = lapsed.serials.iter();
                for intent in &lapsed.intents {
                    let asked = self.asked.remove(intent).expect("lapsed without an intent");
                    assert!(asked.lapses <= after.at, "lapsed before its time");
                    assert_eq!(told.next(), Some(&asked.serial), "the trail names what may have been signed");
                    self.owe_unrecorded(after, asked.serial, asked.not_after);
                }
            }
            Event::RevocationsDelivered(delivered) => {
                for serial in &delivered.serials {
                    assert!(self.owed.remove(serial).is_some(), "{serial} was owed by nobody");
                }
            }
            _ => {}
        }
    }

    fn learn_begun(&mut self, before: &State, after: &State, envelope: &Envelope, begun: &IssuanceBegun) {
        let begin = &begun.begin;
        assert!(
            before.step_ca_issuer().is_some_and(|(issuer, _)| issuer.id == begin.issuer),
            "asked of another"
        );
        let asked: BTreeSet<&Serial> = self.asked.values().map(|asked| &asked.serial).collect();
        let known = before.certificates.contains_key(&begin.serial) || self.owed.contains_key(&begin.serial);
        assert!(!known && !asked.contains(&begin.serial), "a serial is asked for twice");
        let asked = Asked {
            serial: begin.serial.clone(),
            key: begin.key,
            subject: begin.subject.clone(),
            not_after: begin.not_after,
            lapses: after.at.plus(INTENT_LAPSE),
        };
        assert!(self.asked.insert(envelope.id, asked).is_none(), "two intents of one command");
    }

    /// Nobody has it: it is to be revoked there, unless another of this serial is on record.
    fn owe_unrecorded(&mut self, after: &State, serial: Serial, not_after: Timestamp) {
        if !after.certificates.contains_key(&serial) && not_after > after.at {
            self.owed.insert(serial, not_after);
        }
    }

    /// What is refused here for good is refused there too.
    fn owe_denied(&mut self, before: &State, after: &State) -> Option<&'static str> {
        let denied = |state: &State, serial: &Serial| {
            state.certificates.get(serial).is_some_and(|held| held.status == CertificateStatus::Denied)
        };
        let mut found = None;
        for (serial, held) in &after.certificates {
            let external = after.issuers.get(&held.issuer).is_some_and(|issuer| issuer.step_ca.is_some());
            let newly = denied(after, serial) && !denied(before, serial);
            if external && newly && held.not_after > after.at {
                self.owed.insert(serial.clone(), held.not_after);
                found = Some("a certificate of step-ca revoked");
            }
        }
        found
    }

    /// The registry waits for the same results, and owes the same revocations; what it has forgotten has ended.
    fn agrees(&mut self, after: &State) {
        let known: BTreeMap<_, _> = after.intents.iter().map(|(id, intent)| (*id, &intent.serial)).collect();
        let asked: BTreeMap<_, _> = self.asked.iter().map(|(id, asked)| (*id, &asked.serial)).collect();
        assert_eq!(known, asked, "what step-ca was asked for");
        self.owed
            .retain(|serial, ends| after.at < *ends || after.undelivered_revocations.contains_key(serial));
        let known: BTreeSet<_> = after.undelivered_revocations.keys().collect();
        assert_eq!(known, self.owed.keys().collect(), "what step-ca has yet to revoke");
        for serial in known {
            assert!(!after.is_good(serial), "{serial} is to be revoked and good");
        }
    }
}
