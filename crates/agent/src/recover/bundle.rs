//! A repair bundle, checked before anything of it is used. What was changed in it, the control plane finds out by
//! what is sent along.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use api::agent::BundleEvidence;
use client::{ServerUrl, Trust};
use lifecycle::names::Timestamp;
use pki::succession::without_cross_certificates;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::endpoint::RecoveryEndpoint;
use crate::code::AgentCode;
use crate::fault::Fault;
use crate::store::disk;
use crate::token::SecretToken;

const VERSION: u64 = 1;
/// A bundle holds one token and a few certificates.
const MOST: u64 = 256 * 1024;

#[derive(Debug)]
pub struct CheckedBundle {
    pub token: SecretToken,
    pub endpoint: RecoveryEndpoint,
    pub node_id: String,
    pub domain: String,
    pub issued_at: Timestamp,
    /// `issued_at` as it is written.
    written_at: String,
    expires_at: String,
    audit_seq: u64,
    audit_hash: String,
    pub recovery_profile_id: String,
    issued_by: String,
    recovery_url: String,
    recovery_ca_sha256: String,
}

/// Whom a host is known to be, or to have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    pub node: String,
    /// A token does not tell.
    pub domain: Option<String>,
}

#[derive(Deserialize)]
struct BundleFile {
    version: u64,
    node_id: String,
    domain: String,
    recovery_token: String,
    recovery_url: String,
    recovery_ca_pem: String,
    issued_by: String,
    issued_at: String,
    expires_at: String,
    audit_seq: u64,
    audit_hash: String,
    recovery_profile_id: String,
}

pub fn read(path: &Path, at: Timestamp) -> Result<CheckedBundle, Fault> {
    let wrong = |what: String| invalid(&format!("{}: {what}", path.display()));
    let file = disk::open(path).map_err(|error| not_read(path, &error))?;
    let found = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if !found.is_file() {
        return Err(wrong("is no file".to_owned()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(Fault::host(
            AgentCode::KeyExposed,
            format!("other users may read {}", path.display()),
            "if no other user has read it, close it with chmod 0600 and run the command again; otherwise ask an operator for another bundle",
        ));
    }
    let mut text = Zeroizing::new(Vec::new());
    file.take(MOST).read_to_end(&mut text).map_err(|error| wrong(error.to_string()))?;
    parse(&text, at).map_err(wrong)
}

fn parse(text: &[u8], at: Timestamp) -> Result<CheckedBundle, String> {
    // Where it is wrong, not what stands there.
    let written: BundleFile = serde_json::from_slice(text).map_err(|error| {
        format!("is not a repair bundle (line {}, column {})", error.line(), error.column())
    })?;
    let token = Zeroizing::new(written.recovery_token);
    if written.version != VERSION {
        return Err(format!("is of version {}, and this agent knows {VERSION}", written.version));
    }
    let issued_at = Timestamp::parse(&written.issued_at).map_err(|error| format!("issued_at: {error}"))?;
    let ends = Timestamp::parse(&written.expires_at).map_err(|error| format!("expires_at: {error}"))?;
    if at >= ends {
        return Err(format!("expired at {ends}"));
    }
    let url = ServerUrl::parse(&written.recovery_url).map_err(|error| format!("recovery_url: {error}"))?;
    let recovery_ca_sha256 = pki::digest::fingerprint(written.recovery_ca_pem.as_bytes()).pin();
    let cas = pki::pem::certificates(written.recovery_ca_pem.as_bytes());
    let cas = cas.map_err(|error| format!("recovery_ca_pem: {error}"))?;
    let trust = Trust::cas(without_cross_certificates(&cas));
    let token = SecretToken::new(token).ok_or("recovery_token is empty")?;
    if written.node_id.is_empty() || written.domain.is_empty() {
        return Err("names no node".to_owned());
    }
    Ok(CheckedBundle {
        token,
        endpoint: RecoveryEndpoint { servers: vec![url], trust },
        node_id: written.node_id,
        domain: written.domain,
        issued_at,
        written_at: written.issued_at,
        expires_at: written.expires_at,
        audit_seq: written.audit_seq,
        audit_hash: written.audit_hash,
        recovery_profile_id: written.recovery_profile_id,
        issued_by: written.issued_by,
        recovery_url: written.recovery_url,
        recovery_ca_sha256,
    })
}

impl CheckedBundle {
    /// Whether it is for the node that is here, if it can still be told which one that is.
    pub fn fits(&self, known: &[KnownNode]) -> Result<(), Fault> {
        let is = |known: &KnownNode| {
            known.node == self.node_id && known.domain.as_ref().is_none_or(|domain| *domain == self.domain)
        };
        let Some(other) = known.first() else { return Ok(()) };
        if known.iter().any(is) {
            return Ok(());
        }
        let of = other.domain.as_ref().map(|domain| format!(" of {domain}")).unwrap_or_default();
        Err(Fault::usage(
            AgentCode::BundleOfAnother,
            format!("the bundle is for {} of {}, and this is {}{of}", self.node_id, self.domain, other.node),
            "use the bundle on the host that it was made for; nothing was sent",
        ))
    }

    /// By which the control plane finds out what was changed.
    pub fn evidence(&self) -> BundleEvidence {
        BundleEvidence {
            expires_at: self.expires_at.clone(),
            audit_seq: self.audit_seq,
            audit_hash: self.audit_hash.clone(),
            recovery_profile_id: self.recovery_profile_id.clone(),
            domain: self.domain.clone(),
            issued_by: self.issued_by.clone(),
            issued_at: self.written_at.clone(),
            recovery_url: self.recovery_url.clone(),
            recovery_ca_sha256: self.recovery_ca_sha256.clone(),
        }
    }
}

fn not_read(path: &Path, error: &std::io::Error) -> Fault {
    let message = format!("{} cannot be read: {error}", path.display());
    let hint = "check the path given to --bundle, and that this user may read the file; nothing was sent";
    Fault::usage(AgentCode::BundleInvalid, message, hint)
}

fn invalid(what: &str) -> Fault {
    let hint = "ask an operator for another: `enlist node repair-bundle ID --out FILE`; nothing was sent";
    Fault::usage(AgentCode::BundleInvalid, what.to_owned(), hint)
}

#[cfg(test)]
mod tests {
    use lifecycle::names::TrustDomain;
    use serde_json::{Value, json};

    use super::*;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn check(change: impl FnOnce(&mut Value)) -> Result<CheckedBundle, String> {
        let domain = TrustDomain::parse("test.example").unwrap();
        let made = pki::hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let mut bundle = json!({
            "version": 1, "node_id": "n-1", "domain": "test.example", "recovery_token": "hush-hush",
            "recovery_profile_id": "p", "recovery_url": "https://there:1",
            "recovery_ca_pem": pki::pem::certificate_pem(&made.root_der), "issued_by": "op",
            "issued_at": "2027-01-01T00:00:00Z", "expires_at": "2027-02-01T00:00:00Z",
            "audit_seq": 7, "audit_hash": "ab",
        });
        change(&mut bundle);
        parse(bundle.to_string().as_bytes(), AT)
    }

    #[test]
    fn a_good_bundle_is_taken_and_never_shows_its_token() {
        let bundle = check(|_| ()).unwrap();
        assert_eq!((bundle.node_id.as_str(), bundle.evidence().audit_seq), ("n-1", 7));
        assert!(!format!("{bundle:?}").contains("hush"));
    }

    #[test]
    fn a_file_that_is_not_there_is_a_matter_of_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let fault = read(&dir.path().join("repair.json"), AT).unwrap_err();
        assert_eq!((fault.exit as u8, fault.code.as_str()), (2, "bundle_invalid"));
        assert!(fault.message.contains("repair.json cannot be read"), "{fault:?}");
        assert!(fault.hint.contains("check the path") && !fault.hint.contains("operator"), "{fault:?}");
    }

    #[test]
    fn it_fits_whom_it_names_and_where_nothing_tells_who_is_here() {
        let bundle = check(|_| ()).unwrap();
        let known = |node: &str, domain: Option<&str>| KnownNode {
            node: node.to_owned(),
            domain: domain.map(str::to_owned),
        };
        let code = |known: &[KnownNode]| bundle.fits(known).map_err(|fault| fault.code.to_string());
        assert_eq!(code(&[]), Ok(()));
        assert_eq!(code(&[known("n-1", Some("test.example"))]), Ok(()));
        assert_eq!(code(&[known("n-2", Some("test.example")), known("n-1", None)]), Ok(()), "enrolled anew");
        for other in [known("n-2", None), known("n-1", Some("other.example"))] {
            assert_eq!(code(&[other]), Err("bundle_of_another".to_owned()));
        }
    }

    #[test]
    fn every_wrong_one_is_refused_without_its_content() {
        for (key, value) in [
            ("version", json!(2)),
            ("expires_at", json!("2027-01-01T00:00:00Z")),
            ("expires_at", json!("some day")),
            ("issued_at", json!("some day")),
            ("recovery_url", json!("http://plain")),
            ("recovery_ca_pem", json!("none")),
            ("recovery_token", json!("")),
            ("recovery_token", json!(7)),
            ("node_id", json!("")),
            ("audit_seq", json!("hush-hush")),
        ] {
            let wrong = check(|bundle| bundle[key] = value.clone()).unwrap_err();
            assert!(!wrong.contains("hush"), "{wrong}");
        }
    }
}
