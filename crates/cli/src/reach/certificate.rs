//! The operator's certificate and its key, on disk.
//!
//! A renewal replaces two files, which no system call does at once. So the new certificate is written beside the old
//! one first, under a name with `.new`; then the key is replaced, then the certificate. Killed in between, it leaves
//! the new key, the old certificate, and beside it the one that fits: [`open`] takes that.

use super::pending_path;
use crate::error::{CommandError, Exit};
use crate::private_file;
use client::rest::ApiCredential;
use client::{OperatorApi, ServerUrl, TlsIdentity, Trust, TrustError};
use lifecycle::names::Timestamp;
use pki::describe::{self, Facts};
use std::path::{Path, PathBuf};

/// The certificate that is presented.
pub struct ClientCertificate {
    /// The file that it is in.
    pub path: PathBuf,
    pub facts: Facts,
}

pub fn open(
    servers: &[ServerUrl],
    trust: &Trust,
    cert: &Path,
    key: &Path,
) -> Result<(OperatorApi, ClientCertificate), CommandError> {
    let otherwise = "ask for another certificate: `enlist operator add` on the control plane";
    let key = private_file::read_key(key, otherwise).map_err(|error| {
        error.or_bad(|why| {
            let message = format!("the client key {}: {why}", key.display());
            CommandError::usage(message, "give the certificate as --cert, and its private key as --key, PEM")
        })
    })?;
    match with(servers, trust, cert, &key) {
        Err(failure) => {
            let other = pending_path(&cert.canonicalize().unwrap_or_else(|_| cert.to_owned()));
            with(servers, trust, &other, &key).map_err(|_| failure)
        }
        opened => opened,
    }
}

/// Fails if certificate and key do not belong together.
pub fn with(
    servers: &[ServerUrl],
    trust: &Trust,
    cert: &Path,
    key: &[u8],
) -> Result<(OperatorApi, ClientCertificate), CommandError> {
    let chain = super::read(cert)?;
    let identity = TlsIdentity::from_pem(&chain, key).map_err(client::Error::from)?;
    identity.check().map_err(|error| match error {
        TrustError::OtherKey => {
            let message = format!("the private key is not that of the certificate {}", cert.display());
            let hint = "give the two files that were written together, as --cert and --key (or ENLIST_CERT and ENLIST_KEY)";
            CommandError::usage(message, hint)
        }
        other => client::Error::from(other).into(),
    })?;
    let credential = ApiCredential::Certificate(identity);
    let operator = OperatorApi::over_tls(servers, trust, Some(&credential))?;
    Ok((operator, ClientCertificate { path: cert.to_owned(), facts: leaf(cert, &chain)? }))
}

fn leaf(path: &Path, chain: &[u8]) -> Result<Facts, CommandError> {
    let unreadable = || {
        let message = format!("{} holds no certificate that can be read", path.display());
        CommandError::usage(message, "give the certificate as it was issued, PEM")
    };
    let chain = pki::pem::certificates(chain).map_err(|_| unreadable())?;
    describe::facts(chain.first().ok_or_else(unreadable)?).map_err(|_| unreadable())
}

impl ClientCertificate {
    /// Refuses one that has expired, and says in good time how to renew it.
    pub fn check(&self, notices: bool) -> Result<(), CommandError> {
        let now = ::server::clock::now();
        match age(&self.facts, now) {
            Age::Expired => Err(self.expired()),
            Age::Late if notices => {
                let path = crate::table::harmless(&self.path.display().to_string());
                let until = self.facts.not_after;
                let mut stderr = anstream::stderr().lock();
                // A closed standard error does not fail the command.
                let _ = std::io::Write::write_fmt(
                    &mut stderr,
                    format_args!(
                        "notice: the certificate {path} ends at {until}; renew it: enlist operator renew\n"
                    ),
                );
                Ok(())
            }
            Age::Late | Age::Young => Ok(()),
        }
    }

    fn expired(&self) -> CommandError {
        let Facts { not_after, spiffe, .. } = &self.facts;
        let name = match spiffe.as_ref().map(|id| &id.path) {
            Some(lifecycle::names::SpiffePath::Operator { name }) => name.to_string(),
            _ => "NAME".to_owned(),
        };
        let message = format!("the certificate {} expired at {not_after}", self.path.display());
        let hint = format!(
            "it cannot be renewed any more: ask a platform-admin for `enlist operator remove {name}` and `enlist operator add {name} --role ROLE --out DIR`; if that time is still to come, correct this machine's clock"
        );
        CommandError::new(Exit::Refused, "cert_expired", message, hint)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Young,
    /// Two thirds of its life are over.
    Late,
    Expired,
}

fn age(facts: &Facts, now: Timestamp) -> Age {
    let life = facts.not_after.since(facts.not_before).millis();
    if now >= facts.not_after {
        Age::Expired
    } else if now.since(facts.not_before).millis() > life / 3 * 2 {
        Age::Late
    } else {
        Age::Young
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::TrustDomain;

    #[test]
    fn the_last_third_is_late_and_the_end_is_the_end() {
        let at = Timestamp::from_secs(1_800_000_000);
        let domain = TrustDomain::parse("test.example").unwrap();
        let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let facts = describe::facts(&made.root_der).unwrap();
        let life = facts.not_after.since(facts.not_before).secs();
        let after = |secs: u64| age(&facts, facts.not_before.plus(lifecycle::names::Span::from_secs(secs)));
        assert_eq!(after(0), Age::Young);
        assert_eq!(after(life / 2), Age::Young);
        assert_eq!(after(life / 3 * 2 + 9), Age::Late);
        assert_eq!(after(life - 1), Age::Late);
        assert_eq!(after(life), Age::Expired);
    }
}
