//! `enlist ca`: what is trusted and what signs.

mod bootstrap;
mod import_crl;
mod issuer_request;
mod migrate;
mod new_file;
mod roll;
mod root_key;
mod sign_crl;
mod sign_intermediate;
mod sign_root;
mod step_ca;
mod update_trust;

use crate::confirm::ConfirmFlag;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::table::{Table, Tone, harmless_lines};
use api::rest::ca::{
    BundleQuery, Ca, CrlQuery, IssuerItem, RevokeIssuer, RewrapRequest, Rewrapped, RootItem,
};
use client::rest::Path;
use std::io::Write;

const NOBODY_SIGNS_NODES: &str = "no issuer signs for nodes, so no certificate can be issued to them: prepare and activate another issuer \
    first (`enlist ca roll prepare`)";
const NOBODY_SIGNS_SERVERS: &str = "no issuer signs for the control plane: prepare and activate another one (`enlist ca roll prepare \
    --use server`). Hosts do not know yet that this one is revoked: tell them with `enlist ca sign-crl`, where the root key is, \
    and `enlist ca import-crl`";

const ENROLL_AGAIN: &str = "nodes whose certificates it signed are refused from now on: enroll each of them again, with `enlist token create \
    --node ID` and on the host, with the agent stopped, `enlist-agent enroll` (with --replace if the agent does not know yet that its \
    certificate is refused)";
const RECOVER_OR_ENROLL: &str = "nodes whose certificates it signed are refused from now on: they recover, by themselves where they have a \
    recovery token, or are enrolled again with a new token";
const ADD_AGAIN: &str = "operators whose certificates it signed need new ones: on the control plane's machine, `enlist operator remove NAME` \
    and `enlist operator add NAME`";

const OWN_TENANTS: &str =
    "note: LEAVES and the nodes that have the trust bundle are those of your tenants only";

const NO_LIST: &str = "note: ephemeral issuers, which sign the certificates of nodes here, have no revocation list: the control \
    plane itself refuses what is revoked";

const NO_ROOT_LIST: &str =
    "note: no list of a root is on record: `enlist ca sign-crl` needs no --previous for the first one";

const SIGN_ROOT_LIST: &str = "has no revocation list here, so programs that want one for every CA of a chain, such as nginx and HAProxy, \
    refuse every certificate below it. Sign one where the root key is, with `enlist ca sign-crl --root-key FILE --root-cert FILE --out \
    root-crl.pem`, and import it with `enlist ca import-crl --file root-crl.pem`";

#[derive(serde::Serialize)]
struct RevocationLists {
    /// One block for each trusted issuer and each root that has a list.
    pem: String,
    /// Ephemeral issuers, which have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_list: Vec<String>,
    /// The fingerprints of trusted roots that have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roots_without_list: Vec<String>,
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
        server_url: Vec<String>,
        /// Write the certificate of this issuer alone (ISSUER in `enlist ca show`), such as one to be denied by `enlist ca sign-crl`
        #[arg(long, value_name = "ID")]
        issuer: Option<String>,
    },
    /// Write the certificate revocation lists to standard output, PEM, one block per trusted issuer and per root
    Crl {
        /// Write only the list of this issuer (ISSUER in `enlist ca show`)
        #[arg(long, value_name = "ID")]
        issuer: Option<String>,
        /// Write only the lists of the roots, by which hosts refuse issuers, as `enlist ca sign-crl --previous` takes them
        #[arg(long, conflicts_with = "issuer")]
        roots: bool,
    },
    /// Replace the issuer with a new one, step by step
    #[command(subcommand)]
    Roll(roll::Command),
    /// Revoke an issuer: the control plane refuses every certificate of a node or an operator that it signed at once
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
    /// Change how the step-ca behind this control plane is asked
    #[command(subcommand)]
    StepCa(step_ca::Command),
    /// Issue a bootstrap identity, which hosts share until they have one of their own; or list or revoke such
    ///
    /// With it a host may enroll and read the configuration that policy `bootstrap.read` allows, and nothing else. The same name may be
    /// issued again, such as for the next image: the certificates before stay valid until they end or the name is revoked.
    Bootstrap(bootstrap::Arguments),
    /// Import the revocation list of a root: every host refuses the issuers that it names
    ImportCrl(import_crl::Arguments),
    /// Bring the CA file of --ca or of the context up to date: new roots, and revocation lists of issuers to refuse
    ///
    /// Replaces FILE if the root has rolled, and writes the lists that the roots have signed beside it (ca.pem: ca-crls.pem). A root is
    /// taken only if one in FILE vouches for it, a list only if it is not older. No credential is sent. FILE should hold the CA of
    /// one control plane alone: others are removed from it.
    UpdateTrust,
    /// Move the keys of the issuers elsewhere: roll to new issuers whose keys are there
    Migrate(migrate::Arguments),
    /// Sign the CSRs of new issuers with the root key; works offline, without a control plane
    #[command(override_usage = sign_intermediate::USAGE)]
    SignIntermediate(sign_intermediate::Arguments),
    /// Make a new root and cross-sign it with the old one, with issuers below it; works offline, without a control
    /// plane
    #[command(override_usage = sign_root::USAGE)]
    SignRoot(sign_root::Arguments),
    /// Sign the root's list of revoked issuers, for hosts; works offline, without a control plane
    #[command(override_usage = sign_crl::USAGE)]
    SignCrl(sign_crl::Arguments),
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Show => {
            let operator = reach.operator()?;
            let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
            output.document(&ca, |ca| text(ca, output.screen()))
        }
        Command::Export { server, server_url: _, issuer } => {
            let named = server.clone().flatten().map(|url| vec![url]);
            let reach = Reach { server: named.unwrap_or_else(|| reach.server.clone()), ..reach.clone() };
            let query = BundleQuery { server: (server == Some(None)).then_some(true), issuer, nodes: None };
            let pem = trust_bundle(&reach, &query).await?;
            output.document(&serde_json::json!({ "pem": pem }), |_| pem.clone())
        }
        Command::Crl { issuer, roots } => {
            let lists = revocation_lists(reach, issuer, roots).await?;
            output.document(&lists, |lists| lists.pem.clone())
        }
        Command::Roll(command) => roll::run(command, reach, output).await,
        Command::Revoke { issuer, reason, confirm } => {
            let path = Path::new("/v1/ca/issuers").segment(&issuer).segment("revoke");
            let (operator, request) = (reach.operator()?, RevokeIssuer { reason, confirm: None });
            let before: Ca = operator.get(&Path::new("/v1/ca")).await?;
            let before = before.issuers.into_iter().find(|item| item.id == issuer);
            let ca: Ca = match operator.post(&path, &request).await {
                Ok(ca) => ca,
                Err(refused) => {
                    confirm.or_ask(refused, output)?;
                    operator.post(&path, &RevokeIssuer { confirm: Some(issuer), ..request }).await?
                }
            };
            output.document(&ca, |ca| {
                let screen = output.screen();
                let after = after_revocation(ca, before.as_ref());
                let after: String = after.into_iter().map(|text| screen.hang(0, 0, text) + "\n").collect();
                format!("{}{after}", text(ca, screen))
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
                     back up this key, and keep any earlier one as long as you keep backups made with it\n{warnings}",
                    done.kek_id
                );
                output.screen().hang(0, 0, &told)
            })
        }
        Command::StepCa(command) => step_ca::run(command, reach, output).await,
        Command::Bootstrap(arguments) => bootstrap::run(arguments, reach, output).await,
        Command::ImportCrl(arguments) => import_crl::run(arguments, reach, output).await,
        Command::UpdateTrust => update_trust::run(reach, output).await,
        Command::Migrate(arguments) => migrate::run(arguments, reach, output).await,
        Command::SignIntermediate(arguments) => {
            reach.only_dir()?;
            sign_intermediate::run(&arguments, reach, output)
        }
        Command::SignRoot(arguments) => {
            reach.only_dir()?;
            sign_root::run(&arguments, reach, output)
        }
        Command::SignCrl(arguments) => {
            reach.only_dir()?;
            sign_crl::run(&arguments, reach, output)
        }
    }
}

/// The lists, and on standard error what is missing of them.
async fn revocation_lists(
    reach: &Reach,
    issuer: Option<String>,
    roots: bool,
) -> Result<RevocationLists, CommandError> {
    let operator = reach.operator()?;
    let names_one = issuer.is_some();
    let query = CrlQuery { format: Some("pem".to_owned()), issuer, roots: roots.then_some(true) };
    let pem = operator.text(&Path::new("/v1/ca/crl").queries(&query)?).await?;
    let mut lists = RevocationLists { pem, without_list: Vec::new(), roots_without_list: Vec::new() };
    let mut notes = Vec::new();
    if roots && lists.pem.is_empty() {
        notes.push(NO_ROOT_LIST.to_owned());
    }
    if !roots && !names_one {
        let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
        let ephemeral = ca.issuers.iter().filter(|issuer| issuer.kind == "ephemeral");
        lists.without_list = ephemeral.map(|issuer| issuer.id.clone()).collect();
        notes.extend((!lists.without_list.is_empty()).then(|| NO_LIST.to_owned()));
        lists.roots_without_list = roots_without_list(&ca).map(|root| root.fingerprint.clone()).collect();
        let of_root = |root: &String| format!("note: root {} {SIGN_ROOT_LIST}", short_root(root));
        notes.extend(lists.roots_without_list.iter().map(of_root));
    }
    for note in notes {
        // Standard error may be closed; the document says the same.
        let _ = writeln!(anstream::stderr(), "{}", Screen::of_stderr().hang(0, 0, &note));
    }
    Ok(lists)
}

/// An imported CA may be its own root, and signs its list itself.
fn roots_without_list(ca: &Ca) -> impl Iterator<Item = &RootItem> {
    ca.roots.iter().filter(|root| {
        let signs = |issuer: &IssuerItem| issuer.crl && issuer.fingerprint == root.fingerprint;
        let has_list =
            ca.lists.iter().any(|list| list.root == root.fingerprint) || ca.issuers.iter().any(signs);
        root.state != "retired" && !has_list
    })
}

/// What is left to do for those whom a revoked issuer has cut off; `before` is what it was.
fn after_revocation(ca: &Ca, before: Option<&IssuerItem>) -> Vec<&'static str> {
    let signs = |uses: [&str; 2]| {
        let active = ca.issuers.iter().filter(|issuer| issuer.state == "active");
        active.into_iter().any(|issuer| uses.contains(&issuer.usage.as_str()))
    };
    let has_nodes = before.is_some_and(|issuer| issuer.leaves > 0);
    let is_ephemeral = before.is_some_and(|issuer| issuer.kind == "ephemeral");
    let has_operators = before.is_some_and(|issuer| issuer.other_leaves > 0 && issuer.usage != "server");
    let words = [
        (!signs(["node", "both"]), NOBODY_SIGNS_NODES),
        (!signs(["server", "both"]), NOBODY_SIGNS_SERVERS),
        (has_nodes && is_ephemeral, RECOVER_OR_ENROLL),
        (has_nodes && !is_ephemeral, ENROLL_AGAIN),
        (has_operators, ADD_AGAIN),
    ];
    words.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words).collect()
}

/// What verifies nodes, or what hosts trust (`server`), PEM.
pub async fn trust_bundle(reach: &Reach, query: &BundleQuery) -> Result<String, CommandError> {
    Ok(reach.operator()?.text(&Path::new("/v1/ca/bundle").queries(query)?).await?)
}

fn text(ca: &Ca, screen: Screen) -> String {
    let adoption = format!("{} of {} nodes have it", ca.adoption.current, ca.adoption.total);
    let fields = Fields::new()
        .with("CA pin", &ca.root.fingerprint)
        .with("root valid until", &screen.full(&ca.root.not_after))
        .with("trust bundle", &format!("version {}, {adoption}", ca.bundle_version));
    let columns = ["ISSUER", "USE", "KIND", "STATE", "VALID UNTIL", "LEAVES", "ROOT", "SERIAL", "SUBJECT"];
    let mut table = Table::new(columns, "no issuers").dropping(["SUBJECT", "SERIAL", "KIND"]);
    for issuer in &ca.issuers {
        let leaves = match issuer.other_leaves {
            0 => issuer.leaves.to_string(),
            others => format!("{} ({} of nodes)", issuer.leaves.saturating_add(others), issuer.leaves),
        };
        let cells = [
            issuer.id.as_str(),
            &issuer.usage,
            &issuer.kind,
            &issuer.state,
            &issuer.not_after,
            &leaves,
            short_root(issuer.root.as_deref().unwrap_or("-")),
            &issuer.serial,
            &issuer.subject,
        ];
        table.row(Tone::Plain, cells);
    }
    let mut text = format!("{}\n{}", fields.text_on(screen), table.text(screen));
    for issuer in ca.issuers.iter().filter(|issuer| issuer.kind == "spire" && issuer.id != domain_of(issuer))
    {
        let line = format!(
            "issuer {} is a CA of the trust domain {}, whose SVIDs are accepted",
            issuer.id,
            domain_of(issuer)
        );
        text.push_str(&format!("\n{}\n", screen.hang(0, 2, &line)));
    }
    for issuer in &ca.issuers {
        if let Some(why) = &issuer.unavailable {
            let line = if issuer.kind == "spire" {
                format!("the trust bundle of {} cannot be used now: {why}", domain_of(issuer))
            } else if issuer.state == "prepared" {
                format!("issuer {} is prepared and could not sign: {why}", issuer.id)
            } else {
                format!("issuer {} does not sign: {why}", issuer.id)
            };
            text.push_str(&format!("\n{}\n", screen.hang(0, 2, &line)));
        }
    }
    if !ca.all_tenants {
        text.push_str(&format!("\n{}\n", screen.hang(0, 0, OWN_TENANTS)));
    }
    if ca.roots.len() > 1 {
        text.push('\n');
    }
    for root in ca.roots.iter().filter(|_| ca.roots.len() > 1) {
        let until = screen.full(&root.not_after);
        let (short, pin) = (short_root(&root.fingerprint), &root.fingerprint);
        text.push_str(&harmless_lines(&format!(
            "root {short}: {}, valid until {until}\n  {pin}",
            root.state
        )));
        text.push('\n');
    }
    for list in ca.lists.iter().filter(|list| !list.denied.is_empty()) {
        let line = format!(
            "revocation list {} of root {}: hosts refuse {}",
            list.number,
            short_root(&list.root),
            refused_issuers(ca, &list.denied)
        );
        text.push_str(&format!("\n{}\n", screen.hang(0, 2, &line)));
    }
    text
}

/// The trust domain that a CA of SPIRE is of.
fn domain_of(issuer: &IssuerItem) -> &str {
    issuer.trust_domain.as_deref().unwrap_or_default()
}

/// Whether the list of its root denies an issuer.
fn is_denied(ca: &Ca, issuer: &IssuerItem) -> bool {
    let of_root = ca.lists.iter().filter(|list| issuer.root.as_ref() == Some(&list.root));
    of_root.into_iter().any(|list| list.denied.contains(&issuer.serial))
}

/// The first digits of a fingerprint, as issuer ids are those of theirs.
fn short_root(fingerprint: &str) -> &str {
    let hex = fingerprint.strip_prefix("sha256:").unwrap_or(fingerprint);
    hex.get(..8).unwrap_or(hex)
}

/// The issuers that a list denies, by the ids of this table where they are in it.
fn refused_issuers(ca: &Ca, denied: &[String]) -> String {
    let named = |serial: &String| match ca.issuers.iter().find(|issuer| issuer.serial == *serial) {
        Some(issuer) => format!("{} (serial {serial})", issuer.id),
        // A root that was abandoned is not on record, nor is its cross-certificate.
        None => format!(
            "serial {serial} (of no issuer on record, such as the cross-certificate of an abandoned root)"
        ),
    };
    denied.iter().map(named).collect::<Vec<_>>().join(", ")
}
