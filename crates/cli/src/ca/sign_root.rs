//! `enlist ca sign-root`: a new root, cross-signed by the old one, on the machine where the old root's key is.

use super::issuer_request::{self, CertifiedIssuer, RequestedIssuer, facts, serial};
use super::new_file;
use super::root_key::{self, NewRootKey, RootFlags};
use super::sign_intermediate::issuer_text;
use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::private_file::{PrivateFile, sync_dir};
use crate::reach::Reach;
use crate::screen::Screen;
use crate::shell;
use ::server::clock;
use lifecycle::names::{IssuerUse, Span};
use pki::describe::Facts;
use pki::hierarchy::{self, HierarchyError};
use pki::issuer::SigningIssuer;
use pki::{crl, pem};
use serde::Serialize;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// In lines that fit a terminal of 80 columns: clap writes it in one.
pub const USAGE: &str = "enlist ca sign-root [OPTIONS] --root-key <FILE|URI> --root-cert <FILE>
           --csr <FILE> --out <FILE>
           <--new-root-key-out <FILE>|--new-root-key <FILE|URI>>";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    root: RootFlags,
    /// File that `enlist ca roll prepare --new-root --csr-out` wrote, PEM: the CSRs of a node issuer and of a server issuer
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    #[command(flatten)]
    new_key: NewKeyFlags,
    /// New file for the new root, its cross-certificate, the issuers and the new root's revocation list, PEM; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Lifetime of the new root; the cross-certificate ends with the old root at the latest, issuers after a year
    #[arg(long, value_name = "DAYS", default_value_t = hierarchy::ROOT_LIFETIME.secs() / 86_400,
        value_parser = clap::value_parser!(u64).range(1..=9131))]
    days: u64,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct NewKeyFlags {
    /// New file for the new root's key, which is made here; readable by this user alone; must not exist
    #[arg(long, value_name = "FILE")]
    new_root_key_out: Option<PathBuf>,
    /// Key of the new root, PEM, if it was made elsewhere; or one in an HSM, as a pkcs11 URI (see --root-key); not the old
    /// root's
    #[arg(long, value_name = "FILE|URI", value_hint = clap::ValueHint::FilePath)]
    new_root_key: Option<String>,
}

#[derive(Serialize)]
struct CertifiedRoot {
    subject: String,
    serial: String,
    fingerprint: String,
    not_after: String,
}

impl From<Facts> for CertifiedRoot {
    fn from(facts: Facts) -> Self {
        Self {
            subject: facts.subject,
            serial: facts.serial.to_string(),
            fingerprint: facts.fingerprint.pin(),
            not_after: facts.not_after.to_string(),
        }
    }
}

#[derive(Serialize)]
struct SignedRoot {
    root: CertifiedRoot,
    /// The root's fingerprint, as hosts are given it.
    ca_pin: String,
    cross_certificate: CertifiedRoot,
    /// In the order of the CSRs.
    issuers: Vec<CertifiedIssuer>,
    out: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_out: Option<String>,
}

pub fn run(arguments: &Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    arguments.check_paths()?;
    let old = arguments.root.read()?;
    let requests = issuer_request::read(&arguments.csr)?;
    check_uses(&arguments.csr, &requests)?;
    arguments.root.check_domain(&old, &requests, &arguments.csr)?;
    let key = match &arguments.new_key.new_root_key {
        Some(file) => root_key::read_new(file)?,
        None => {
            let made = hierarchy::new_root_key();
            NewRootKey::Der(made.map_err(|error| CommandError::fault("key", error.to_string()))?)
        }
    };
    let at = clock::now();
    let refused = |error: &HierarchyError| arguments.refused(error);
    let serials = [serial(at)?, serial(at)?];
    let lifetime = Span::from_days(arguments.days);
    let made = match &key {
        NewRootKey::Der(der) => hierarchy::new_root(&old, der, at, lifetime, serials),
        NewRootKey::InHsm(_, key) => hierarchy::new_root_for(&old, key, at, lifetime, serials),
    };
    let made = made.map_err(|error| refused(&error))?;
    let root = match &key {
        NewRootKey::Der(der) => SigningIssuer::new(&made.root_der, der),
        NewRootKey::InHsm(hsm, key) => SigningIssuer::in_hsm(&made.root_der, hsm, key.label()),
    };
    let root = root.map_err(|error| refused(&error.into()))?;
    let old_key = facts(old.certificate())?.spki;
    if requests.iter().any(|request| request.spki == old_key) {
        return Err(refused(&HierarchyError::OwnKey));
    }
    let signed = issuer_request::sign(&requests, &root, at, hierarchy::INTERMEDIATE_LIFETIME, refused)?;
    let (issuers, ders): (Vec<CertifiedIssuer>, Vec<Vec<u8>>) = signed.into_iter().unzip();
    let new = facts(&made.root_der)?;
    let report = SignedRoot {
        ca_pin: new.fingerprint.pin(),
        root: new.into(),
        cross_certificate: facts(&made.cross_der)?.into(),
        issuers,
        out: arguments.out.display().to_string(),
        key_out: arguments.new_key.new_root_key_out.as_ref().map(|path| path.display().to_string()),
    };
    let all = [&made.root_der, &made.cross_der].into_iter().chain(&ders);
    let list = crl::sign_first_root_list(&root, at).map_err(|error| refused(&error.into()))?;
    let certificates = pem::chain_pem(all.map(Vec::as_slice)) + &pem::crl_pem(&list);
    match (&arguments.new_key.new_root_key_out, &key) {
        (Some(path), NewRootKey::Der(der)) => {
            with_key_file(path, der, || new_file::write(&arguments.out, &certificates))?;
        }
        _ => new_file::write(&arguments.out, &certificates)?,
    }
    output.document(&report, |report| {
        let submit = format!("ca roll prepare --new-root --cert {}", shell::quoted(&arguments.out));
        let submit = shell::paragraph(&shell::same_target(reach, &submit), output.screen());
        let text = text(report, output.screen());
        format!("{text}next, with the certificates on the control plane's machine:\n{submit}")
    })
}

impl Arguments {
    /// Two files with one name would be one.
    fn check_paths(&self) -> Result<(), CommandError> {
        match &self.new_key.new_root_key_out {
            Some(key) if new_file::is_same(key, &self.out) => Err(CommandError::usage(
                format!("--new-root-key-out and --out are the same file, {}", key.display()),
                "give two paths: the key is for the safe, the certificates are for the control plane",
            )),
            _ => Ok(()),
        }
    }

    fn refused(&self, error: &HierarchyError) -> CommandError {
        match (error, &self.new_key.new_root_key) {
            (HierarchyError::OwnKey, _) => issuer_request::bad(&self.csr, error),
            (HierarchyError::OldKey | HierarchyError::Key(_), Some(key)) => root_key::bad_new(key, error),
            _ => self.root.bad_certificate(error),
        }
    }
}

/// A roll of the root has one of each use, and makes no key in vain for another.
fn check_uses(path: &Path, requests: &[RequestedIssuer]) -> Result<(), CommandError> {
    let of = |usage: IssuerUse| requests.iter().filter(|request| request.usage == usage).count();
    if (of(IssuerUse::Node), of(IssuerUse::Server), requests.len()) == (1, 1, 2) {
        return Ok(());
    }
    let found: Vec<&str> = requests.iter().map(|request| request.usage.as_str()).collect();
    let message = format!(
        "{}: a new root needs two CSRs, of a node issuer and of a server issuer; this file has: {}",
        path.display(),
        found.join(", ")
    );
    let hint = "if the roll keeps the root, sign the file with `enlist ca sign-intermediate`; to roll the root, begin with `enlist ca roll \
        prepare --new-root --csr-out FILE`";
    Err(CommandError::new(Exit::Usage, "csr_invalid", message, hint))
}

/// The key is on disk before there is a certificate of it, and is taken back if there will be none.
fn with_key_file(
    path: &Path,
    key: &Zeroizing<Vec<u8>>,
    write_certificates: impl FnOnce() -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut file = PrivateFile::create(path)?;
    file.write(pem::key_pem_pkcs8(key).as_bytes())?;
    sync_dir(path)?;
    write_certificates()?;
    file.keep();
    Ok(())
}

fn text(report: &SignedRoot, screen: Screen) -> String {
    let root = Fields::new()
        .with("subject", &report.root.subject)
        .with("CA pin", &report.ca_pin)
        .with("valid until", &screen.full(&report.root.not_after))
        .with("certified by the old root until", &screen.full(&report.cross_certificate.not_after))
        .with("cross-certificate serial", &report.cross_certificate.serial)
        .text_on(screen);
    let issuers: String = report.issuers.iter().map(|issuer| issuer_text(issuer, screen)).collect();
    let files = Fields::new()
        .with("certificates", &report.out)
        .with_some("new root key", report.key_out.as_deref())
        .text_on(screen);
    let keep = match report.key_out {
        Some(_) => {
            "keep the new root key offline, with a copy; keep the old one until the old root is retired\n"
        }
        None => "",
    };
    let keep = screen.hang(0, 0, keep);
    format!(
        "the new root is signed, and cross-signed by the old one\n{root}\nissuers below the new root:\n{issuers}{files}\n{keep}"
    )
}
