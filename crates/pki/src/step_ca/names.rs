//! Whether step-ca takes the names of a request for what they are.
//!
//! It compares the names of a CSR, kind by kind, with those of the one-time token. In the token they are text, and what looks like an
//! address, a URI or a mail address is taken for one. A name that looks like another kind makes it refuse the request (403), and so
//! does one that Go's library does not read (400), whatever the token says.

use crate::csr::VerifiedCsr;
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

/// How much of a name is shown.
const SHOWN: usize = 64;

/// The first name in a request that step-ca would refuse it for.
pub fn misread_name(csr: &VerifiedCsr) -> Option<String> {
    let (_, request) = X509CertificationRequest::from_der(&csr.der).ok()?;
    let names =
        request.requested_extensions().into_iter().flatten().filter_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => Some(names.general_names.as_slice()),
            _ => None,
        });
    names.flatten().find(|name| !is_what_it_looks_like(name)).map(shown)
}

fn is_what_it_looks_like(name: &GeneralName<'_>) -> bool {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    match name {
        GeneralName::DNSName(text) => {
            plain(text) && !text.contains([':', '@']) && text.parse::<IpAddr>().is_err()
        }
        GeneralName::RFC822Name(text) => plain(text) && text.contains('@') && !text.contains(':'),
        GeneralName::URI(text) => plain(text) && is_uri(text),
        GeneralName::IPAddress(octets) => matches!(octets.len(), 4 | 16),
        GeneralName::Invalid(..) => false,
        // It reads no other kinds.
        GeneralName::OtherName(..)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(_) => true,
    }
}

/// With a scheme, a host of labels if it has one, and percent signs only where they say something: less than Go reads.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    is_scheme && host.is_none_or(is_host) && rest.split('%').skip(1).all(is_escape)
}

fn is_host(text: &str) -> bool {
    let (name, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    is_port && (text.is_empty() || name.split('.').all(is_label))
}

fn shown(name: &GeneralName<'_>) -> String {
    let text = name.to_string();
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_another_kind_are_told_from_those_that_do_not() {
        let (dns, mail, uri) = (GeneralName::DNSName, GeneralName::RFC822Name, GeneralName::URI);
        for good in [
            dns("host-1"),
            dns("*.example.org"),
            dns("_sip.example.org."),
            mail("a@b.example"),
            uri("spiffe://a.example/x/%7ey"),
            uri("HTTPS://EXAMPLE.org:8443/x?y=%20#z"),
            uri("urn:uuid:0-1"),
            uri("file:///x"),
            GeneralName::IPAddress(&[10, 0, 0, 1]),
            GeneralName::IPAddress(&[0; 16]),
        ] {
            assert!(is_what_it_looks_like(&good), "{good:?}");
        }
        for bad in [
            dns("10.0.0.1"),
            dns("::1"),
            dns("a@b.example"),
            dns("https://x/y"),
            dns("host:80"),
            dns(""),
            dns("a b"),
            dns("a\0b"),
            mail("not-a-mail"),
            mail("mailto:a@b.example"),
            uri("foo"),
            uri("/foo"),
            uri("1a:b"),
            uri("http://[::1"),
            uri("http://a..b/"),
            uri("http://user@a/"),
            uri("http://a:b/"),
            uri("spiffe://%zz"),
            uri("spiffe://a/%z"),
            uri("spiffe://a/%2"),
            uri(""),
            GeneralName::IPAddress(&[10, 0, 0]),
        ] {
            assert!(!is_what_it_looks_like(&bad), "{bad:?}");
        }
    }
}
