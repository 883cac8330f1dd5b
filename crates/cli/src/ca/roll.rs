//! `enlist ca roll`: the next issuer, step by step. The root key stays where it is.

use super::text;
use crate::confirm::ConfirmFlag;
use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::screen::Screen;
use crate::shell;
use crate::table::harmless;
use api::rest::ca::{ActivateIssuerRequest, Ca, PrepareRollRequest, RetireIssuer, Roll};
use client::rest;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Write the CSR of the next issuer, or submit the certificate that was signed for it
    Prepare {
        #[command(flatten)]
        input: PrepareInput,
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
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
    /// Retire the previous issuer, once no valid certificate depends on it
    Retire {
        /// Id of the issuer (ISSUER in `enlist ca show`); needed if several can be retired
        issuer: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct PrepareInput {
    /// Write the CSR to this file, PEM; sign it with `enlist ca sign-intermediate` where the root key is
    #[arg(long, value_name = "FILE")]
    csr_out: Option<PathBuf>,
    /// Submit this signed certificate, PEM; the global --cert, the operator certificate, goes before `ca`
    // The word has two meanings here: the one of this command, and the global flag's.
    #[arg(long, id = "signed", value_name = "FILE")]
    cert: Option<PathBuf>,
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    let next = RollStep { reach, screen: output.screen() };
    match command {
        Command::Prepare { input: PrepareInput { csr_out, cert }, client_cert: _, force } => {
            let certificate = cert.as_deref().map(reach::read).transpose()?;
            let certificate = certificate.map(|pem| String::from_utf8_lossy(&pem).into_owned());
            let path = rest::Path::new("/v1/ca/roll/prepare");
            let roll: Roll = operator.post(&path, &PrepareRollRequest { certificate }).await?;
            if let (Some(out), Some(request)) = (&csr_out, &roll.request) {
                write_request(out, request, force)?;
            }
            output.document(&roll, |roll| match &csr_out {
                Some(out) => next.sign(out),
                None => status(roll, &next),
            })
        }
        Command::Status => {
            let roll: Roll = operator.get(&rest::Path::new("/v1/ca/roll")).await?;
            output.document(&roll, |roll| status(roll, &next))
        }
        Command::Activate { force, confirm } => {
            let path = rest::Path::new("/v1/ca/roll/activate");
            let request = ActivateIssuerRequest { issuer: None, force, confirm: None };
            let ca: Ca = match operator.post(&path, &request).await {
                Ok(ca) => ca,
                Err(refused) => {
                    confirm.or_ask(refused, output)?;
                    let roll: Roll = operator.get(&rest::Path::new("/v1/ca/roll")).await?;
                    let request =
                        ActivateIssuerRequest { issuer: roll.issuer.clone(), force, confirm: roll.issuer };
                    operator.post(&path, &request).await?
                }
            };
            output.document(&ca, |ca| {
                let retires = is_retiring(ca);
                let after = if retires { next.retire() } else { DONE.to_owned() };
                format!("{}\n{after}", text(ca, output.screen()))
            })
        }
        Command::Retire { issuer } => {
            let path = rest::Path::new("/v1/ca/roll/retire");
            let ca: Ca = operator.post(&path, &RetireIssuer { issuer }).await?;
            output.document(&ca, |ca| {
                let more = is_retiring(ca);
                let after = if more { next.retire() } else { DONE.to_owned() };
                format!("{}\n{after}", text(ca, output.screen()))
            })
        }
    }
}

/// Whether an issuer is left that an operator retires: an ephemeral one is forgotten by itself.
fn is_retiring(ca: &Ca) -> bool {
    ca.issuers.iter().any(|issuer| issuer.state == "retiring" && issuer.kind != "ephemeral")
}

const DONE: &str = "the roll is complete: nothing is left to do\n";

/// The next step of a roll, with the command to paste.
struct RollStep<'a> {
    reach: &'a Reach,
    screen: Screen,
}

impl RollStep<'_> {
    fn sign(&self, csr: &Path) -> String {
        let certificate =
            csr.with_extension(if csr.extension() == Some("pem".as_ref()) { "crt" } else { "pem" });
        let (csr, certificate) = (shell::quoted(csr), shell::quoted(&certificate));
        let sign = format!(
            "enlist ca sign-intermediate --root-key FILE --root-cert FILE --csr {csr} --out {certificate}"
        );
        let sign = self.step(
            "sign it where the root key is; FILE stands for the root key and the root certificate:",
            &sign,
        );
        format!("the CSR is in {csr}\n{sign}{}", self.submit(&certificate))
    }

    fn submit(&self, certificate: &str) -> String {
        self.again("then submit the certificate:", &format!("ca roll prepare --cert {certificate}"))
    }

    fn retire(&self) -> String {
        let words = "next: every node gets a certificate of the new issuer when it renews; `enlist node rotate ID` makes a \
            node renew now; once no certificate of the previous issuer is valid, retire that issuer:";
        self.again(words, "ca roll retire")
    }

    fn again(&self, words: &str, command: &str) -> String {
        self.step(words, &shell::same_target(self.reach, command))
    }

    fn step(&self, words: &str, command: &str) -> String {
        format!("{}\n{}", self.screen.hang(0, 0, words), shell::paragraph(command, self.screen))
    }
}

/// The pending CSR may be written again to its file; a file with another content is overwritten only with --force.
fn write_request(out: &Path, request: &str, force: bool) -> Result<(), CommandError> {
    match std::fs::read(out) {
        Ok(found) if found == request.as_bytes() => return Ok(()),
        Ok(_) if !force => {
            return Err(CommandError::new(
                Exit::Usage,
                "file_exists",
                format!("{} exists already and does not hold this CSR", out.display()),
                "choose another path, or overwrite the file with --force; a repeated command gives the same CSR",
            ));
        }
        _ => {}
    }
    std::fs::write(out, request).map_err(|error| CommandError::file(out, &error))
}

fn status(roll: &Roll, next: &RollStep<'_>) -> String {
    let adoption = format!(
        "version {}, {} of {} nodes have it",
        roll.bundle_version, roll.adoption.current, roll.adoption.total
    );
    let lacking = roll.adoption.total.saturating_sub(roll.adoption.current);
    let step = match roll.stage.as_str() {
        "prepared" if lacking > 0 => next.again(
            "next: wait until all nodes have the trust bundle, then activate the issuer (--force does not wait for them):",
            "ca roll activate",
        ),
        "requested" => {
            let sign = "next: sign the CSR with the root key (`enlist ca sign-intermediate`)";
            format!("{}\n{}", next.screen.hang(0, 0, sign), next.submit("FILE"))
        }
        "prepared" => next.again("next: activate the issuer:", "ca roll activate"),
        "retiring" => next.retire(),
        _ => "no roll is in progress\n".to_owned(),
    };
    let mut fields = Fields::new()
        .with("stage", &roll.stage)
        .with_some("issuer", roll.issuer.as_deref())
        .with("trust bundle", &adoption);
    if !roll.missing.is_empty() {
        fields = fields.with("missing on", &harmless(&roll.missing.join(" ")));
    }
    format!("{}\n{step}", fields.text_on(next.screen))
}
