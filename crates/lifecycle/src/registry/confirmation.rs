//! Confirmation: what would cut off many nodes at once is done only by whoever has named it twice. Revoking, quarantining or
//! decommissioning a node never asks: an operator under attack is not to be held up.

use super::Rejection;
use serde::{Deserialize, Serialize};

/// What a caller said when it was asked whether it means it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// Nobody asks: commands of versions that did not, and the first values of a domain.
    #[default]
    NotAsked,
    /// The caller is asked, and has repeated this id or key.
    Asked(Option<String>),
}

impl Confirmation {
    pub fn is_not_asked(&self) -> bool {
        *self == Confirmation::NotAsked
    }

    /// Whether a command with these consequences may go on: `subject` is the id or key that must have been repeated.
    pub(super) fn check(&self, subject: &str, consequence: &str, affected: u64) -> Result<(), Rejection> {
        match self {
            Confirmation::NotAsked => Ok(()),
            Confirmation::Asked(Some(repeated)) if repeated == subject => Ok(()),
            Confirmation::Asked(_) => Err(Rejection::ConfirmationNeeded {
                subject: subject.to_owned(),
                consequence: consequence.to_owned(),
                affected,
            }),
        }
    }
}
