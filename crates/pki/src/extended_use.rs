//! Extended key usages of issuers: what a use of an issuer is in X.509, and back.

use lifecycle::names::IssuerUse;
use rcgen::ExtendedKeyUsagePurpose;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, ParsedExtension, X509Extension};
use x509_parser::oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE;

/// An extended key usage that is stated twice, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnreadableUses;

/// What a certificate of an issuer of this use states: nothing for an issuer of every use.
pub(crate) fn purposes(usage: IssuerUse) -> Vec<ExtendedKeyUsagePurpose> {
    match usage {
        IssuerUse::Both => Vec::new(),
        IssuerUse::Node => vec![ExtendedKeyUsagePurpose::ClientAuth],
        IssuerUse::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
    }
}

/// The same in words, for messages.
pub(crate) fn words(usage: IssuerUse) -> &'static str {
    match usage {
        IssuerUse::Both => "absent",
        IssuerUse::Node => "clientAuth alone",
        IssuerUse::Server => "serverAuth alone",
    }
}

/// Whether exactly the extended key usage of this use is stated.
pub(crate) fn is_exactly(stated: Option<&ExtendedKeyUsage<'_>>, usage: IssuerUse) -> bool {
    issuer_use(stated) == Some(usage)
}

/// The use of an issuer that states this; none if there is no such issuer.
pub(crate) fn issuer_use(stated: Option<&ExtendedKeyUsage<'_>>) -> Option<IssuerUse> {
    let Some(stated) = stated else { return Some(IssuerUse::Both) };
    let others = stated.any
        || stated.code_signing
        || stated.email_protection
        || stated.time_stamping
        || stated.ocsp_signing
        || !stated.other.is_empty();
    match (stated.client_auth, stated.server_auth, others) {
        (true, false, false) => Some(IssuerUse::Node),
        (false, true, false) => Some(IssuerUse::Server),
        _ => None,
    }
}

/// What a certificate states; none if it states nothing.
pub(crate) fn of_certificate<'a>(
    certificate: &'a X509Certificate<'_>,
) -> Result<Option<&'a ExtendedKeyUsage<'a>>, UnreadableUses> {
    among(certificate.iter_extensions())
}

/// The one extended key usage among these extensions. The library's own search takes an unreadable one for none.
pub(crate) fn among<'a>(
    extensions: impl Iterator<Item = &'a X509Extension<'a>>,
) -> Result<Option<&'a ExtendedKeyUsage<'a>>, UnreadableUses> {
    let mut stated = extensions.filter(|extension| extension.oid == OID_X509_EXT_EXTENDED_KEY_USAGE);
    match (stated.next().map(X509Extension::parsed_extension), stated.next()) {
        (None, _) => Ok(None),
        (Some(ParsedExtension::ExtendedKeyUsage(usage)), None) => Ok(Some(usage)),
        _ => Err(UnreadableUses),
    }
}
