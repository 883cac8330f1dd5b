//! One-time tokens: JWTs by which step-ca lets the holder of a provisioner's key ask for one thing.

use super::provisioner_key::{ProvisionerKey, ProvisionerKeyError};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lifecycle::names::{Serial, Span, Timestamp};
use serde_json::{Value, json};

/// How long a token is good. Each is sent at once, and step-ca allows a minute of difference between clocks.
const LIFE: Span = Span::from_minutes(5);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Key(#[from] ProvisionerKeyError),
}

/// What a certificate is asked for with.
pub struct SignToken<'a> {
    pub provisioner: &'a str,
    /// The address that the token is for.
    pub audience: &'a str,
    /// Unique: step-ca takes each once.
    pub id: &'a str,
    /// The common name and the other names of the CSR: step-ca refuses a request whose names its token does not repeat.
    pub csr_common_name: Option<&'a str>,
    pub csr_names: &'a [String],
    /// What the provisioner's template makes the certificate from.
    pub common_name: Option<&'a str>,
    /// A SPIFFE id.
    pub subject: &'a str,
    pub serial: &'a Serial,
    pub at: Timestamp,
}

pub fn sign_token(key: &ProvisionerKey, token: &SignToken<'_>) -> Result<String, TokenError> {
    let spiffe_id = token.subject;
    let claims = json!({
        "iss": token.provisioner,
        "aud": token.audience,
        "jti": token.id,
        // It may not be empty, and step-ca compares it with the CSR only if that has a common name.
        "sub": token.csr_common_name.filter(|name| !name.is_empty()).unwrap_or(spiffe_id),
        "sans": token.csr_names,
        "enlist": {
            "cn": token.common_name.unwrap_or_default(),
            "spiffe_id": spiffe_id,
            "serial": format!("0x{}", token.serial),
        },
    });
    signed(key, claims, token.at)
}

/// Revoking is asked for with the serial in decimal digits as the subject.
pub fn revoke_token(
    key: &ProvisionerKey,
    (provisioner, audience, id): (&str, &str, &str),
    serial: &Serial,
    at: Timestamp,
) -> Result<String, TokenError> {
    let claims = json!({ "iss": provisioner, "aud": audience, "jti": id, "sub": decimal(serial) });
    signed(key, claims, at)
}

fn signed(key: &ProvisionerKey, mut claims: Value, at: Timestamp) -> Result<String, TokenError> {
    let seconds = at.millis() / 1000;
    for (name, value) in [("iat", seconds), ("nbf", seconds), ("exp", at.plus(LIFE).millis() / 1000)] {
        if let Some(claims) = claims.as_object_mut() {
            claims.insert(name.to_owned(), value.into());
        }
    }
    let header = json!({ "alg": "ES256", "kid": key.key_id(), "typ": "JWT" });
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = key.sign(message.as_bytes())?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// A serial of up to 20 octets in decimal digits, as step-ca knows it.
fn decimal(serial: &Serial) -> String {
    let mut digits: Vec<u8> = vec![0];
    for hex in serial.as_str().chars().filter_map(|digit| digit.to_digit(16)) {
        let mut carry = hex;
        for digit in digits.iter_mut() {
            let value = u32::from(*digit) * 16 + carry;
            // Below ten, so it fits.
            *digit = u8::try_from(value % 10).unwrap_or_default();
            carry = value / 10;
        }
        while carry > 0 {
            digits.push(u8::try_from(carry % 10).unwrap_or_default());
            carry /= 10;
        }
    }
    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_ca::read;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    #[test]
    fn serials_are_written_in_decimal_digits() {
        let decimal = |hex: &str| decimal(&Serial::parse(hex).unwrap());
        assert_eq!(decimal("1"), "1");
        assert_eq!(decimal("ff"), "255");
        assert_eq!(decimal("ffffffffffffffffffffffffffffffff"), "340282366920938463463374607431768211455");
        assert_eq!(decimal("100000000000000000"), "295147905179352825856");
    }

    #[test]
    fn a_token_repeats_the_names_of_the_request_and_says_what_the_template_needs() {
        let found = read(include_bytes!("../../tests/data/provisioner.jwk"), None).unwrap();
        let public = found.bytes[32..].to_vec();
        let key = ProvisionerKey::from_bytes(&found.bytes, found.key_id.clone()).unwrap();
        let subject = "spiffe://fleet.example/tenant/default/agent/n-1";
        let token = sign_token(
            &key,
            &SignToken {
                provisioner: "enlist",
                audience: "https://ca.example/1.0/sign",
                id: "01J",
                csr_common_name: None,
                csr_names: &["host-1".to_owned()],
                common_name: Some("n-1"),
                subject,
                serial: &Serial::parse("5b02").unwrap(),
                at: Timestamp::from_secs(1_800_000_000),
            },
        )
        .unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public)
            .verify(message.as_bytes(), &signature)
            .unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        let decoded =
            |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
        assert_eq!(decoded(header)["kid"], found.key_id.as_str());
        let claims = decoded(claims);
        assert_eq!(claims["sub"], subject);
        assert_eq!(claims["sans"], json!(["host-1"]));
        assert_eq!(claims["enlist"]["serial"], "0x5b02");
        assert_eq!(
            (claims["nbf"].as_u64(), claims["exp"].as_u64()),
            (Some(1_800_000_000), Some(1_800_000_300))
        );
    }
}
