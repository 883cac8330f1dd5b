//! The file with a trust bundle of SPIRE: what of it is used, and what an operator put there by mistake.

use lifecycle::names::TrustDomain;
use pki::svid::TrustBundle;
use pki::{describe, pem};
use rustls::pki_types::CertificateDer;

/// All of the file or nothing of it. `own` are CAs of this domain: their certificates are no SVIDs.
pub fn read(name: &TrustDomain, text: &[u8], own: &[CertificateDer<'_>]) -> Result<TrustBundle, String> {
    if text.trim_ascii_start().starts_with(b"{") {
        return Err("it is JSON: write it as PEM, `spire-server bundle show -format pem`".to_owned());
    }
    if text.windows(PRIVATE_KEY.len()).any(|window| window == PRIVATE_KEY) {
        return Err(
            "it holds a private key: a trust bundle has certificates alone; move the key away".to_owned()
        );
    }
    let mut distinct: Vec<CertificateDer<'static>> = Vec::new();
    for (number, der) in (1..).zip(pem::certificates(text).map_err(|error| error.to_string())?) {
        if own.contains(&der) {
            return Err(format!("certificate {number} is a CA of this domain, not of {name}"));
        }
        if let Some(domain) = trust_domain(&der).filter(|domain| domain != name.as_str()) {
            return Err(format!("certificate {number} is a CA of the trust domain {domain}, not of {name}"));
        }
        if !distinct.contains(&der) {
            distinct.push(der);
        }
    }
    let bundle = pem::chain_pem(distinct.iter().map(|der| der.as_ref()));
    TrustBundle::read(name, bundle.as_bytes()).map_err(|error| error.to_string())
}

const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";

/// The one that a CA names, as SPIRE's do: `spiffe://DOMAIN`.
fn trust_domain(der: &CertificateDer<'_>) -> Option<String> {
    let uris = describe::uris(der);
    let rest = uris.iter().find_map(|uri| uri.strip_prefix("spiffe://"))?;
    Some(rest.split('/').next().unwrap_or_default().chars().take(255).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::Timestamp;

    #[test]
    fn what_is_no_bundle_of_the_trust_domain_is_refused_and_says_what_it_is() {
        let name = TrustDomain::parse("spire.example").expect("a name");
        let at = Timestamp::from_secs(1_800_000_000);
        let ca = pki::ephemeral::create(&name, [1; 16], at).expect("a CA");
        let one = pem::certificate_pem(ca.certificate());
        let refused = |text: &str, own: &[CertificateDer<'_>]| {
            read(&name, text.as_bytes(), own).err().unwrap_or_default()
        };
        assert_eq!(refused(&one, &[]), "");
        let twice = read(&name, format!("{one}{one}").as_bytes(), &[]).expect("a bundle");
        assert_eq!(twice.anchors().count(), 1);
        let own = CertificateDer::from(ca.certificate().to_vec());
        assert!(refused(&one, &[own]).contains("a CA of this domain"));
        assert!(refused("{\"keys\": []}", &[]).contains("-format pem"));
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(refused(&format!("{one}{key}"), &[]).contains("private key"));
    }
}
