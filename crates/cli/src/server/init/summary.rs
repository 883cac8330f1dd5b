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
    /// The issuers' keys in the HSM.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hsm_keys: Vec<HsmKeyItem<'a>>,
    /// Where the key-encryption key comes from, as it was given.
    #[serde(skip)]
    kek: &'a str,
}

#[derive(Serialize)]
struct HsmKeyItem<'a> {
    label: &'a str,
    /// `made` by this command, or `found` in the token.
    origin: &'static str,
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
        hsm_keys: initialized
            .hsm_keys
            .iter()
            .map(|key| HsmKeyItem { label: &key.label, origin: if key.is_new { "made" } else { "found" } })
            .collect(),
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
    let hsm_keys: Vec<String> =
        summary.hsm_keys.iter().map(|key| format!("{} ({})", key.label, key.origin)).collect();
    let in_hsm = !hsm_keys.is_empty();
    let hsm_keys = in_hsm.then(|| hsm_keys.join(", "));
    let fields = Fields::new()
        .with("data directory", dir)
        .with("configuration", &format!("{dir}/enlist.toml"))
        .with("CA certificate", &format!("{dir}/ca/bundle.pem"))
        .with("CA pin", &summary.ca_pin)
        .with("URL", summary.server_url.unwrap_or("printed by `enlist server run`, which chooses the port"))
        .with("key-encryption key", summary.kek)
        .with_some("keys in the HSM", hsm_keys.as_deref())
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
        let said = format!("The root key is in {file} and nowhere else: move it offline.");
        text.push_str(&format!("\n{}\n", screen.hang(0, 0, &said)));
    }
    let what = if in_hsm {
        "The CA keys are in the HSM; the key-encryption key unseals everything else."
    } else {
        "The key-encryption key unseals the CA key."
    };
    let copy =
        "Without it the data directory and its backups cannot be used: keep a copy of it in another place.";
    text.push_str(&format!("\n{}\n", screen.hang(0, 0, &format!("{what} {copy}"))));
    let run = format!("{} server run --dir {}", shell::program(), shell::quoted(Path::new(dir)));
    // Root could start it as well, and would leave files in the directory that this user cannot read.
    let next = match rustix::process::geteuid() {
        uid if uid.is_root() => "Next:".to_owned(),
        uid => format!("Next, as the user {}:", shell::user(uid.as_raw())),
    };
    text + &format!("\n{next}\n{}", shell::paragraph(&run, screen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::Timestamp;

    #[test]
    fn the_summary_fits_a_terminal_wherever_the_keys_are() {
        let keys =
            |count| (0..count).map(|_| HsmKeyItem { label: "issuer-of-the-fleet", origin: "made" }).collect();
        for hsm_keys in [keys(0), keys(2)] {
            let summary = InitSummary {
                domain: "prod.example",
                dir: "/var/lib/enlist".to_owned(),
                trust_domain: "prod.example",
                issuer: "pkcs11",
                ca_pin: format!("sha256:{}", "0".repeat(64)),
                root_fingerprint: format!("sha256:{}", "0".repeat(64)),
                root_key_pem: None,
                root_key_file: Some("/root/keys/of/this/domain/enlist-root-key.pem".to_owned()),
                server_url: Some("https://cp.example.org:8443"),
                warnings: &[],
                hsm_keys,
                kek: "file:/etc/enlist/kek",
            };
            let text = text(&summary, Screen::terminal(80, Timestamp::from_secs(1)));
            let text = anstream::adapter::strip_str(&text).to_string();
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            assert!(text.replace('\n', " ").contains("its backups cannot be used"), "{text}");
        }
    }
}
