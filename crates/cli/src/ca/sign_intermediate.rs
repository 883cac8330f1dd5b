//! `enlist ca sign-intermediate`: on the machine where the root key is, without a control plane.

use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::private_file;
use crate::reach::{self, Reach};
use crate::shell;
use ::server::{chance, clock};
use lifecycle::names::Span;
use pki::hierarchy::{self, HierarchyError};
use pki::issuer::{IssuerError, SigningIssuer};
use pki::leaf::Signed;
use pki::{csr, describe, pem};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What is left to do when somebody else may have the root key.
const EXPOSED: &str = "the root key is exposed, and whoever has it can impersonate the control plane to every host: \
    initialize a new domain and enroll the hosts there (docs/ca.md, \"An exposed root key\")";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Root key that `enlist server init` printed or wrote, PEM
    #[arg(long, value_name = "FILE")]
    root_key: PathBuf,
    /// Root certificate, PEM, or a bundle that contains it
    #[arg(long, value_name = "FILE")]
    root_cert: PathBuf,
    /// CSR that `enlist ca roll prepare --csr-out` wrote, PEM
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// New file for the certificate; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Lifetime of the certificate; it ends with the root's at the latest
    #[arg(long, value_name = "DAYS", default_value_t = hierarchy::INTERMEDIATE_LIFETIME.secs() / 86_400,
        value_parser = clap::value_parser!(u64).range(1..=3652))]
    days: u64,
}

#[derive(Serialize)]
struct SignedIntermediate {
    subject: String,
    fingerprint: String,
    not_after: String,
    out: String,
}

pub fn run(arguments: &Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let root = root(&arguments.root_cert, &arguments.root_key)?;
    let request =
        csr::read(&reach::read(&arguments.csr)?).map_err(|error| bad_csr(&arguments.csr, &error))?;
    let at = clock::now();
    let serial = chance::serial(at).map_err(|error| CommandError::fault("chance", error.to_string()))?;
    let signed =
        hierarchy::sign_intermediate(&root, &request.spki, serial, at, Span::from_days(arguments.days));
    let signed = signed.map_err(|error| refused(arguments, &error))?;
    let report = report(&signed, &arguments.out)?;
    write(&arguments.out, &pem::certificate_pem(&signed.der))?;
    output.document(&report, |report| {
        let submit = format!("ca roll prepare --cert {}", shell::quoted(&arguments.out));
        let submit = shell::paragraph(&shell::same_target(reach, &submit), output.screen());
        format!("{}next, with the certificate on the control plane's machine:\n{submit}", text(report))
    })
}

/// The certificate in the file that belongs to the key.
fn root(certificates: &Path, key: &Path) -> Result<SigningIssuer, CommandError> {
    let key_pem = private_file::read(key, EXPOSED)?;
    let key_der = pem::private_key(&key_pem).map_err(|error| bad_root(key, &error))?;
    let found = pem::certificates(&reach::read(certificates)?);
    let mut mismatch = IssuerError::KeyMismatch;
    for certificate in found.map_err(|error| bad_root(certificates, &error))? {
        match SigningIssuer::new(&certificate, key_der.secret_der()) {
            Ok(root) => return Ok(root),
            Err(error @ IssuerError::PrivateKey(_)) => return Err(bad_root(key, &error)),
            Err(error) => mismatch = error,
        }
    }
    Err(bad_root(certificates, &mismatch))
}

fn bad_root(path: &Path, error: &dyn std::fmt::Display) -> CommandError {
    let message = format!("{}: {error}", path.display());
    let hint = "give the root key that `enlist server init` printed or wrote, and the root certificate of that key, PEM";
    CommandError::new(Exit::Usage, "ca_unusable", message, hint)
}

fn bad_csr(path: &Path, error: &dyn std::fmt::Display) -> CommandError {
    let message = format!("{}: {error}", path.display());
    let hint = "give the CSR as `enlist ca roll prepare --csr-out` wrote it: one PEM block, unchanged";
    CommandError::new(Exit::Usage, "csr_invalid", message, hint)
}

fn refused(arguments: &Arguments, error: &HierarchyError) -> CommandError {
    match error {
        HierarchyError::OwnKey => bad_csr(&arguments.csr, error),
        _ => bad_root(&arguments.root_cert, error),
    }
}

fn report(signed: &Signed, out: &Path) -> Result<SignedIntermediate, CommandError> {
    let facts =
        describe::facts(&signed.der).map_err(|error| CommandError::fault("signing", error.to_string()))?;
    Ok(SignedIntermediate {
        subject: facts.subject,
        fingerprint: facts.fingerprint.pin(),
        not_after: facts.not_after.to_string(),
        out: out.display().to_string(),
    })
}

fn write(path: &Path, pem: &str) -> Result<(), CommandError> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o644).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CommandError::exists(path, "choose another --out path"));
        }
        Err(error) => return Err(CommandError::file(path, &error)),
    };
    file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        CommandError::file(path, &error)
    })
}

fn text(report: &SignedIntermediate) -> String {
    let fields = Fields::new()
        .with("subject", &report.subject)
        .with("fingerprint", &report.fingerprint)
        .with("valid until", &report.not_after)
        .with("certificate", &report.out);
    format!("the intermediate certificate is signed\n{}", fields.text())
}
