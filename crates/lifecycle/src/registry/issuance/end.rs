//! An intent came to nothing: the issuer refused or misbehaved, or what it signed was not recorded.

use crate::names::AlertId;
use crate::names::{NodeId, ReplicaId, RequestId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AlertRaised, AuditField, AuditFields, Happened};
use crate::registry::{AlertKind, Envelope, Event, State};
use serde::{Deserialize, Serialize};

/// How much of what an issuer did wrong is kept.
const DETAIL: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndIssuance {
    pub replica: ReplicaId,
    /// The command that recorded it.
    pub intent: RequestId,
    pub end: IntentEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntentEnd {
    /// The issuer said no, or was never asked: there is no certificate.
    NotSigned,
    /// It signed this one, which was not recorded.
    NotRecorded { serial: Serial },
    /// What it answered is not what it was asked for. The certificate is the one that it signed, if it is one of its own.
    Misbehaved { serial: Option<Serial>, what: String },
}

impl IntentEnd {
    fn as_str(&self) -> &'static str {
        match self {
            IntentEnd::NotSigned => "not_signed",
            IntentEnd::NotRecorded { .. } => "not_recorded",
            IntentEnd::Misbehaved { .. } => "issuer_misbehaved",
        }
    }

    fn serial(&self) -> Option<&Serial> {
        match self {
            IntentEnd::NotSigned => None,
            IntentEnd::NotRecorded { serial } => Some(serial),
            IntentEnd::Misbehaved { serial, .. } => serial.as_ref(),
        }
    }
}

/// Nothing, if the intent has its result or has lapsed.
pub(in crate::registry) fn end(state: &State, envelope: &Envelope, end: &EndIssuance) -> Decision {
    let Some(intent) = state.intents.get(&end.intent) else { return Decision::granted(Vec::new()) };
    let what = match &end.end {
        IntentEnd::Misbehaved { what, .. } => Some(what.chars().take(DETAIL).collect::<String>()),
        IntentEnd::NotSigned | IntentEnd::NotRecorded { .. } => None,
    };
    let raised = what.map(|what| {
        let kind = AlertKind::IssuerMisbehaved;
        let alert = state.open_alert(kind, None).map_or(AlertId(envelope.id.0), |open| open.id);
        let detail = format!("issuer {}: {what}", intent.issuer);
        Event::AlertRaised(AlertRaised { alert, kind, node: None, tenant: None, detail, count: 1 })
    });
    let ended = IssuanceEnded {
        intent: end.intent,
        subject: intent.subject.to_string(),
        asked: intent.serial.clone(),
        end: end.end.clone(),
    };
    Decision::granted([Event::IssuanceEnded(Box::new(ended))].into_iter().chain(raised).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuanceEnded {
    pub intent: RequestId,
    pub subject: String,
    pub asked: Serial,
    pub end: IntentEnd,
}

impl Happened for IssuanceEnded {
    const NAME: &'static str = "issuance.ended";

    fn fields(&self) -> AuditFields {
        vec![
            ("spiffe_id", AuditField::text(&self.subject)),
            ("asked_serial", AuditField::text(&self.asked)),
            ("cert_serial", AuditField::maybe(self.end.serial())),
            ("outcome", AuditField::text(self.end.as_str())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let Some(intent) = state.intents.remove(&self.intent) else { return };
        if let Some(serial) = self.end.serial() {
            state.owe_unrecorded(&intent, serial);
        }
        // An issuer that misbehaves may have signed more than it showed.
        if matches!(self.end, IntentEnd::Misbehaved { .. }) {
            state.owe_unrecorded(&intent, &intent.serial);
        }
    }
}
