//! `enlist ca`: what is trusted and what signs.

mod roll;
mod sign_intermediate;

use crate::confirm::ConfirmFlag;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::table::{Table, Tone};
use api::rest::ca::{BundleQuery, Ca, CrlQuery, IssuerItem, RevokeIssuer, RewrapRequest, Rewrapped};
use client::rest::Path;
use std::io::Write;

const NOBODY_SIGNS: &str = "no issuer is active, so no certificate can be issued: prepare and activate another issuer \
    (`enlist ca roll prepare`), then enroll every node again with a new token";

const NO_LIST: &str = "note: ephemeral issuers, which sign the certificates of nodes here, have no revocation list: the control \
    plane itself refuses what is revoked";

#[derive(serde::Serialize)]
struct RevocationLists {
    /// One block for each issuer that has a list.
    pem: String,
    /// Ephemeral issuers, which have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_list: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the root, the issuers and how many nodes have the current trust bundle
    Show,
    /// Write the trust bundle that verifies node certificates to standard output, PEM
    Export {
        /// Without URL: write the CA that verifies the control plane's server certificate instead; with URL: connect
        /// to that control plane
        // The word has two meanings here: the one of this command, and the global flag's.
        #[arg(long, id = "server_trust", value_name = "URL")]
        server: Option<Option<String>>,
        /// Takes the place of the global flag, whose name is taken.
        #[arg(long, id = "server", value_name = "URL", hide = true)]
        server_url: Option<String>,
    },
    /// Write the certificate revocation lists to standard output, PEM, one block per issuer
    Crl {
        /// Write only the list of this issuer (ISSUER in `enlist ca show`)
        #[arg(long, value_name = "ID")]
        issuer: Option<String>,
    },
    /// Replace the issuer with a new one, step by step
    #[command(subcommand)]
    Roll(roll::Command),
    /// Revoke an issuer: every certificate that it signed is refused at once
    Revoke {
        /// Id of the issuer (ISSUER in `enlist ca show`)
        issuer: String,
        /// Reason, recorded in the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
    /// Seal every private key of the control plane under another key-encryption key
    Rewrap {
        /// New key-encryption key, as the control plane finds it: file:PATH (created if missing) or env:NAME
        #[arg(long, value_name = "KEK")]
        kek: String,
    },
    /// Sign the CSR of a new intermediate with the root key; works offline, without a control plane
    SignIntermediate(sign_intermediate::Arguments),
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Show => {
            let operator = reach.operator()?;
            let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
            output.document(&ca, |ca| text(ca, output.screen()))
        }
        Command::Export { server, server_url: _ } => {
            let url = server.clone().flatten().or_else(|| reach.server.clone());
            let reach = Reach { server: url, ..reach.clone() };
            let pem = trust_bundle(&reach, (server == Some(None)).then_some(true)).await?;
            output.document(&serde_json::json!({ "pem": pem }), |_| pem.clone())
        }
        Command::Crl { issuer } => {
            let operator = reach.operator()?;
            let (issuers, without_list) = match issuer {
                Some(id) => (vec![id], Vec::new()),
                None => {
                    let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
                    let of = |wanted: fn(&IssuerItem) -> bool| {
                        let issuers = ca.issuers.iter().filter(|issuer| wanted(issuer));
                        issuers.map(|issuer| issuer.id.clone()).collect::<Vec<_>>()
                    };
                    (of(|issuer| issuer.crl), of(|issuer| issuer.kind == "ephemeral"))
                }
            };
            let mut pem = String::new();
            for id in issuers {
                let query = CrlQuery { format: Some("pem".to_owned()), issuer: Some(id) };
                pem.push_str(&operator.text(&Path::new("/v1/ca/crl").queries(&query)?).await?);
            }
            let lists = RevocationLists { pem, without_list };
            if !lists.without_list.is_empty() {
                // Standard error may be closed; the document names them too.
                let _ = writeln!(anstream::stderr(), "{}", Screen::of_stderr().hang(0, 0, NO_LIST));
            }
            output.document(&lists, |lists| lists.pem.clone())
        }
        Command::Roll(command) => roll::run(command, reach, output).await,
        Command::Revoke { issuer, reason, confirm } => {
            let path = Path::new("/v1/ca/issuers").segment(&issuer).segment("revoke");
            let (operator, request) = (reach.operator()?, RevokeIssuer { reason, confirm: None });
            let ca: Ca = match operator.post(&path, &request).await {
                Ok(ca) => ca,
                Err(refused) => {
                    confirm.or_ask(refused, output)?;
                    operator.post(&path, &RevokeIssuer { confirm: Some(issuer), ..request }).await?
                }
            };
            output.document(&ca, |ca| {
                let signs = ca.issuers.iter().any(|issuer| issuer.state == "active");
                let screen = output.screen();
                let warning = if signs { String::new() } else { screen.hang(0, 0, NOBODY_SIGNS) + "\n" };
                format!("{}{warning}", text(ca, screen))
            })
        }
        Command::Rewrap { kek } => {
            let done: Rewrapped =
                reach.operator()?.post(&Path::new("/v1/ca/rewrap"), &RewrapRequest { kek }).await?;
            output.document(&done, |done| {
                let warnings: String =
                    done.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
                let told = format!(
                    "every private key is sealed under key-encryption key {}; enlist.toml names its source\n\
                     back up the new key, and keep the old one as long as you keep backups made with it\n{warnings}",
                    done.kek_id
                );
                output.screen().hang(0, 0, &told)
            })
        }
        Command::SignIntermediate(arguments) => {
            reach.only_dir()?;
            sign_intermediate::run(&arguments, reach, output)
        }
    }
}

/// What verifies nodes, or what hosts trust (`server`), PEM.
pub async fn trust_bundle(reach: &Reach, server: Option<bool>) -> Result<String, CommandError> {
    let query = BundleQuery { server };
    Ok(reach.operator()?.text(&Path::new("/v1/ca/bundle").queries(&query)?).await?)
}

fn text(ca: &Ca, screen: Screen) -> String {
    let adoption = format!("{} of {} nodes have it", ca.adoption.current, ca.adoption.total);
    let fields = Fields::new()
        .with("CA pin", &ca.root.fingerprint)
        .with("root valid until", &screen.full(&ca.root.not_after))
        .with("trust bundle", &format!("version {}, {adoption}", ca.bundle_version));
    let mut table = Table::new(["ISSUER", "KIND", "STATE", "VALID UNTIL", "LEAVES", "SUBJECT"], "no issuers")
        .dropping(["SUBJECT"]);
    for issuer in &ca.issuers {
        let leaves = match issuer.other_leaves {
            0 => issuer.leaves.to_string(),
            others => format!("{} (nodes {})", issuer.leaves.saturating_add(others), issuer.leaves),
        };
        let cells = [&issuer.id, &issuer.kind, &issuer.state, &issuer.not_after, &leaves, &issuer.subject];
        table.row(Tone::Plain, cells.map(String::as_str));
    }
    format!("{}\n{}", fields.text_on(screen), table.text(screen))
}
