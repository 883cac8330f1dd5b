//! `enlist ca sign-intermediate`: on the machine where the root key is, without a control plane.

use super::issuer_request::{self, CertifiedIssuer};
use super::new_file;
use super::root_key::RootFlags;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::shell;
use ::server::clock;
use lifecycle::names::Span;
use pki::hierarchy::{self, HierarchyError};
use pki::pem;
use serde::Serialize;
use std::path::PathBuf;

/// In lines that fit a terminal of 80 columns: clap writes it in one.
pub const USAGE: &str = "enlist ca sign-intermediate [OPTIONS] --root-key <FILE|URI>
           --root-cert <FILE> --csr <FILE> --out <FILE>";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    root: RootFlags,
    /// File that `enlist ca roll prepare --csr-out` wrote, PEM: one CSR, or one for each of two issuers
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// New file for the certificates, in the order of the CSRs; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Lifetime of the certificates; they end with the root's at the latest
    #[arg(long, value_name = "DAYS", default_value_t = hierarchy::INTERMEDIATE_LIFETIME.secs() / 86_400,
        value_parser = clap::value_parser!(u64).range(1..=3652))]
    days: u64,
}

/// Two CSRs come from a roll of the root as well, and nothing in them tells.
const KEEPS_ROOT: &str = "both issuers are below the root that is active; if the roll was begun with --new-root, they will be refused: \
    sign the same file with `enlist ca sign-root` instead";

#[derive(Serialize)]
struct SignedIntermediates {
    /// Of the first certificate, for scripts of when there was always one.
    #[serde(flatten)]
    first: CertifiedIssuer,
    /// In the order of the CSRs.
    issuers: Vec<CertifiedIssuer>,
    out: String,
}

pub fn run(arguments: &Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let root = arguments.root.read()?;
    let requests = issuer_request::read(&arguments.csr)?;
    arguments.root.check_domain(&root, &requests, &arguments.csr)?;
    let lifetime = Span::from_days(arguments.days);
    let refused = |error: &HierarchyError| match error {
        HierarchyError::OwnKey => issuer_request::bad(&arguments.csr, error),
        _ => arguments.root.bad_certificate(error),
    };
    let signed = issuer_request::sign(&requests, &root, clock::now(), lifetime, refused)?;
    let (issuers, ders): (Vec<CertifiedIssuer>, Vec<Vec<u8>>) = signed.into_iter().unzip();
    let Some(first) = issuers.first().cloned() else {
        return Err(issuer_request::bad(&arguments.csr, &"no CSR in this file"));
    };
    new_file::write(&arguments.out, &pem::chain_pem(ders.iter().map(Vec::as_slice)))?;
    let report = SignedIntermediates { first, issuers, out: arguments.out.display().to_string() };
    output.document(&report, |report| {
        let submit = format!("ca roll prepare --cert {}", shell::quoted(&arguments.out));
        let submit = shell::paragraph(&shell::same_target(reach, &submit), output.screen());
        let text = text(report, output.screen());
        let text = match report.issuers.as_slice() {
            [_] => text,
            _ => format!("{text}{}\n", output.screen().hang(0, 0, KEEPS_ROOT)),
        };
        format!("{text}next, with the file on the control plane's machine:\n{submit}")
    })
}

fn text(report: &SignedIntermediates, screen: Screen) -> String {
    let mut text = match report.issuers.as_slice() {
        [_] => "the intermediate certificate is signed\n".to_owned(),
        both => format!("{} intermediate certificates are signed\n", both.len()),
    };
    for issuer in &report.issuers {
        text.push_str(&issuer_text(issuer, screen));
    }
    text + &Fields::new().with("written to", &report.out).text_on(screen)
}

/// An issuer's certificate, for people.
pub fn issuer_text(issuer: &CertifiedIssuer, screen: Screen) -> String {
    let fields = Fields::new()
        .with("issuer", &issuer.id)
        .with("use", issuer.usage)
        .with("subject", &issuer.subject)
        .with("serial", &issuer.serial)
        .with("fingerprint", &issuer.fingerprint)
        .with("valid until", &screen.full(&issuer.not_after));
    format!("{}\n", fields.text_on(screen))
}
