//! `enlist server check`.

use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use ::server::config::{ConfigMistake, ControlPlaneConfig};
use ::server::config_warnings::warnings;
use ::server::datadir::DataDir;
use ::server::run::{RunError, check, hsm_complaint};
use serde::Serialize;

/// What `--json` prints, good or not.
#[derive(Serialize)]
struct ConfigCheck {
    ok: bool,
    dir: String,
    listen: Vec<String>,
    server_url: Option<String>,
    kek: Option<String>,
    mistakes: Vec<ConfigMistake>,
    /// What is allowed, and will not do what was meant.
    warnings: Vec<String>,
}

pub fn run(dir: &DataDir, output: Output) -> Result<(), CommandError> {
    let checked = check(dir);
    if output.is_json() || checked.is_ok() {
        output.document(&result(dir, checked.as_ref()), |result| text(result, output.screen()))?;
    }
    Ok(checked.map(drop)?)
}

fn result(dir: &DataDir, checked: Result<&ControlPlaneConfig, &RunError>) -> ConfigCheck {
    let config = checked.ok();
    let mistakes = match checked {
        Err(RunError::Config(mistakes)) => mistakes.0.clone(),
        _ => Vec::new(),
    };
    ConfigCheck {
        ok: config.is_some(),
        dir: dir.path().display().to_string(),
        listen: config
            .map(|config| config.listen.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        server_url: config.and_then(ControlPlaneConfig::server_url),
        kek: config.map(|config| config.kek.to_string()),
        mistakes,
        warnings: config.map(|config| all_warnings(dir, config)).unwrap_or_default(),
    }
}

/// With what is wrong with the HSM, which is asked.
fn all_warnings(dir: &DataDir, config: &ControlPlaneConfig) -> Vec<String> {
    let mut all = warnings(dir, config);
    all.extend(hsm_complaint(dir, config));
    all
}

fn text(result: &ConfigCheck, screen: Screen) -> String {
    let fields = Fields::new()
        .with("data directory", &result.dir)
        .with("listen addresses", &result.listen.join(", "))
        .with_some("URL", result.server_url.as_deref())
        .with_some("key-encryption key", result.kek.as_deref());
    let warning = |warning: &String| screen.hang(0, 0, &format!("warning: {warning}")) + "\n";
    let warnings: String = result.warnings.iter().map(warning).collect();
    format!("no mistakes found\n{warnings}{}", fields.text())
}
