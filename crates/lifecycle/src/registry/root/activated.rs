//! A new root is active: the issuers that sign are below it, and the one before retires. Follows from activating its issuers.

use crate::names::{Fingerprint, NodeId};
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, RootState, State};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootActivated {
    pub root: Fingerprint,
    pub before: Option<Fingerprint>,
}

impl Happened for RootActivated {
    const NAME: &'static str = "ca.root_activated";

    fn fields(&self) -> AuditFields {
        let before = self.before.map(|before| before.labelled());
        vec![
            ("root_fingerprint", AuditField::text(self.root.labelled())),
            ("before", AuditField::maybe(before.as_ref())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        for root in &mut state.roots {
            if Some(root.fingerprint) == self.before {
                root.state = RootState::Retiring;
            }
            if root.fingerprint == self.root {
                root.state = RootState::Active;
            }
        }
    }
}
