//! Why the HSM did not do what was asked.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum HsmError {
    #[error("the PKCS#11 module {} cannot be loaded: {why}", module.display())]
    Module { module: PathBuf, why: String },
    #[error("the PKCS#11 module {module} has no token labelled '{token}'")]
    TokenAbsent { module: String, token: String },
    #[error("the PKCS#11 module {module} has {count} tokens labelled '{token}'")]
    TokenAmbiguous { module: String, token: String, count: usize },
    #[error("the PIN of token '{token}' cannot be read: {why}")]
    PinUnreadable { token: String, why: String },
    #[error("token '{token}' refused the PIN from {pin} ({why})")]
    PinRefused { token: String, pin: String, why: String },
    #[error(
        "one more wrong PIN would lock token '{token}', so the PIN from {pin} is not tried: log in once with the right PIN \
         by other means, such as pkcs11-tool --login"
    )]
    PinFinalTry { token: String, pin: String },
    #[error("the PIN of token '{token}' is locked: have the token's security officer unlock it")]
    PinLocked { token: String },
    #[error("token '{token}' holds no private key labelled '{label}'")]
    KeyMissing { token: String, label: String },
    #[error("token '{token}' holds {count} private keys labelled '{label}'")]
    KeyAmbiguous { token: String, label: String, count: usize },
    #[error("the key labelled '{label}' is {found}; an issuer's key must be P-256 or P-384")]
    KeyKind { label: String, found: String },
    #[error(
        "the public part of the key labelled '{label}' is not in the token: import it beside the private key"
    )]
    PublicKeyMissing { label: String },
    #[error("the key labelled '{label}' is not the key of the issuer's certificate")]
    OtherKey { label: String },
    #[error("a key labelled '{label}' exists: a label is used once")]
    LabelTaken { label: String },
    #[error("the token made a key labelled '{label}' that can be extracted; it was removed")]
    Extractable { label: String },
    /// Anything else that a PKCS#11 function answered.
    #[error("the HSM failed: {answer} ({function}, module {module}, token '{token}')")]
    Device { answer: String, function: String, module: String, token: String },
    /// The process that has the session is not there.
    #[error("the process that calls the PKCS#11 module {module} {why}")]
    Session { module: String, why: String },
    #[error("the HSM cannot be used: {0}")]
    Unusable(String),
    #[error("the HSM did not answer within {0} s")]
    Late(u64),
    #[error("too many requests wait for the HSM")]
    Busy,
    #[error("the control plane is stopping")]
    Closed,
}

impl HsmError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Module { .. } => {
                "set module in [pkcs11] to the HSM's PKCS#11 library, and install what that library needs"
            }
            Self::TokenAbsent { .. } | Self::TokenAmbiguous { .. } => {
                "connect the token, or set token in [pkcs11] to a label that one token has (pkcs11-tool --list-slots)"
            }
            Self::PinUnreadable { .. } => "set pin in [pkcs11] to file:PATH (mode 0600) or env:NAME",
            Self::PinRefused { .. } => {
                "write the right PIN into its source: a file is noticed at once, an environment variable at the next start; \
                 until then it is not tried again, because tokens lock after a few wrong PINs"
            }
            Self::PinFinalTry { .. } | Self::PinLocked { .. } => {
                "unlock the PIN with the tools of the HSM's vendor"
            }
            Self::KeyMissing { .. } | Self::KeyAmbiguous { .. } | Self::PublicKeyMissing { .. } => {
                "restore the key into the token under its label, once (pkcs11-tool --list-objects)"
            }
            Self::KeyKind { .. } | Self::OtherKey { .. } => {
                "put the issuer's own key back under this label, or roll to a new issuer"
            }
            Self::LabelTaken { .. } => "choose another label",
            Self::Extractable { .. } => "configure the token so that it makes keys that cannot be extracted",
            Self::Device { .. } | Self::Session { .. } | Self::Unusable(_) | Self::Late(_) => {
                "check the HSM and the connection to it; the control plane tries again by itself"
            }
            Self::Busy => "try again; if this stays, the HSM is too slow for the load",
            Self::Closed => "try again",
        }
    }
}
