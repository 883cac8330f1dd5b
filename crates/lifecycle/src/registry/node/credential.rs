//! What a caller without a certificate may prove itself with when it enrolls. Policy names the kinds that it accepts.

use crate::names::{SecretHash, Source};
use crate::registry::{HardwareIdentity, Policy, Rejection};
use serde::{Deserialize, Serialize};

/// What proves that a caller may enroll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredCredential", into = "StoredCredential")]
pub enum Credential {
    /// The hash of an enrollment token.
    Token(SecretHash),
    /// What a machine says of its hardware.
    Hardware(HardwareIdentity),
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
    Hardware(HardwareIdentity),
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
        self.accepts(attestor).then_some(()).ok_or(Rejection::AttestorNotAllowed)
    }

    pub(in crate::registry) fn accepts(&self, attestor: Attestor) -> bool {
        self.attestors.iter().any(|known| known == attestor.as_str())
    }

    /// Whether every enrollment must prove this too.
    pub fn requires(&self, attestor: Attestor) -> bool {
        self.attestors_require.iter().any(|needed| needed == attestor.as_str())
    }

    /// Whether a host with a token has to show its hardware too.
    pub fn needs_hardware_beside_token(&self) -> bool {
        self.requires(Attestor::Hardware) || !self.accepts(Attestor::JoinToken)
    }

    /// Do these kinds together let a host enroll: one that is enough, and all that are demanded?
    pub(in crate::registry) fn check_attested(&self, proven: &[Attestor]) -> Result<(), Rejection> {
        let enough = proven.iter().any(|attestor| self.accepts(*attestor));
        let demanded = self.attestors_require.iter();
        let all = demanded.map(String::as_str).all(|word| proven.iter().any(|known| known.as_str() == word));
        (enough && all).then_some(()).ok_or(Rejection::AttestorNotAllowed)
    }

    /// Whether what a machine says of its hardware is worth something from there.
    pub(in crate::registry) fn hears_hardware_from(&self, source: &Source) -> bool {
        let within = |address| self.hardware_source_cidrs.iter().any(|network| network.contains(address));
        match source {
            Source::Address(address) => self.hardware_source_cidrs.is_empty() || within(address),
            Source::Socket | Source::Internal => true,
        }
    }
}
