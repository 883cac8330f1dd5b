//! What `enlist server init` prints.

use super::Arguments;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use crate::shell;
use ::server::init::InitializedDomain;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

#[derive(Serialize)]
struct InitSummary<'a> {
    domain: &'a str,
    dir: String,
    trust_domain: &'a str,
    /// As in `--issuer`.
    issuer: &'static str,
    ca_pin: String,
    root_fingerprint: String,
    /// The only copy, unless it went to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    root_key_pem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_key_file: Option<String>,
    /// Null while the port is still to be chosen.
    server_url: Option<&'a str>,
    warnings: &'a [String],
    /// Where the key-encryption key comes from, as it was given.
    #[serde(skip)]
    kek: &'a str,
}

pub fn print(
    arguments: &Arguments,
    (dir, issuer): (&Path, &'static str),
    initialized: &InitializedDomain,
    key_file: Option<&Path>,
    output: Output,
) -> Result<(), CommandError> {
    let pin = initialized.root_fingerprint.pin();
    let summary = InitSummary {
        domain: arguments.domain.as_str(),
        dir: dir.display().to_string(),
        trust_domain: arguments.domain.as_str(),
        issuer,
        ca_pin: pin.clone(),
        root_fingerprint: pin,
        root_key_pem: initialized
            .root_key_pem
            .as_ref()
            .map(|key| key.as_str())
            .filter(|_| key_file.is_none()),
        root_key_file: key_file.map(|path| path.display().to_string()),
        server_url: initialized.server_url.as_deref(),
        warnings: &initialized.warnings,
        kek: &arguments.kek,
    };
    let mut stderr = anstream::stderr().lock();
    for warning in &initialized.warnings {
        let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
        // Standard error may be closed; the document holds the warnings too.
        let warning = Screen::of_stderr().hang("warning: ".len(), 0, warning);
        let _ = writeln!(stderr, "{yellow}warning{yellow:#}: {warning}");
    }
    output.document(&summary, |summary| text(summary, output.screen()))
}

fn text(summary: &InitSummary<'_>, screen: Screen) -> String {
    let dir = &summary.dir;
    let ephemeral = (summary.issuer == "ephemeral").then_some("signed by ephemeral issuers, in memory only");
    let fields = Fields::new()
        .with("data directory", dir)
        .with("configuration", &format!("{dir}/enlist.toml"))
        .with("CA certificate", &format!("{dir}/ca/bundle.pem"))
        .with("CA pin", &summary.ca_pin)
        .with("URL", summary.server_url.unwrap_or("printed by `enlist server run`, which chooses the port"))
        .with("key-encryption key", summary.kek)
        .with_some("node certificates", ephemeral)
        .with_some("root key", summary.root_key_file.as_deref());
    let mut text = format!("domain {} is initialized\n{}", summary.domain, fields.text_on(screen));
    if let Some(key) = summary.root_key_pem {
        text.push_str(&format!(
            "\n##### ROOT KEY of {}: shown only once, stored nowhere. Keep it offline. #####\n\
             {key}\
             ##### end of the root key #####\n",
            summary.domain
        ));
    } else if let Some(file) = &summary.root_key_file {
        text.push_str(&format!("\nThe root key is in {file} and nowhere else: move it offline.\n"));
    }
    text.push_str(
        "\nThe key-encryption key unseals the CA key. Without it the data directory and its\n\
         backups cannot be used: keep a copy of it in another place.\n",
    );
    let run = format!("{} server run --dir {}", shell::program(), shell::quoted(Path::new(dir)));
    text + &format!("\nNext:\n{}", shell::paragraph(&run, screen))
}
