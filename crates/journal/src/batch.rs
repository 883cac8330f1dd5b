//! What travels as one Raft entry: commands that arrived together, and the moment the leader gave them.

use lifecycle::names::Timestamp;
use lifecycle::registry::Envelope;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// An envelope, encoded once, when it is proposed or read: its row in the log holds these bytes, and logs are bounded by them.
/// Shared, so that trying again copies nothing.
#[derive(Debug)]
pub struct EncodedEnvelope {
    pub envelope: Envelope,
    /// MessagePack.
    pub encoded: Vec<u8>,
}

impl EncodedEnvelope {
    pub fn encode(envelope: Envelope) -> Result<Self, rmp_serde::encode::Error> {
        let mut encoded = Vec::with_capacity(1024);
        rmp_serde::encode::write_named(&mut encoded, &envelope)?;
        Ok(Self { envelope, encoded })
    }
}

/// Cloning a batch costs a pointer: openraft hands entries from the log to the state machine by value.
#[derive(Debug, Clone)]
pub struct Batch(Arc<Content>);

#[derive(Debug)]
struct Content {
    at: Timestamp,
    items: Vec<Arc<EncodedEnvelope>>,
}

impl Batch {
    pub fn new(at: Timestamp, items: Vec<Arc<EncodedEnvelope>>) -> Self {
        Self(Arc::new(Content { at, items }))
    }

    pub fn at(&self) -> Timestamp {
        self.0.at
    }

    pub fn items(&self) -> &[Arc<EncodedEnvelope>] {
        &self.0.items
    }

    pub fn envelopes(&self) -> impl ExactSizeIterator<Item = &Envelope> {
        self.0.items.iter().map(|item| &item.envelope)
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.at() == other.at() && self.envelopes().eq(other.envelopes())
    }
}

#[derive(Serialize)]
struct Out<'a> {
    at: Timestamp,
    envelopes: Vec<&'a Envelope>,
}

#[derive(Deserialize)]
struct In {
    at: Timestamp,
    envelopes: Vec<Envelope>,
}

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        Out { at: self.at(), envelopes: self.envelopes().collect() }.serialize(out)
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let In { at, envelopes } = In::deserialize(input)?;
        let item = |envelope| EncodedEnvelope::encode(envelope).map(Arc::new).map_err(D::Error::custom);
        Ok(Self::new(at, envelopes.into_iter().map(item).collect::<Result<_, _>>()?))
    }
}
