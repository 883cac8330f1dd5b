//! `[pkcs11]`: the token that holds the keys of issuers.

use super::form::{ABSOLUTE_PATH, Form};
use super::key::config_keys;
use super::mistake::ConfigMistake;
use super::shape::Required;
use pki::pkcs11::{PinSource, TokenSettings};
use std::path::PathBuf;

/// What PKCS#11 has room for.
const TOKEN_LABEL: usize = 32;
/// Room for what a roll appends to it.
const KEY_LABEL: usize = 100;

static TOKEN: Form<String> = Form {
    parse: |text| is_label(text, TOKEN_LABEL).then(|| text.to_owned()),
    expected: || format!("the label of a token: 1 to {TOKEN_LABEL} bytes without control characters"),
    is_secret: false,
};

static KEY: Form<String> = Form {
    parse: |text| is_label(text, KEY_LABEL).then(|| text.to_owned()),
    expected: || format!("the label of a key: 1 to {KEY_LABEL} bytes without control characters"),
    is_secret: false,
};

static PIN: Form<PinSource> = Form {
    parse: |text| PinSource::parse(text).ok(),
    expected: || "file:PATH or env:NAME, never the PIN itself".to_owned(),
    // It may be the PIN itself.
    is_secret: true,
};

/// Tokens pad their labels with spaces.
fn is_label(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && !text.ends_with(' ') && !text.chars().any(char::is_control)
}

config_keys! {
    /// `[pkcs11]` as written.
    pub struct RawPkcs11 as written;
    /// `[pkcs11]` key by key.
    pub struct Pkcs11Keys {
        /// PKCS#11 library of the HSM that holds the keys of issuers; see [ca.md](ca.md#keys-in-an-hsm)
        "module" module: Required<PathBuf> = Required(&ABSOLUTE_PATH, "");
        /// Label of the token in it
        "token" token: Required<String> = Required(&TOKEN, "");
        /// Label of the node issuer's key; that of the server issuer has `-server` appended, and keys that a roll makes have
        /// the use and eight hex digits
        "key" key: Required<String> = Required(&KEY, "");
        /// Where the PIN of the token's user is read from; a file must not be readable by others. A PIN that was refused is
        /// tried again when the file or the variable has changed
        "pin" pin: Required<PinSource> = Required(&PIN, "");
    }
}

/// What using the token needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pkcs11Config {
    pub token: TokenSettings,
    /// The label that those of keys begin with.
    pub key: String,
}

pub(super) fn usable(
    _: &RawPkcs11,
    keys: Option<Pkcs11Keys>,
    _: &mut Vec<ConfigMistake>,
) -> Option<Pkcs11Config> {
    let Pkcs11Keys { module, token, key, pin } = keys?;
    Some(Pkcs11Config { token: TokenSettings { module, token, pin }, key })
}

#[cfg(test)]
mod tests {
    use super::super::key::ConfigTable as _;
    use super::*;

    #[test]
    fn all_four_are_needed_and_a_pin_is_never_shown() {
        let mut mistakes = Vec::new();
        let raw = RawPkcs11 { pin: Some("123456".to_owned()), ..RawPkcs11::default() };
        assert!(raw.check("pkcs11.", &mut mistakes).is_none());
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(!told.concat().contains("123456"), "{told:?}");
    }

    #[test]
    fn labels_fit_into_a_token() {
        for good in ["t", "The Root", &"x".repeat(32)] {
            assert!((TOKEN.parse)(good).is_some(), "{good}");
        }
        for bad in ["", "t ", "a\nb", &"x".repeat(33)] {
            assert!((TOKEN.parse)(bad).is_none(), "{bad}");
        }
    }
}
