//! The certificates by which replicas show themselves to hosts and operators.

use lifecycle::names::{Span, Timestamp};
use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use rustls_pki_types::ServerName;
use zeroize::Zeroizing;

use crate::certificate::{SignError, Signed, Validity, blank, common_name, sign};
use crate::issuer::SigningIssuer;
use crate::leaf::validity;
use crate::signing_key::{SignatureError, SigningKey};

/// The common name of those who choose none. Nothing reads it.
pub const DEFAULT_COMMON_NAME: &str = "enlist-control-plane";

/// How far it reaches back before it was signed: a host whose clock is behind, within what is tolerated or a little
/// more, can still be told so.
const BACKDATE: Span = Span::from_hours(1);

pub struct ServerIdentity {
    pub key_pkcs8: Zeroizing<Vec<u8>>,
    pub signed: Signed,
}

/// A new P-256 key and its certificate for these DNS names and addresses, for server authentication only.
pub fn issue_server(
    issuer: &SigningIssuer,
    names: &[impl AsRef<str>],
    name: &str,
    serial: [u8; 16],
    at: Timestamp,
    lifetime: Span,
) -> Result<ServerIdentity, SignError> {
    let (key, key_pkcs8) = SigningKey::generate().map_err(|_| SignatureError::Library)?;
    let begin = at.whole_second().minus(BACKDATE).max(issuer.not_before());
    let validity = Validity { not_before: begin, ..validity(issuer, at, lifetime)? };
    let mut params = blank(serial, validity);
    params.distinguished_name = common_name(Some(name));
    params.subject_alt_names = names.iter().map(|name| alt_name(name.as_ref())).collect::<Result<_, _>>()?;
    if params.subject_alt_names.is_empty() {
        return Err(SignError::ServerName(String::new()));
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let signed = sign(issuer, &key, params, validity)?;
    Ok(ServerIdentity { key_pkcs8, signed })
}

fn alt_name(name: &str) -> Result<SanType, SignError> {
    match ServerName::try_from(name) {
        Ok(ServerName::IpAddress(address)) => Ok(SanType::IpAddress(address.into())),
        Ok(ServerName::DnsName(dns)) => Ok(SanType::DnsName(dns.as_ref().to_owned().try_into()?)),
        _ => Err(SignError::ServerName(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names_or_addresses() {
        assert!(matches!(alt_name("10.0.0.1").unwrap(), SanType::IpAddress(_)));
        assert!(matches!(alt_name("fd00::1").unwrap(), SanType::IpAddress(_)));
        assert!(matches!(alt_name("cp-1.example").unwrap(), SanType::DnsName(_)));
        for bad in ["", "*", "a b", "https://x", "x:443", "ä.example", "*.example"] {
            assert_eq!(alt_name(bad), Err(SignError::ServerName(bad.to_owned())));
        }
    }
}
