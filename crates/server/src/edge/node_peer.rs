//! By what a node is known on a connection: a certificate that is on record, or an SVID that is on none.

use api::rest::nodes::SvidInUse;
use lifecycle::names::{NodeId, Serial};
use lifecycle::registry::Actor;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum ShownIdentity {
    Certificate(Serial),
    Svid(Arc<SvidInUse>),
}

impl ShownIdentity {
    pub fn serial(&self) -> &Serial {
        match self {
            Self::Certificate(serial) => serial,
            Self::Svid(shown) => &shown.serial,
        }
    }

    /// The serial, if it is one of ours: nothing is looked up by that of an SVID.
    pub fn on_record(&self) -> Option<&Serial> {
        match self {
            Self::Certificate(serial) => Some(serial),
            Self::Svid(_) => None,
        }
    }

    pub fn svid(&self) -> Option<&Arc<SvidInUse>> {
        match self {
            Self::Certificate(_) => None,
            Self::Svid(shown) => Some(shown),
        }
    }

    pub fn actor(&self, id: &NodeId) -> Actor {
        match self {
            Self::Certificate(serial) => Actor::Node { id: id.clone(), serial: serial.clone() },
            Self::Svid(shown) => Actor::Svid {
                id: id.clone(),
                spiffe_id: shown.spiffe_id.clone(),
                serial: shown.serial.clone(),
            },
        }
    }
}
