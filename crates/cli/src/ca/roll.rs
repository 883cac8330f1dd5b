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
    /// Write the request for the next issuer's certificate, or bring the certificate that came back
    Prepare {
        #[command(flatten)]
        way: Way,
        /// Takes the place of the global flag, whose name is taken.
        #[arg(long, id = "cert", value_name = "FILE", hide = true)]
        client_cert: Option<PathBuf>,
        /// Write the request over another file of that name
        #[arg(long, requires = "csr_out")]
        force: bool,
    },
    /// Show how far the roll has come, and which nodes have not got the new trust bundle
    Status,
    /// Let the prepared issuer sign from now on
    Activate {
        /// Even if nodes have not got the new trust bundle
        #[arg(long)]
        force: bool,
    },
    /// End the trust in the issuer of before, once nothing good hangs on it
    Retire {
        /// Its id, if there are several
        issuer: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Way {
    /// Where to write the request, PEM; `enlist ca sign-intermediate` signs it where the root key is
    #[arg(long, value_name = "FILE")]
    csr_out: Option<PathBuf>,
    /// The certificate that was signed, PEM; to say which certificate to connect with, put that --cert first
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
                    "the request is in {}\nsign it where the root key is: enlist ca sign-intermediate \
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
            output.document(&ca, text)
        }
        Command::Retire { issuer } => {
            let path = rest::Path::new("/v1/ca/roll/retire");
            let ca: Ca = operator.post(&path, &RetireIssuer { issuer }).await?;
            output.document(&ca, text)
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
                format!("{} exists already and holds something else", out.display()),
                "choose another path, or overwrite it with --force; asking again gives the same request",
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
            "wait until all nodes have the bundle, then: enlist ca roll activate; --force leaves out those that lack it"
        }
        "requested" => "sign the request, then: enlist ca roll prepare --cert FILE",
        "prepared" => "enlist ca roll activate",
        "retiring" => "enlist ca roll retire, once `enlist ca show` counts no leaves on it",
        _ => "nothing is under way",
    };
    let mut fields = Fields::new()
        .with("stage", &roll.stage)
        .with_some("issuer", roll.issuer.as_deref())
        .with("bundle", &adoption);
    if !roll.missing.is_empty() {
        fields = fields.with("missing", &harmless(&roll.missing.join(" ")));
    }
    fields.with("next", next).text()
}
