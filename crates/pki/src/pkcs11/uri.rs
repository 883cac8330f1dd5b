//! `pkcs11:` URIs (RFC 7512), by which a key on another machine is named on a command line.

use std::path::PathBuf;

use super::{PinSource, TokenSettings};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyUriError {
    #[error("it does not begin with 'pkcs11:'")]
    Scheme,
    #[error("'{0}' is missing")]
    Missing(&'static str),
    #[error("'{0}' is there twice")]
    Twice(String),
    #[error("'{0}' is not supported; token, object, type=private, module-path and pin-source are")]
    Unsupported(String),
    #[error("pin-value would show the PIN in the list of processes: use pin-source=file:PATH")]
    PinValue,
    #[error("pin-source is file:PATH, an absolute path, or env:NAME")]
    PinSource,
    #[error("'{0}' is not percent-encoded UTF-8")]
    Encoding(String),
}

/// A key in a token: `pkcs11:token=T;object=K?module-path=/x.so&pin-source=file:/p`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUri {
    pub settings: TokenSettings,
    /// The key's label.
    pub label: String,
}

impl KeyUri {
    pub fn is_one(text: &str) -> bool {
        text.starts_with("pkcs11:")
    }

    pub fn parse(text: &str) -> Result<Self, KeyUriError> {
        let rest = text.strip_prefix("pkcs11:").ok_or(KeyUriError::Scheme)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let attributes = path.split(';').chain(query.split('&')).filter(|part| !part.is_empty());
        let (mut token, mut object, mut module, mut pin) = (None, None, None, None);
        for attribute in attributes {
            let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let place = match name {
                "token" => &mut token,
                "object" => &mut object,
                "module-path" => &mut module,
                "pin-source" => &mut pin,
                "type" if value == "private" => continue,
                "pin-value" => return Err(KeyUriError::PinValue),
                _ => return Err(KeyUriError::Unsupported(name.to_owned())),
            };
            if place.replace(decoded(name, value)?).is_some() {
                return Err(KeyUriError::Twice(name.to_owned()));
            }
        }
        let given = |value: Option<String>, name| {
            value.filter(|value| !value.is_empty()).ok_or(KeyUriError::Missing(name))
        };
        let pin = given(pin, "pin-source")?;
        Ok(Self {
            settings: TokenSettings {
                token: given(token, "token")?,
                module: PathBuf::from(given(module, "module-path")?),
                pin: pin_source(&pin).ok_or(KeyUriError::PinSource)?,
            },
            label: given(object, "object")?,
        })
    }
}

/// RFC 7512 leaves its form open: a path, or a `file:` URI with or without an empty host.
fn pin_source(text: &str) -> Option<PinSource> {
    if text.starts_with('/') {
        return Some(PinSource::File(PathBuf::from(text)));
    }
    let text = text.strip_prefix("file://").map_or_else(|| text.to_owned(), |path| format!("file:{path}"));
    PinSource::parse(&text).ok()
}

fn decoded(name: &str, value: &str) -> Result<String, KeyUriError> {
    let bad = || KeyUriError::Encoding(name.to_owned());
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let pair = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?];
                let mut octet = [0];
                hex::decode_to_slice(pair, &mut octet).map_err(|_| bad())?;
                let [octet] = octet;
                octet
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_module_token_key_and_pin() {
        let uri = KeyUri::parse(
            "pkcs11:token=The%20Root;object=root%3b1;type=private?module-path=/usr/lib/x.so&pin-source=file:/root/pin",
        )
        .unwrap();
        assert_eq!((uri.settings.token.as_str(), uri.label.as_str()), ("The Root", "root;1"));
        assert_eq!(uri.settings.module, PathBuf::from("/usr/lib/x.so"));
        for source in ["file:/root/pin", "file:///root/pin", "/root/pin", "file%3A%2Froot%2Fpin"] {
            let uri = KeyUri::parse(&format!("pkcs11:token=t;object=o?pin-source={source}&module-path=/x"))
                .unwrap();
            assert_eq!(uri.settings.pin, PinSource::File(PathBuf::from("/root/pin")), "{source}");
        }
    }

    #[test]
    fn what_is_missing_or_unknown_is_named_and_no_pin_is_taken() {
        let parse = |text: &str| KeyUri::parse(text).unwrap_err();
        assert_eq!(parse("root.key"), KeyUriError::Scheme);
        assert_eq!(parse("pkcs11:token=t;object=o?module-path=/x"), KeyUriError::Missing("pin-source"));
        assert_eq!(parse("pkcs11:object=o?module-path=/x&pin-source=/p"), KeyUriError::Missing("token"));
        assert_eq!(parse("pkcs11:token=t?module-path=/x&pin-source=/p"), KeyUriError::Missing("object"));
        assert_eq!(parse("pkcs11:token=t;object=o?pin-value=1234"), KeyUriError::PinValue);
        assert_eq!(parse("pkcs11:token=t;slot-id=3"), KeyUriError::Unsupported("slot-id".to_owned()));
        assert_eq!(parse("pkcs11:token=t;type=cert"), KeyUriError::Unsupported("type".to_owned()));
        assert_eq!(parse("pkcs11:token=t;token=u"), KeyUriError::Twice("token".to_owned()));
        assert_eq!(parse("pkcs11:token=%zz"), KeyUriError::Encoding("token".to_owned()));
        assert_eq!(parse("pkcs11:token=t;object=o?module-path=/x&pin-source=1234"), KeyUriError::PinSource);
    }
}
