//! Confirmation: what would cut off many nodes at once is done only by whoever has named it twice. Revoking, quarantining or
//! decommissioning a node never asks: an operator under attack is not to be held up.

use super::{Actor, Rejection};
use crate::names::OperatorName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How many operators a question names.
const OPERATORS: usize = 10;

/// How many operators there are, and some of their names; whoever asks finds himself among them.
pub(super) fn named_operators(operators: &BTreeSet<&OperatorName>, actor: &Actor) -> String {
    let own = match actor {
        Actor::Operator { name, .. } => operators.get(name).copied(),
        Actor::Local { .. }
        | Actor::Key { .. }
        | Actor::Node { .. }
        | Actor::Svid { .. }
        | Actor::Stranger
        | Actor::Reconciler
        | Actor::Replica { .. } => None,
    };
    let others = operators.iter().copied().filter(|name| Some(*name) != own).map(ToString::to_string);
    let all = own.map(|name| format!("{name} (you)")).into_iter().chain(others);
    let more = operators.len().saturating_sub(OPERATORS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let names: Vec<String> = all.take(OPERATORS).collect();
    format!("({}): {}{more}", operators.len(), names.join(", "))
}

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
