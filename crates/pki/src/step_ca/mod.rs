//! step-ca as an issuer, without its socket: the provisioner's key, the one-time tokens signed with it, and whether what comes back is
//! what was asked for.

mod answer;
mod encrypted_key;
mod names;
mod provisioner_key;
mod token;

pub use answer::{
    AskedLeaf, Misbehavior, ReceivedIntermediate, ReceivedLeaf, check, is_root, trusted_intermediates,
};
pub use names::misread_name;
pub use provisioner_key::{FoundProvisionerKey, ProvisionerKey, ProvisionerKeyError, read};
pub use token::{SignToken, TokenError, revoke_token, sign_token};
