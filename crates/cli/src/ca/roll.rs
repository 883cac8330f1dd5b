//! `enlist ca roll`: the next issuer, step by step. The root key stays where it is.

use super::text;
use crate::failure::{Exit, Failure};
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::table::harmless;
use api::rest::ca::{ActivateIssuer, Ca, PrepareRoll, RetireIssuer, Roll};
use client::rest;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write the CSR of the next issuer, or submit the certificate that was signed for it
    Prepare {
        #[command(flatten)]
        way: Way,
        /// Takes the place of the global flag, whose name is taken.
        #[arg(long, id = "cert", value_name = "FILE", hide = true)]
        client_cert: Option<PathBuf>,
        /// Overwrite an existing file at --csr-out
        #[arg(long, requires = "csr_out")]
        force: bool,
    },
    /// Show the stage of the roll, and the nodes that do not have the new trust bundle yet
    Status,
    /// Activate the prepared issuer: it signs every certificate from now on
    Activate {
        /// Activate even if some nodes do not have the new trust bundle
        #[arg(long)]
        force: bool,
    },
    /// Retire the previous issuer, once no valid certificate depends on it
    Retire {
        /// Id of the issuer (ISSUER in `enlist ca show`); needed if several can be retired
        issuer: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Way {
    /// Write the CSR to this file, PEM; sign it with `enlist ca sign-intermediate` where the root key is
    #[arg(long, value_name = "FILE")]
    csr_out: Option<PathBuf>,
    /// Submit this signed certificate, PEM; the global --cert, the operator certificate, goes before `ca`
    // The word has two meanings here: the one of this command, and the global flag's.
    #[arg(long, id = "signed", value_name = "FILE")]
    cert: Option<PathBuf>,
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), Failure> {
    let operator = reach.operator()?;
    match command {
        Command::Prepare { way: Way { csr_out, cert }, client_cert: _, force } => {
            let certificate = cert.as_deref().map(reach::read).transpose()?;
            let certificate = certificate.map(|pem| String::from_utf8_lossy(&pem).into_owned());
            let path = rest::Path::new("/v1/ca/roll/prepare");
            let roll: Roll = operator.post(&path, &PrepareRoll { certificate }).await?;
            if let (Some(out), Some(request)) = (&csr_out, &roll.request) {
                write_request(out, request, force)?;
            }
            output.document(&roll, |roll| match &csr_out {
                Some(out) => format!(
                    "the CSR is in {}\nsign it where the root key is: enlist ca sign-intermediate \
                     --root-key FILE --root-cert FILE --csr FILE --out FILE\n",
                    out.display()
                ),
                None => status(roll),
            })
        }
        Command::Status => {
            let roll: Roll = operator.get(&rest::Path::new("/v1/ca/roll")).await?;
            output.document(&roll, status)
        }
        Command::Activate { force } => {
            let body = ActivateIssuer { issuer: None, force };
            let ca: Ca = operator.post(&rest::Path::new("/v1/ca/roll/activate"), &body).await?;
            output.document(&ca, |ca| text(ca, output.screen()))
        }
        Command::Retire { issuer } => {
            let path = rest::Path::new("/v1/ca/roll/retire");
            let ca: Ca = operator.post(&path, &RetireIssuer { issuer }).await?;
            output.document(&ca, |ca| text(ca, output.screen()))
        }
    }
}

/// The request that is out may be written again where it lies; anything else there may be somebody's.
fn write_request(out: &Path, request: &str, force: bool) -> Result<(), Failure> {
    match std::fs::read(out) {
        Ok(found) if found == request.as_bytes() => return Ok(()),
        Ok(_) if !force => {
            return Err(Failure::new(
                Exit::Usage,
                "file_exists",
                format!("{} exists already and does not hold this CSR", out.display()),
                "choose another path, or overwrite the file with --force; a repeated command gives the same CSR",
            ));
        }
        _ => {}
    }
    std::fs::write(out, request).map_err(|error| Failure::file(out, &error))
}

fn status(roll: &Roll) -> String {
    let adoption = format!(
        "version {}, {} of {} nodes have it",
        roll.bundle_version, roll.adoption.current, roll.adoption.total
    );
    let lacking = roll.adoption.total.saturating_sub(roll.adoption.current);
    let next = match roll.stage.as_str() {
        "prepared" if lacking > 0 => {
            "wait until all nodes have the trust bundle, then: enlist ca roll activate; --force does not wait for them"
        }
        "requested" => "sign the CSR, then: enlist ca roll prepare --cert FILE",
        "prepared" => "enlist ca roll activate",
        "retiring" => "enlist ca roll retire, once `enlist ca show` counts no leaves of the previous issuer",
        _ => "no roll is in progress",
    };
    let mut fields = Fields::new()
        .with("stage", &roll.stage)
        .with_some("issuer", roll.issuer.as_deref())
        .with("trust bundle", &adoption);
    if !roll.missing.is_empty() {
        fields = fields.with("missing on", &harmless(&roll.missing.join(" ")));
    }
    fields.with("next", next).text()
}
