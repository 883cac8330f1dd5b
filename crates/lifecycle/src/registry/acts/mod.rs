//! One file per act: find a rule by its verb.

use super::{Node, Rejection, State};
use crate::names::NodeId;

pub(super) mod alert;
pub(super) mod audit;
pub(super) mod confirm;
pub(super) mod contact;
pub(super) mod describe;
pub(super) mod drain;
pub(super) mod enroll;
pub(super) mod found;
pub(super) mod import;
pub(super) mod issuer;
pub(super) mod liveness;
pub(super) mod operator;
pub(super) mod policy;
pub(super) mod quarantine;
pub(super) mod recover;
pub(super) mod recovery_token;
pub(super) mod register;
pub(super) mod renew;
pub(super) mod renew_operator;
pub(super) mod repair;
pub(super) mod revoke;
pub(super) mod rotate;
pub(super) mod server_certificate;
pub(super) mod tenant;
pub(super) mod tidy;
pub(super) mod token;

/// A node that is not a tombstone.
fn living<'a>(state: &'a State, id: &NodeId) -> Result<&'a Node, Rejection> {
    match state.nodes.get(id) {
        None => Err(Rejection::NodeNotFound { node: id.clone() }),
        Some(node) if node.state.is_gone() => Err(Rejection::NodeRevoked { node: id.clone() }),
        Some(node) => Ok(node),
    }
}
