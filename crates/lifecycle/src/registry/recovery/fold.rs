//! How a node's recovery tokens change. The index knows exactly those that are on record. Only folds call this.

use super::{Recovery, RecoveryToken};
use crate::names::NodeId;
use crate::registry::State;
use std::sync::Arc;

impl State {
    /// A new one, put among the others in its own way.
    pub(in crate::registry) fn mint_recovery(
        &mut self,
        id: &NodeId,
        token: &RecoveryToken,
        how: impl FnOnce(&mut Recovery, RecoveryToken),
    ) {
        self.change_recovery(id, |recovery| how(recovery, token.clone()));
        if self.nodes.contains_key(id) {
            self.recovery_by_hash.insert(token.hash, id.clone());
        }
    }

    /// A change in which none is new.
    pub(in crate::registry) fn change_recovery(&mut self, id: &NodeId, how: impl FnOnce(&mut Recovery)) {
        let Some(node) = self.nodes.get_mut(id).map(Arc::make_mut) else { return };
        // Before the token that tells it ends: a node of before that holds one keeps such tokens from now on.
        if node.keeps_recovery_tokens() {
            node.recovery.eligible = Some(true);
        }
        how(&mut node.recovery);
        for hash in node.recovery.forget() {
            self.recovery_by_hash.remove(&hash);
        }
    }
}
