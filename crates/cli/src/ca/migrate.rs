//! `enlist ca migrate`: keys move by a roll to new ones, never by being exported.

use super::roll::{self, RollKeys, kept};
use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use api::rest::ca::{Ca, Roll};
use client::rest::Path;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the new keys are kept: pkcs11 (the HSM that enlist.toml names) or sealed (under the key-encryption key)
    #[arg(long, value_name = "KIND", value_parser = ["pkcs11", "sealed"])]
    to: String,
    /// Write the CSRs of the next issuers to this file, PEM; sign them where the root key is
    #[arg(long, value_name = "FILE")]
    csr_out: PathBuf,
    /// Replace other CSRs in the file at --csr-out; a file with anything else is never replaced
    #[arg(long)]
    force: bool,
    /// Move only the issuer of node and operator certificates, or that of the control plane's own [default: every issuer that is
    /// not there yet]
    #[arg(long = "use", value_name = "USE", value_parser = ["node", "server"])]
    usage: Option<String>,
}

pub async fn run(arguments: Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let Arguments { to, csr_out, force, usage } = arguments;
    let operator = reach.operator()?;
    let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
    let elsewhere = elsewhere(&ca, &to, usage.as_deref());
    if elsewhere.is_empty() {
        let roll: Roll = operator.get(&Path::new("/v1/ca/roll")).await?;
        return output.document(&roll, |_| {
            let keys = usage.map_or("the keys of the issuers are".to_owned(), |usage| {
                format!("the key of the {usage} issuer is")
            });
            output.screen().hang(0, 0, &format!("{keys} {} already: nothing to do\n", kept(&to)))
        });
    }
    let usage = match elsewhere.as_slice() {
        [usage] => usage.clone(),
        _ => "both".to_owned(),
    };
    let keys = RollKeys { usage: Some(usage), new_root: false, kind: Some(to) };
    roll::begin(keys, &csr_out, force, reach, output).await
}

/// The uses whose active issuer has its key elsewhere, of those that are asked for; all of them if nobody signs.
fn elsewhere(ca: &Ca, to: &str, asked: Option<&str>) -> Vec<String> {
    let is_there = |usage: &str| {
        ca.issuers.iter().any(|issuer| {
            let signs = issuer.usage == usage || issuer.usage == "both";
            issuer.state == "active" && signs && issuer.kind == to
        })
    };
    let uses = ["node", "server"].into_iter().filter(|usage| asked.is_none_or(|asked| asked == *usage));
    uses.filter(|usage| !is_there(usage)).map(str::to_owned).collect()
}
