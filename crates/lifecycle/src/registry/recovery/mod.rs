//! Recovery tokens: what brings a node back when its certificate no longer does.
//!
//! A node has at most two that are valid, so that there is always one on its disk that works: the current one,
//! and the one before it until the node has said that the current one is kept. An operator's repair token
//! replaces both. The last few that have ended are remembered, so that whoever brings one hears why.

pub(super) mod eligibility;
pub(super) mod fold;
pub(super) mod mint;
pub(super) mod recover;
pub(super) mod repair;
pub(super) mod revoke;

use super::State;
use crate::names::{KeyHash, Label, SecretHash, Serial, Span, Timestamp, TokenId};
use crate::registry::Mint;
use serde::{Deserialize, Serialize};

/// How many that have ended are remembered.
const ENDED: usize = 4;

/// What a node has to recover with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Oldest first.
    pub tokens: Vec<RecoveryToken>,
    /// A certificate was issued for one of them and has not been seen yet.
    #[serde(default)]
    pub underway: bool,
    /// Quarantined by a repair bundle, until the repair has proven itself.
    #[serde(default)]
    pub repairing: bool,
    /// Whether the node keeps recovery tokens, as its enrollment settled it; none where it enrolled before that was
    /// on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<bool>,
    /// When one of its tokens was last brought in vain, and why: a host that is lost cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub at: Timestamp,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryToken {
    pub id: TokenId,
    pub hash: SecretHash,
    pub kind: RecoveryKind,
    pub minted_at: Timestamp,
    pub expires_at: Timestamp,
    pub state: RecoveryState,
    /// The recovery profile that it is for; none of a token of before, which is for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Label>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryKind {
    /// Given to the node over its own certificate.
    Rotated,
    /// Given to an operator, in a repair bundle.
    Repair,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryState {
    Valid {
        /// The node has said that it is on disk.
        kept: bool,
    },
    /// Another took its place.
    Superseded,
    /// For this certificate and key.
    Used { at: Timestamp, serial: Serial, key: KeyHash },
    /// The node's life that it was for has ended, an operator let the node go, or revoked its tokens.
    Revoked,
}

impl RecoveryToken {
    pub(super) fn of(
        mint: Mint,
        kind: RecoveryKind,
        profile: Option<Label>,
        at: Timestamp,
        life: Span,
    ) -> Self {
        Self {
            id: mint.token,
            hash: mint.hash,
            kind,
            minted_at: at,
            expires_at: at.plus(life),
            state: RecoveryState::Valid { kept: false },
            profile,
        }
    }

    /// Whether it may be redeemed under a recovery profile. Who names none is taken to mean the token's own.
    pub fn is_for(&self, named: Option<&Label>) -> bool {
        named.is_none_or(|named| self.profile.as_ref().is_none_or(|own| own == named))
    }

    /// Valid as far as its state goes: its time may be over.
    pub fn is_valid(&self) -> bool {
        matches!(self.state, RecoveryState::Valid { .. })
    }

    pub fn is_kept(&self) -> bool {
        self.state == RecoveryState::Valid { kept: true }
    }

    pub fn is_expired(&self, at: Timestamp) -> bool {
        at >= self.expires_at
    }

    /// Whether it is time for the next one.
    pub fn is_half_over(&self, at: Timestamp) -> bool {
        let half = Span::from_millis(self.expires_at.since(self.minted_at).millis() / 2);
        at >= self.minted_at.plus(half)
    }
}

impl Recovery {
    pub fn token(&self, id: TokenId) -> Option<&RecoveryToken> {
        self.tokens.iter().find(|token| token.id == id)
    }

    /// The newest that the node was given and that is valid.
    pub fn current(&self) -> Option<&RecoveryToken> {
        self.tokens.iter().rev().find(|token| token.kind == RecoveryKind::Rotated && token.is_valid())
    }

    /// Whether the operator's latest token has been used and the node has come back with what it got.
    pub fn is_repaired(&self) -> bool {
        let repair = self.tokens.iter().rev().find(|token| token.kind == RecoveryKind::Repair);
        self.repairing
            && !self.underway
            && repair.is_some_and(|token| matches!(token.state, RecoveryState::Used { .. }))
    }

    /// A new one for the node. What was kept stays valid beside it; what was not, nobody has.
    pub(super) fn rotate(&mut self, token: RecoveryToken) {
        if let Some(current) = self.current().filter(|current| !current.is_kept()).map(|current| current.id) {
            self.end(current, RecoveryState::Superseded);
        }
        self.tokens.push(token);
    }

    /// The current one is on the node's disk: those before it are of no more use.
    pub(super) fn keep(&mut self, id: TokenId) {
        for token in self.tokens.iter_mut().filter(|token| token.is_valid()) {
            if token.id == id {
                token.state = RecoveryState::Valid { kept: true };
            } else if token.kind == RecoveryKind::Rotated {
                token.state = RecoveryState::Superseded;
            }
        }
    }

    /// An operator's: the only one from now on.
    pub(super) fn repair(&mut self, token: RecoveryToken) {
        self.end_all(&RecoveryState::Superseded);
        self.tokens.push(token);
    }

    /// One was used, so none is valid any more.
    pub(super) fn spend(&mut self, id: TokenId, used: RecoveryState) {
        self.refused = None;
        self.end(id, used);
        self.end_all(&RecoveryState::Superseded);
    }

    /// An operator ended them, and nothing else about the node.
    pub(super) fn revoke_tokens(&mut self, revoked: &[TokenId]) {
        for token in self.tokens.iter_mut().filter(|token| revoked.contains(&token.id)) {
            token.state = RecoveryState::Revoked;
        }
    }

    /// The node begins a new life, or has ended.
    pub(super) fn revoke(&mut self) {
        self.end_all(&RecoveryState::Revoked);
        (self.underway, self.repairing) = (false, false);
    }

    /// An operator let the node go: what was to repair it is not needed.
    pub(super) fn release(&mut self) {
        let repair = |token: &&mut RecoveryToken| token.kind == RecoveryKind::Repair && token.is_valid();
        for token in self.tokens.iter_mut().filter(repair) {
            token.state = RecoveryState::Revoked;
        }
        self.repairing = false;
    }

    fn end(&mut self, id: TokenId, how: RecoveryState) {
        if let Some(token) = self.tokens.iter_mut().find(|token| token.id == id) {
            token.state = how;
        }
    }

    fn end_all(&mut self, how: &RecoveryState) {
        for token in self.tokens.iter_mut().filter(|token| token.is_valid()) {
            token.state = how.clone();
        }
    }

    /// Forgets the oldest of those that have ended, beyond a few; answers with their hashes.
    pub(super) fn forget(&mut self) -> Vec<SecretHash> {
        let mut over = self.tokens.iter().filter(|token| !token.is_valid()).count().saturating_sub(ENDED);
        let mut forgotten = Vec::new();
        self.tokens.retain(|token| {
            let goes = over > 0 && !token.is_valid();
            if goes {
                over -= 1;
                forgotten.push(token.hash);
            }
            !goes
        });
        forgotten
    }
}

impl State {
    /// A recovery token, and whose it is, by the hash of the presented string.
    pub fn recovery_token_with_hash(&self, hash: &SecretHash) -> Option<(&super::Node, &RecoveryToken)> {
        let node = self.nodes.get(self.recovery_by_hash.get(hash)?)?;
        node.recovery.tokens.iter().find(|token| token.hash == *hash).map(|token| (node.as_ref(), token))
    }
}
