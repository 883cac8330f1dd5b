//! `enlist ca roll`: the next issuer, step by step. The root key stays where it is.

mod abandon;

use super::new_file::CsrFile;
use super::text;
use crate::confirm::ConfirmFlag;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::screen::Screen;
use crate::shell;
use crate::table::{Tone, harmless};
use api::rest::ca::{ActivateIssuerRequest, Ca, IssuerItem, PrepareRollRequest, RetireIssuer, Roll};
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
        /// Replace other CSRs in the file at --csr-out; a file with anything else is never replaced
        #[arg(long, requires = "csr_out")]
        force: bool,
        /// Roll the issuer of node and operator certificates, or that of the control plane's own; a domain that has one issuer
        /// for both gets one for each [default: node]
        #[arg(long = "use", value_name = "USE", value_parser = ["node", "server"], conflicts_with = "new_root")]
        usage: Option<String>,
        /// Roll the root as well, and both issuers with it; sign the CSRs with `enlist ca sign-root`
        #[arg(long)]
        new_root: bool,
    },
    /// Show the stage of the roll, and the nodes that do not have the new trust bundle yet
    Status,
    /// Activate the prepared issuers, and the new root with them: they sign every certificate from now on
    Activate {
        /// Activate even if some nodes do not have the new trust bundle
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
    /// Retire the previous issuers, and the previous root, once no valid certificate depends on them
    Retire {
        /// Retire only this issuer (ISSUER in `enlist ca show`)
        issuer: Option<String>,
        /// Retire the previous root even if nodes depend on it; these have to recover
        #[arg(long, conflicts_with = "issuer")]
        force: bool,
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
    /// Give up a roll that is not active yet: its CSRs, its prepared issuers and its new root are forgotten
    Abandon {
        #[command(flatten)]
        confirm: ConfirmFlag,
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
        Command::Prepare {
            input: PrepareInput { csr_out, cert },
            client_cert: _,
            force,
            usage,
            new_root,
        } => {
            if let Some(out) = csr_out {
                let keys = RollKeys { usage, new_root, kind: None };
                return begin(keys, &out, force, reach, output).await;
            }
            let certificate = cert.as_deref().map(reach::read_public).transpose()?;
            let request = PrepareRollRequest { certificate, usage, new_root, kind: None };
            let before: Roll = operator.get(&rest::Path::new("/v1/ca/roll")).await?;
            let roll: Roll = operator.post(&rest::Path::new(PREPARE), &request).await?;
            output.document(&roll, |roll| {
                let known = match (before.stage.as_str(), roll.stage.as_str()) {
                    ("prepared", "prepared") => SUBMITTED_BEFORE,
                    (_, "prepared") => "",
                    _ => TAKEN_BEFORE,
                };
                format!("{}{}", output.screen().hang(0, 0, known), status(roll, &next))
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
                let after = if is_retiring(ca) { next.retire(&Retiring::of(ca)) } else { next.done(ca) };
                format!("{}\n{after}", text(ca, output.screen()))
            })
        }
        Command::Abandon { confirm } => abandon::run(&confirm, reach, output).await,
        Command::Retire { issuer, force, confirm } => {
            let path = rest::Path::new("/v1/ca/roll/retire");
            let request = RetireIssuer { issuer, force, confirm: None };
            let mut left_behind = Vec::new();
            let ca: Ca = match operator.post(&path, &request).await {
                Ok(ca) => ca,
                Err(refused) => {
                    let nodes = refused.detail().affected;
                    confirm.or_ask(refused, output)?;
                    let ca: Ca = operator.get(&rest::Path::new("/v1/ca")).await?;
                    left_behind = left_behind_by(&ca, nodes);
                    let root = ca.roots.into_iter().find(|root| root.state == "retiring");
                    let confirm = root.map(|root| root.fingerprint);
                    operator.post(&path, &RetireIssuer { confirm, ..request }).await?
                }
            };
            output.document(&ca, |ca| {
                let after = if is_retiring(ca) { next.retire(&Retiring::of(ca)) } else { next.done(ca) };
                let screen = output.screen();
                let forced: String =
                    left_behind.iter().map(|words| format!("{}\n", screen.hang(0, 0, words))).collect();
                format!("{}\n{forced}{after}", text(ca, screen))
            })
        }
    }
}

const PREPARE: &str = "/v1/ca/roll/prepare";

const TAKEN_BEFORE: &str =
    "this certificate was submitted before and its issuer is active: nothing was changed\n";

const SUBMITTED_BEFORE: &str = "this certificate was submitted before: nothing was changed\n";

/// What a roll is to make.
pub struct RollKeys {
    /// `node`, `server` or `both`; nobody says it of a new root.
    pub usage: Option<String>,
    pub new_root: bool,
    /// Where the keys are kept; as those of the active issuer, if nobody says.
    pub kind: Option<String>,
}

/// Begins a roll and writes its CSRs. Whether they can be written is known before: a roll makes keys, in an HSM for good.
pub async fn begin(
    keys: RollKeys,
    out: &Path,
    force: bool,
    reach: &Reach,
    output: Output,
) -> Result<(), CommandError> {
    let RollKeys { usage, new_root, kind } = keys;
    let (file, operator) = (CsrFile::check(out, force)?, reach.operator()?);
    if !force {
        let known: Roll = operator.get(&rest::Path::new("/v1/ca/roll")).await?;
        // One that is prepared is refused, and nothing is made.
        if known.stage != "prepared" && file.holds_other(known.request.as_deref()) {
            return Err(file.exists());
        }
    }
    let request = PrepareRollRequest { certificate: None, usage, new_root, kind };
    let roll: Roll = operator.post(&rest::Path::new(PREPARE), &request).await?;
    if let Some(request) = &roll.request {
        file.write(request, force)?;
    }
    let next = RollStep { reach, screen: output.screen() };
    output.document(&roll, |roll| next.sign(out, roll))
}

/// Whether an issuer is left that an operator retires: an ephemeral one is forgotten by itself.
fn is_retiring(ca: &Ca) -> bool {
    ca.issuers.iter().any(|issuer| issuer.state == "retiring" && issuer.kind != "ephemeral")
        || ca.roots.iter().any(|root| root.state == "retiring")
}

const NODES_RECOVER: &str = "nodes whose certificates were issued below what is retired now have to recover, by themselves where they have a recovery token";
const OPERATORS_ADDED_AGAIN: &str = "operators whose certificates were issued below what is retired now need new ones: on the control plane's machine, \
    `enlist operator remove NAME` and `enlist operator add NAME`";

/// What is left to do for those whom a forced retirement cuts off; nothing of nodes where none is affected.
fn left_behind_by(before: &Ca, nodes: Option<u64>) -> Vec<&'static str> {
    let has_operators = |issuer: &IssuerItem| {
        issuer.state == "retiring" && issuer.usage != "server" && issuer.other_leaves > 0
    };
    let words = [
        (nodes.is_some_and(|nodes| nodes > 0), NODES_RECOVER),
        (before.issuers.iter().any(has_operators), OPERATORS_ADDED_AGAIN),
    ];
    words.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words).collect()
}

/// What is on its way out, for the words about it.
struct Retiring {
    nodes: bool,
    root: bool,
}

impl Retiring {
    fn of(ca: &Ca) -> Self {
        let nodes = |usage: &str| usage != "server";
        Self {
            nodes: ca.issuers.iter().any(|issuer| issuer.state == "retiring" && nodes(&issuer.usage)),
            root: ca.roots.iter().any(|root| root.state == "retiring"),
        }
    }

    fn of_roll(roll: &Roll) -> Self {
        Self { nodes: roll.uses.iter().any(|usage| usage != "server"), root: roll.new_root }
    }
}

const DONE: &str = "the roll is complete: nothing is left to do\n";

/// The next step of a roll, with the command to paste.
pub struct RollStep<'a> {
    reach: &'a Reach,
    screen: Screen,
}

impl<'a> RollStep<'a> {
    pub fn new(reach: &'a Reach, screen: Screen) -> Self {
        Self { reach, screen }
    }

    /// After a list that denies the active issuer of this use.
    pub fn replace_denied(&self, usage: &str) -> String {
        let words = if usage == "node" {
            "the list denies the issuer that signs for nodes and operators; next: roll to another one:"
        } else {
            "the list denies the issuer of the control plane's own certificate: every host that has the list refuses the control plane \
             until another issuer is active; next: roll to another one, at once (`enlist ca roll activate --force` does not wait for hosts \
             that cannot connect):"
        };
        let usage = if usage == "node" { "node" } else { "server" };
        self.again(words, &format!("ca roll prepare --use {usage} --csr-out FILE"))
    }

    /// Of a roll that goes on beside an earlier one.
    fn retire_too(&self, roll: &Roll) -> String {
        if roll.retiring.is_empty() && roll.retiring_root.is_none() {
            return String::new();
        }
        let root = roll.retiring_root.as_ref().map(|root| format!("the root {root}"));
        let issuers =
            Some(format!("issuer {}", roll.retiring.join(" "))).filter(|_| !roll.retiring.is_empty());
        let what: Vec<String> = root.into_iter().chain(issuers).collect();
        let words = format!(
            "from an earlier roll, still to be retired once no certificate of theirs is valid: {}:",
            what.join(", ")
        );
        self.again(&words, "ca roll retire")
    }

    /// What the root's keeper does with the CSRs.
    fn sign(&self, csr: &Path, roll: &Roll) -> String {
        let certificate =
            csr.with_extension(if csr.extension() == Some("pem".as_ref()) { "crt" } else { "pem" });
        let (csr, certificate) = (shell::quoted(csr), shell::quoted(&certificate));
        let (sign, words) = if roll.new_root {
            let sign = format!(
                "enlist ca sign-root --root-key FILE --root-cert FILE --csr {csr} --new-root-key-out NEW --out {certificate}"
            );
            let words = "sign them where the root key is; FILE stands for the root key and the root certificate, NEW for the \
                file that will hold the key of the new root:";
            (sign, words.to_owned())
        } else {
            let sign = format!(
                "enlist ca sign-intermediate --root-key FILE --root-cert FILE --csr {csr} --out {certificate}"
            );
            let them = if roll.uses.len() > 1 { "them" } else { "it" };
            let words = format!(
                "sign {them} where the root key is; FILE stands for the root key and the root certificate:"
            );
            (sign, words)
        };
        let sign = self.step(&words, &sign);
        let what = match roll.uses.as_slice() {
            [] => "the CSR is".to_owned(),
            [one] => format!("the CSR of the {one} issuer is"),
            uses => format!("the CSRs of the {} issuers are", uses.join(" and ")),
        };
        format!("{what} in {csr}\n{sign}{}", self.submit(&certificate, roll.new_root))
    }

    fn submit(&self, certificate: &str, new_root: bool) -> String {
        let flag = if new_root { "--new-root " } else { "" };
        let words = if new_root { "then submit what it wrote:" } else { "then submit the certificate:" };
        self.again(words, &format!("ca roll prepare {flag}--cert {certificate}"))
    }

    fn retire(&self, retiring: &Retiring) -> String {
        let nodes = "next: every node gets a certificate of the new issuer when it renews; `enlist node rotate ID` makes a \
            node renew now. Every operator with a certificate has to run `enlist operator renew`. Once no certificate of the \
            previous issuer is valid, retire ";
        let servers = "next: the control plane itself moves to the new issuer within seconds; then retire ";
        let words = if retiring.nodes { nodes } else { servers };
        let what = if retiring.root { "the previous root and its issuers:" } else { "the previous issuer:" };
        self.again(&format!("{words}{what}"), "ca roll retire")
    }

    /// What is left of a move of keys to another place.
    fn done(&self, ca: &Ca) -> String {
        let active = |usage: &str| {
            ca.issuers.iter().find(|issuer| {
                issuer.state == "active" && issuer.usage == usage && issuer.kind != "ephemeral"
            })
        };
        let (Some(node), Some(server)) = (active("node"), active("server")) else { return DONE.to_owned() };
        if node.kind == server.kind {
            return DONE.to_owned();
        }
        let words = format!(
            "the roll is complete; the key of the node issuer is {}, that of the server issuer {}. To move the other one too:",
            kept(&node.kind),
            kept(&server.kind)
        );
        // To where the keys were moved last: its issuer is the younger one.
        let (newer, older) = if node.not_after > server.not_after { (node, server) } else { (server, node) };
        // An imported key has no place that others could be moved to.
        let to = if newer.kind == "imported" { older } else { newer };
        self.again(&words, &format!("ca migrate --to {} --csr-out FILE", to.kind))
    }

    fn again(&self, words: &str, command: &str) -> String {
        self.step(words, &shell::same_target(self.reach, command))
    }

    fn step(&self, words: &str, command: &str) -> String {
        format!("{}\n{}", self.screen.hang(0, 0, words), shell::paragraph(command, self.screen))
    }
}

/// Where a key of this kind is, in words.
pub fn kept(kind: &str) -> &str {
    match kind {
        "pkcs11" => "in the HSM",
        "sealed" | "imported" => "sealed under the key-encryption key",
        other => other,
    }
}

fn status(roll: &Roll, next: &RollStep<'_>) -> String {
    let adoption = format!(
        "version {}, {} of {} nodes have it",
        roll.bundle_version, roll.adoption.current, roll.adoption.total
    );
    let step = next_step(roll, next);
    let mut fields = Fields::new()
        .with("stage", &roll.stage)
        .with("root", if roll.new_root { "a new one" } else { "stays" })
        .with_some("issuer", Some(roll.issuers.join(" ")).filter(|ids| !ids.is_empty()).as_deref())
        .with_some("use", Some(roll.uses.join(" ")).filter(|uses| !uses.is_empty()).as_deref())
        .with_some("keys", keys_of(roll).as_deref());
    if roll.stage != "retiring" {
        let retiring = Some(roll.retiring.join(" ")).filter(|ids| !ids.is_empty());
        fields = fields.with_some("retiring", retiring.as_deref());
    }
    fields = fields.with("trust bundle", &adoption);
    if !roll.missing.is_empty() {
        fields = fields.with("missing on", &harmless(&roll.missing.join(" ")));
    }
    if !roll.without_issuer.is_empty() {
        let uses = roll.without_issuer.join(" and ");
        let what =
            format!("no issuer signs for {uses}: nothing of that use can be issued until one is activated");
        fields = fields.painted("warning", &what, Tone::Attention);
    }
    for usage in &roll.denied_uses {
        let what = if usage == "server" {
            "the revocation list of the root denies the issuer of the control plane's own certificate: hosts that have the list refuse the \
             control plane until another issuer is active"
        } else {
            "the revocation list of the root denies the issuer that signs for nodes"
        };
        fields = fields.painted("warning", what, Tone::Attention);
    }
    format!("{}\n{step}", fields.text_on(next.screen))
}

/// Where the keys of the next issuers are.
fn keys_of(roll: &Roll) -> Option<String> {
    let (first, others) = roll.kinds.split_first()?;
    if others.iter().all(|kind| kind == first) {
        return Some(kept(first).to_owned());
    }
    let each = roll.uses.iter().zip(&roll.kinds).map(|(usage, kind)| format!("{usage} {}", kept(kind)));
    Some(each.collect::<Vec<_>>().join(", "))
}

fn next_step(roll: &Roll, next: &RollStep<'_>) -> String {
    let lacking = roll.adoption.total.saturating_sub(roll.adoption.current);
    // What hosts refuse is replaced first.
    let denied = roll.denied_uses.iter().max_by_key(|usage| usage.as_str() == "server");
    let step = match roll.stage.as_str() {
        "prepared" if roll.issuers.iter().any(|issuer| roll.denied.contains(issuer)) => next.again(
            "the revocation list of the root denies a prepared issuer, so that hosts would refuse it; next: give the roll up and prepare another:",
            "ca roll abandon",
        ),
        "prepared" if lacking > 0 => next.again(
            "next: wait until all nodes have the trust bundle, then activate the issuer (--force does not wait for them):",
            "ca roll activate",
        ),
        "requested" => {
            let command = if roll.new_root { "sign-root" } else { "sign-intermediate" };
            let sign = format!("next: sign the CSR with the root key (`enlist ca {command}`)");
            format!("{}\n{}", next.screen.hang(0, 0, &sign), next.submit("FILE", roll.new_root))
        }
        "prepared" => next.again("next: activate the issuer:", "ca roll activate"),
        _ if let Some(usage) = denied => next.replace_denied(usage),
        "retiring" => return next.retire(&Retiring::of_roll(roll)),
        _ if let Some(usage) = roll.without_issuer.first() => next.again(
            "no roll is in progress; next: prepare another issuer in the place of the one that is revoked or has ended:",
            &format!("ca roll prepare --use {usage} --csr-out FILE"),
        ),
        _ => "no roll is in progress\n".to_owned(),
    };
    format!("{step}{}", next.retire_too(roll))
}
