//! `enlist node repair-bundle`: a file for a host that has nothing left to recover with.

use super::named;
use crate::error::CommandError;
use crate::output::Output;
use crate::private_file::PrivateFile;
use crate::screen::Screen;
use crate::shell;
use crate::table::harmless;
use api::rest::nodes::{IssueRepairBundleRequest, RepairBundle};
use client::OperatorApi;
use client::rest::Path as Url;
use serde::Serialize;
use std::path::Path;

/// What may be shown: everything but the secret, and where that is.
#[derive(Serialize)]
struct RepairBundleSummary<'a> {
    version: u32,
    node_id: &'a str,
    domain: &'a str,
    recovery_profile_id: &'a str,
    recovery_url: &'a str,
    issued_by: &'a str,
    issued_at: &'a str,
    expires_at: &'a str,
    audit_seq: u64,
    audit_hash: &'a str,
    file: String,
}

pub async fn issue(
    operator: &OperatorApi,
    output: Output,
    id: &str,
    out: &Path,
    expires: Option<String>,
) -> Result<(), CommandError> {
    // Before anything is asked: issuing ends every other recovery token of the node.
    let mut file = PrivateFile::create(out)?;
    let request = IssueRepairBundleRequest { expires };
    let issued = async |id: &str| {
        let path = Url::new("/v1/nodes").segment(id).segment("repair-bundle");
        operator.post::<RepairBundle>(&path, &request).await
    };
    let bundle = named::ask(operator, id, issued).await?;
    let mut text = serde_json::to_string_pretty(&bundle).map_err(|error| {
        CommandError::fault("json", format!("the result cannot be written as JSON: {error}"))
    })?;
    text.push('\n');
    file.write(text.as_bytes())?;
    file.keep();
    output.document(&shown(&bundle, out), |shown| human(shown, out, output.screen()))
}

fn shown<'a>(bundle: &'a RepairBundle, out: &Path) -> RepairBundleSummary<'a> {
    RepairBundleSummary {
        version: bundle.version,
        node_id: &bundle.node_id,
        domain: &bundle.domain,
        recovery_profile_id: &bundle.recovery_profile_id,
        recovery_url: &bundle.recovery_url,
        issued_by: &bundle.issued_by,
        issued_at: &bundle.issued_at,
        expires_at: &bundle.expires_at,
        audit_seq: bundle.audit_seq,
        audit_hash: &bundle.audit_hash,
        file: out.display().to_string(),
    }
}

fn human(shown: &RepairBundleSummary<'_>, out: &Path, screen: Screen) -> String {
    let (id, until, file) = (harmless(shown.node_id), harmless(shown.expires_at), harmless(&shown.file));
    let made = format!(
        "node {id} is quarantined until it is repaired; the repair bundle is in {file}, valid until {until}"
    );
    let copy = "The file contains a secret. Copy it to the host, stop the daemon there, and run:";
    let recover = format!("enlist-agent recover --bundle {}", harmless(&shell::quoted(out)));
    let after = "Then start the daemon again. The quarantine ends by itself once the host has been well for policy quarantine.observe, or with:";
    let [made, copy, after] = [made.as_str(), copy, after].map(|words| screen.hang(0, 0, words));
    let [recover, release] =
        [recover, format!("enlist node release {id}")].map(|line| shell::paragraph(&line, screen));
    format!("{made}\n\n{copy}\n{recover}{after}\n{release}")
}
