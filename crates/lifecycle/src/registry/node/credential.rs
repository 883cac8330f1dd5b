//! What a caller without a certificate may prove itself with when it enrolls. Policy names the kinds that it accepts.

use crate::names::{Label, SecretHash};
use crate::registry::{Policy, Rejection};
use serde::{Deserialize, Serialize};

/// What proves that a caller may enroll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredCredential", into = "StoredCredential")]
pub enum Credential {
    /// The hash of an enrollment token.
    Token(SecretHash),
    /// What a machine says of its hardware, each as `kind:value`.
    Hardware(Vec<Label>),
    /// The hash of a recovery token.
    Recovery(SecretHash),
}

/// A token is stored as its hash alone, as it was when tokens were the only kind; every other kind names itself.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredCredential {
    Token(SecretHash),
    NamedCredential(NamedCredential),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamedCredential {
    Hardware(Vec<Label>),
    Recovery(SecretHash),
}

impl From<StoredCredential> for Credential {
    fn from(stored: StoredCredential) -> Self {
        match stored {
            StoredCredential::Token(token) => Credential::Token(token),
            StoredCredential::NamedCredential(NamedCredential::Hardware(claims)) => {
                Credential::Hardware(claims)
            }
            StoredCredential::NamedCredential(NamedCredential::Recovery(token)) => {
                Credential::Recovery(token)
            }
        }
    }
}

impl From<Credential> for StoredCredential {
    fn from(credential: Credential) -> Self {
        match credential {
            Credential::Token(token) => StoredCredential::Token(token),
            Credential::Hardware(claims) => {
                StoredCredential::NamedCredential(NamedCredential::Hardware(claims))
            }
            Credential::Recovery(token) => {
                StoredCredential::NamedCredential(NamedCredential::Recovery(token))
            }
        }
    }
}

impl Credential {
    /// The hash of an enrollment token, if it is one.
    pub fn token(&self) -> Option<&SecretHash> {
        match self {
            Credential::Token(token) => Some(token),
            Credential::Hardware(_) | Credential::Recovery(_) => None,
        }
    }
}

/// A kind of credential, as policy names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attestor {
    JoinToken,
    Hardware,
    RecoveryToken,
}

impl Attestor {
    pub fn as_str(self) -> &'static str {
        match self {
            Attestor::JoinToken => "join-token",
            Attestor::Hardware => "hardware",
            Attestor::RecoveryToken => "recovery-token",
        }
    }
}

impl Policy {
    /// Does policy take this kind for proof enough?
    pub(in crate::registry) fn check_attestor(&self, attestor: Attestor) -> Result<(), Rejection> {
        let accepted = self.attestors.iter().any(|known| known == attestor.as_str());
        accepted.then_some(()).ok_or(Rejection::AttestorNotAllowed)
    }
}
