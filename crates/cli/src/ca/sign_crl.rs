//! `enlist ca sign-crl`: the root's list of issuers that hosts must not trust any more.

use super::issuer_request::facts;
use super::new_file;
use super::root_key::RootFlags;
use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::screen::Screen;
use crate::shell;
use ::server::clock;
use lifecycle::names::{IssuerId, Serial, Timestamp};
use pki::crl::RootListError;
use pki::describe::Facts;
use pki::issuer::{SigningIssuer, issuer_id};
use pki::verify::is_issued_by;
use pki::{crl, pem};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// In lines that fit a terminal of 80 columns: clap writes it in one.
pub const USAGE: &str = "enlist ca sign-crl [OPTIONS] --root-key <FILE|URI> --root-cert <FILE>
           [--previous <FILE>] [--issuer <FILE>...] --out <FILE>";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    root: RootFlags,
    /// Certificate of a revoked issuer, PEM, one per file; name every certificate that the root signed for a stolen key, and
    /// without --previous every issuer of earlier lists, because a new list replaces the last one. Without any, the list denies nobody:
    /// programs such as nginx want a list of the root all the same
    #[arg(long, value_name = "FILE", num_args = 1..)]
    issuer: Vec<PathBuf>,
    /// The list of this root that is on record, PEM (`enlist ca crl --roots` writes it): everything that it denies is denied by the
    /// new one too
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// New file for the list, PEM; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Number of the list; must be higher than that of the last one [default: seconds since 1970, or one more than that of
    /// --previous if that is higher]
    #[arg(long, value_name = "N")]
    number: Option<u64>,
}

#[derive(Serialize)]
struct RevokedIssuer {
    /// ISSUER in `enlist ca show`.
    id: String,
    subject: String,
    serial: String,
    fingerprint: String,
}

#[derive(Serialize)]
struct SignedRootList {
    number: u64,
    root: String,
    issuers: Vec<RevokedIssuer>,
    /// Serials of --previous that none of `issuers` has.
    carried_over: Vec<String>,
    next_update: String,
    out: String,
}

pub fn run(arguments: &Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let root = arguments.root.read()?;
    let mut issuers: Vec<(IssuerId, Facts)> = Vec::new();
    for path in &arguments.issuer {
        let named = issuer(path, &root)?;
        // Named twice, it is denied once.
        if issuers.iter().all(|(id, _)| *id != named.0) {
            issuers.push(named);
        }
    }
    let at = clock::now().whole_second();
    let previous = match &arguments.previous {
        Some(path) => Some(PreviousList::read(path, &root)?),
        None => None,
    };
    let number = arguments.number(previous.as_ref(), at.secs())?;
    let mut denied: Vec<_> = issuers.iter().map(|(_, facts)| (facts.serial.clone(), at)).collect();
    let carried = previous.map(|previous| previous.denied).unwrap_or_default();
    let is_new = |serial: &Serial| issuers.iter().all(|(_, facts)| facts.serial != *serial);
    let carried_over = carried.iter().filter(|(serial, _)| is_new(serial));
    let carried_over = carried_over.map(|(serial, _)| serial.to_string()).collect();
    // Of a certificate that is named twice, the earlier time counts.
    denied.extend(carried);
    let der = crl::sign_root_list(&root, &denied, number, at, root.not_after());
    let der = der.map_err(|error| arguments.root.bad_certificate(&error))?;
    // As the control plane will read it: what it refuses is better known here.
    crl::read_root_list(&der, &[root.certificate()])
        .map_err(|error| arguments.root.bad_certificate(&error))?
        .check(root.certificate())
        .map_err(|error| refused(&error))?;
    new_file::write(&arguments.out, &pem::crl_pem(&der))?;
    let report = SignedRootList {
        number,
        root: facts(root.certificate())?.fingerprint.pin(),
        issuers: issuers.into_iter().map(RevokedIssuer::from).collect(),
        carried_over,
        next_update: root.not_after().to_string(),
        out: arguments.out.display().to_string(),
    };
    output.document(&report, |report| {
        let import = format!("ca import-crl --file {}", shell::quoted(&arguments.out));
        let import = shell::paragraph(&shell::same_target(reach, &import), output.screen());
        let text = text(report, output.screen());
        format!("{text}next, with the list on the control plane's machine:\n{import}")
    })
}

/// No control plane would import the list, and no host would take it.
fn refused(error: &RootListError) -> CommandError {
    let hint = match error {
        RootListError::NumberTooHigh => {
            "leave --number out, or choose one that is a little higher than the last list's"
        }
        _ => "give the certificates of issuers below this root, each with a serial number of its own",
    };
    CommandError::new(Exit::Usage, "list_refused", format!("nothing was signed: {error}"), hint)
}

impl Arguments {
    /// Higher than that of the list on record, as far as that is known here.
    fn number(&self, previous: Option<&PreviousList>, now: u64) -> Result<u64, CommandError> {
        let Some(previous) = previous else { return Ok(self.number.unwrap_or(now)) };
        match self.number {
            None => Ok(now.max(previous.number.saturating_add(1))),
            Some(number) if number > previous.number => Ok(number),
            Some(number) => Err(CommandError::usage(
                format!(
                    "--number {number} is not higher than that of the list in --previous, {}",
                    previous.number
                ),
                "give a higher number, or leave --number out",
            )),
        }
    }
}

/// The list on record, whose entries the next one must have.
struct PreviousList {
    number: u64,
    denied: Vec<(Serial, Timestamp)>,
}

impl PreviousList {
    /// The newest list of this root in the file; while the root is being rolled, that of the other root stands beside it.
    fn read(path: &Path, root: &SigningIssuer) -> Result<Self, CommandError> {
        let bad = |why: &dyn std::fmt::Display| {
            let hint = "give the revocation list that is on record, PEM, as `enlist ca crl --roots` at the control plane writes it; \
                without a list on record leave --previous out";
            CommandError::new(Exit::Usage, "list_invalid", format!("{}: {why}", path.display()), hint)
        };
        let lists = pem::revocation_lists(&reach::read(path)?).map_err(|error| bad(&error))?;
        let (mut newest, mut refused) = (None::<Self>, RootListError::ForeignRoot);
        for der in lists {
            match crl::root_list_entries(&der, root.certificate()) {
                Ok((number, _)) if newest.as_ref().is_some_and(|newest| newest.number > number) => {}
                Ok((number, denied)) => newest = Some(Self { number, denied }),
                Err(RootListError::ForeignRoot) => {}
                Err(error) => refused = error,
            }
        }
        newest.ok_or_else(|| match refused {
            RootListError::ForeignRoot => {
                bad(&"the given root has not signed a revocation list in this file")
            }
            error => bad(&error),
        })
    }
}

impl From<(IssuerId, Facts)> for RevokedIssuer {
    fn from((id, facts): (IssuerId, Facts)) -> Self {
        Self {
            id: id.to_string(),
            subject: facts.subject,
            serial: facts.serial.to_string(),
            fingerprint: facts.fingerprint.pin(),
        }
    }
}

/// The one certificate in the file, of a CA that this root signed.
fn issuer(path: &Path, root: &SigningIssuer) -> Result<(IssuerId, Facts), CommandError> {
    let bad = |why: &dyn std::fmt::Display| {
        let hint = "give the certificate of an issuer that this root signed, PEM, one per file (`enlist ca show` lists \
            the issuers)";
        CommandError::new(Exit::Usage, "issuer_invalid", format!("{}: {why}", path.display()), hint)
    };
    let found = pem::certificates(&reach::read(path)?).map_err(|error| bad(&error))?;
    let [certificate] = found.as_slice() else {
        return Err(bad(&"more than one certificate in this file"));
    };
    let facts = pki::describe::facts(certificate).map_err(|error| bad(&error))?;
    if certificate.as_ref() == root.certificate() {
        return Err(bad(&"this is the root itself, and not an issuer below it"));
    }
    if facts.spki == pki::describe::facts(root.certificate()).map_err(|error| bad(&error))?.spki {
        return Err(bad(&"this is another certificate of the root's own key, and not of an issuer below it"));
    }
    if !facts.is_ca {
        return Err(bad(&"this is not a CA certificate"));
    }
    if !is_issued_by(certificate, root.certificate()) {
        return Err(bad(&"the given root has not signed this certificate"));
    }
    Ok((issuer_id(certificate), facts))
}

fn text(report: &SignedRootList, screen: Screen) -> String {
    let revoked = |issuer: &RevokedIssuer| {
        let fields = Fields::new()
            .with("revoked issuer", &issuer.id)
            .with("subject", &issuer.subject)
            .with("serial", &issuer.serial);
        format!("{}\n", fields.text_on(screen))
    };
    let issuers: String = report.issuers.iter().map(revoked).collect();
    let carried = Some(report.carried_over.join(" ")).filter(|serials| !serials.is_empty());
    let list = Fields::new()
        .with_some("carried over", carried.as_deref())
        .with("number", &report.number.to_string())
        .with("list", &report.out);
    let list = list.text_on(screen);
    format!("the revocation list of the root is signed\n{issuers}{list}")
}
