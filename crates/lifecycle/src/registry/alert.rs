//! What wants an operator's attention.

use super::State;
use crate::names::{AlertId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

/// `KIND "word"` makes a variant and its stable word.
macro_rules! kinds {
    ($($name:ident $word:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AlertKind {
            $($name),*
        }

        impl AlertKind {
            pub const ALL: &[AlertKind] = &[$(AlertKind::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(AlertKind::$name => $word),*
                }
            }
        }
    };
}

kinds! {
    EnrollmentStuck "enrollment_stuck"
    EnrollmentNotPersisted "enrollment_not_persisted"
    CloneSuspected "clone_suspected"
    IssuerExpiring "issuer_expiring"
}

impl std::fmt::Display for AlertKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something an operator should look at. One open alert per kind and node, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub id: AlertId,
    pub kind: AlertKind,
    pub node: Option<NodeId>,
    pub since: Timestamp,
    pub count: u64,
    pub detail: String,
    pub acknowledged: bool,
}

impl State {
    /// The open alert of a kind about a node, or about the domain.
    pub fn open_alert(&self, kind: AlertKind, node: Option<&NodeId>) -> Option<&Alert> {
        self.alerts.values().find(|alert| alert.kind == kind && alert.node.as_ref() == node)
    }
}
