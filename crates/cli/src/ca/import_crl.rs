//! `enlist ca import-crl`: hosts are told which issuers to refuse.

use super::roll::RollStep;
use super::{is_denied, text};
use crate::confirm::ConfirmFlag;
use crate::error::CommandError;
use crate::output::Output;
use crate::reach::{self, Reach};
use api::rest::ca::{Ca, ImportRootListRequest, IssuerItem, RootListItem};
use client::rest::Path;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Revocation list that `enlist ca sign-crl` wrote, PEM
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    confirm: ConfirmFlag,
}

/// What is reported of an import.
#[derive(serde::Serialize)]
struct ImportedList {
    #[serde(flatten)]
    ca: Ca,
    /// False if the list was on record already.
    changed: bool,
    #[serde(skip)]
    denies_any: bool,
}

const UNCHANGED: &str = "this list is on record already: nothing was changed";

const DENIES_NOBODY: &str = "the list denies no issuer, so hosts are not sent it; `enlist ca crl` writes it with the others, for programs that \
    want a list of every CA";

pub async fn run(arguments: Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let list = reach::read_public(&arguments.file)?;
    let (operator, path) = (reach.operator()?, Path::new("/v1/ca/lists"));
    let before: Ca = operator.get(&Path::new("/v1/ca")).await?;
    let request = ImportRootListRequest { list, confirm: None };
    let ca: Ca = match operator.post(&path, &request).await {
        Ok(ca) => ca,
        Err(refused) => {
            arguments.confirm.or_ask(refused, output)?;
            let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
            // The refusal is about one of these; which, the control plane knows.
            let asked_about = ca.issuers.into_iter().filter(|issuer| issuer.state != "retired");
            let mut answer = None;
            for issuer in asked_about {
                let request = ImportRootListRequest { confirm: Some(issuer.id), ..request.clone() };
                match operator.post(&path, &request).await {
                    Err(refused) if refused.code() == api::code::CONFIRMATION_NEEDED.word => {}
                    other => {
                        answer = Some(other?);
                        break;
                    }
                }
            }
            match answer {
                Some(ca) => ca,
                None => operator.post(&path, &request).await?,
            }
        }
    };
    let is_new = |list: &&RootListItem| !before.lists.contains(list);
    let denies_any = ca.lists.iter().filter(is_new).any(|list| !list.denied.is_empty());
    let imported = ImportedList { changed: ca.lists != before.lists, denies_any, ca };
    output.document(&imported, |imported| {
        let ca = &imported.ca;
        let next = match (imported.changed, imported.denies_any) {
            (false, _) => UNCHANGED.to_owned(),
            (true, false) => DENIES_NOBODY.to_owned(),
            (true, true) => told(ca),
        };
        let told = format!("{}\n{}\n", text(ca, output.screen()), output.screen().hang(0, 0, &next));
        let denied = ca.issuers.iter().filter(|issuer| issuer.state == "active" && is_denied(ca, issuer));
        match denied.max_by_key(|issuer| issuer.usage != "node") {
            Some(issuer) => {
                format!("{told}{}", RollStep::new(reach, output.screen()).replace_denied(&issuer.usage))
            }
            None => told,
        }
    })
}

/// What follows from a new list, and what is left to do.
fn told(ca: &Ca) -> String {
    let next = "hosts are told now; `enlist ca roll status` counts those that have stored it. Every host refuses the named \
        issuers from then on. Operators' command lines refuse them too, once each operator has run `enlist operator renew` or \
        `enlist ca update-trust`: tell them";
    let is_used = |issuer: &&IssuerItem| ["active", "retiring"].contains(&issuer.state.as_str());
    let in_registry = ca.issuers.iter().filter(is_used).filter(|issuer| is_denied(ca, issuer));
    let revoke: Vec<String> = in_registry.map(|issuer| format!("`enlist ca revoke {}`", issuer.id)).collect();
    match revoke.as_slice() {
        [] => next.to_owned(),
        revoke => format!("{next}. In the registry the issuer is revoked by {}", revoke.join(", ")),
    }
}
