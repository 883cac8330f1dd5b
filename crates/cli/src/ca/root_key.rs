//! The root key, where it is kept: read for the commands that work offline.

use super::issuer_request::RequestedIssuer;
use crate::error::{CommandError, Exit};
use crate::private_file;
use crate::reach;
use pki::hierarchy;
use pki::issuer::{IssuerError, SigningIssuer};
use pki::pem;
use pki::pkcs11::{Hsm, HsmError, HsmKey, KeyUri};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What is left to do when somebody else may have the root key.
const EXPOSED: &str = "the root key is exposed, and whoever has it can impersonate the control plane to every host: roll the \
    root at once, or initialize a new domain (docs/ca.md, \"An exposed root key\")";
const EXPOSED_NEW: &str = "make another key: nothing depends on this one yet";

/// The flags of every command that signs with the root key.
#[derive(Debug, clap::Args)]
pub struct RootFlags {
    /// Root key that `enlist server init`, or the last `enlist ca sign-root`, wrote, PEM; or one in an HSM, as a URI of RFC 7512:
    /// pkcs11:token=T;object=K?module-path=/lib.so&pin-source=file:/pin
    #[arg(long, value_name = "FILE|URI", value_hint = clap::ValueHint::FilePath)]
    pub root_key: String,
    /// Root certificate, PEM, or a bundle that contains it
    #[arg(long, value_name = "FILE")]
    pub root_cert: PathBuf,
}

impl RootFlags {
    /// The certificate in the file that belongs to the key.
    pub fn read(&self) -> Result<SigningIssuer, CommandError> {
        if KeyUri::is_one(&self.root_key) {
            return self.read_in_hsm();
        }
        let key_file = Path::new(&self.root_key);
        let key_pem = private_file::read_key(key_file, EXPOSED)
            .map_err(|error| error.or_bad(|why| bad_root(key_file, why)))?;
        let key_der = pem::private_key(&key_pem).map_err(|error| bad_root(key_file, &error))?;
        let found = pem::certificates(&reach::read(&self.root_cert)?);
        let mut mismatch = IssuerError::KeyMismatch;
        for certificate in found.map_err(|error| self.bad_certificate(&error))? {
            match SigningIssuer::new(&certificate, key_der.secret_der()) {
                Ok(root) => return Ok(root),
                Err(error @ IssuerError::PrivateKey(_)) => return Err(bad_root(key_file, &error)),
                Err(error) => mismatch = error,
            }
        }
        Err(self.bad_certificate(&mismatch))
    }

    fn read_in_hsm(&self) -> Result<SigningIssuer, CommandError> {
        let (hsm, key) = in_hsm(&self.root_key)?;
        let found = pem::certificates(&reach::read(&self.root_cert)?);
        let mut mismatch = IssuerError::KeyMismatch;
        for certificate in found.map_err(|error| self.bad_certificate(&error))? {
            if pki::describe::facts(&certificate).is_ok_and(|facts| facts.spki == key.spki()) {
                match SigningIssuer::in_hsm(&certificate, &hsm, key.label()) {
                    Ok(root) => return Ok(root),
                    Err(error) => mismatch = error,
                }
            }
        }
        Err(self.bad_certificate(&mismatch))
    }

    /// Refuses requests of another domain: what this root signed would be of no use there.
    pub fn check_domain(
        &self,
        root: &SigningIssuer,
        requests: &[RequestedIssuer],
        csr: &Path,
    ) -> Result<(), CommandError> {
        let Some(own) = hierarchy::domain_of_root(root.certificate()) else { return Ok(()) };
        let other = |request: &RequestedIssuer| request.domain.clone().filter(|domain| *domain != own);
        let Some(other) = requests.iter().find_map(other) else { return Ok(()) };
        let message = format!(
            "{} is the root of domain {own}, and the CSR in {} is of domain {other}",
            self.root_cert.display(),
            csr.display()
        );
        let hint = format!(
            "sign with the root key of {other} and its certificate; `enlist ca show` at the control plane of {other} prints the \
             pin of its root"
        );
        Err(CommandError::new(Exit::Usage, "ca_unusable", message, hint))
    }

    /// The root certificate cannot be used in this way.
    pub fn bad_certificate(&self, error: &dyn std::fmt::Display) -> CommandError {
        bad_root(&self.root_cert, error)
    }
}

/// The key that a URI names, which must be there and sign.
fn in_hsm(uri: &str) -> Result<(Arc<Hsm>, HsmKey), CommandError> {
    let uri = KeyUri::parse(uri).map_err(|error| {
        let example = "such as 'pkcs11:token=T;object=K?module-path=/lib.so&pin-source=file:/pin', in quotes";
        CommandError::usage(format!("the pkcs11 URI cannot be used: {error}"), example)
    })?;
    let opened = || {
        let hsm = Hsm::new(uri.settings.clone())?;
        let found = hsm.find(&uri.label)?;
        let key = hsm.key(&uri.label, &found.spki)?;
        key.check()?;
        Ok((hsm, key))
    };
    opened().map_err(|error: HsmError| {
        CommandError::new(Exit::Fault, "root_key_unavailable", error.to_string(), uri_remedy(&error))
    })
}

/// Here no control plane tries again by itself, and the URI says where everything is.
fn uri_remedy(error: &HsmError) -> &'static str {
    match error {
        HsmError::PinRefused { .. } => {
            "write the right PIN of the token's user into the file or variable that pin-source= names, then run the command \
             again; every wrong PIN counts, and tokens lock after a few"
        }
        HsmError::PinFinalTry { .. } | HsmError::PinLocked { .. } => error.remedy(),
        HsmError::PinUnreadable { .. } => {
            "give pin-source=file:PATH (mode 0600) or pin-source=env:NAME, with the PIN of the token's user in it"
        }
        _ => {
            "connect the token, and give its label as token=, the key's as object=, the HSM's PKCS#11 library as \
             module-path=, and the PIN's file (mode 0600) as pin-source="
        }
    }
}

/// The key of a new root.
pub enum NewRootKey {
    /// PKCS#8, SEC1 or PKCS#1 in DER.
    Der(Zeroizing<Vec<u8>>),
    InHsm(Arc<Hsm>, HsmKey),
}

/// A key that somebody made for a new root.
pub fn read_new(key: &str) -> Result<NewRootKey, CommandError> {
    if KeyUri::is_one(key) {
        return in_hsm(key).map(|(hsm, key)| NewRootKey::InHsm(hsm, key));
    }
    let path = Path::new(key);
    let key_pem =
        private_file::read_key(path, EXPOSED_NEW).map_err(|error| error.or_bad(|why| bad_new(key, why)))?;
    let key_der = pem::private_key(&key_pem).map_err(|error| bad_new(key, &error))?;
    Ok(NewRootKey::Der(Zeroizing::new(key_der.secret_der().to_vec())))
}

/// The key cannot become that of a new root.
pub fn bad_new(key: &str, error: &dyn std::fmt::Display) -> CommandError {
    let hint = "give a new private key, PEM, that no root has, or let --new-root-key-out make one";
    CommandError::new(Exit::Usage, "ca_unusable", format!("{key}: {error}"), hint)
}

fn bad_root(path: &Path, error: &dyn std::fmt::Display) -> CommandError {
    let message = format!("{}: {error}", path.display());
    let hint = "give the key of the active root as --root-key (it was printed or written by `enlist server init`, or by the last \
        `enlist ca sign-root`), and the certificate of that root as --root-cert (`enlist ca export --server`), PEM";
    CommandError::new(Exit::Usage, "ca_unusable", message, hint)
}
