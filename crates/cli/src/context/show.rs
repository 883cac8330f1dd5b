//! `enlist context show`: what a context says, and why it is the one in use.

use super::saved::Context;
use super::{Item, Says};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::reach::target::{self, By, Proof, Recognition, Way};
use serde::Serialize;

#[derive(Serialize)]
struct Shown<'a> {
    name: Option<&'a str>,
    /// Whether it is the current context.
    current: bool,
    /// What made it the one in use: a flag, a variable, `current` or `default`; null for one that was asked for by name.
    chosen_by: Option<&'static str>,
    #[serde(flatten)]
    says: Says,
    cert_not_after: Option<String>,
    /// Why it cannot be used as it is.
    problem: Option<String>,
}

pub fn run(name: Option<&str>, reach: &Reach, output: Output) -> Result<(), Failure> {
    let contexts = || super::place()?.load();
    if let Some(name) = name {
        reach.only(&[])?;
        let contexts = contexts()?;
        let context = contexts.get(name)?;
        let item = Item { name, current: contexts.current.as_deref() == Some(name), says: Says::of(context) };
        return show(item, None, &target::of_context(context, &Reach::default())?, output);
    }
    let chosen = reach.chosen()?;
    let by = chosen.by.word();
    match &chosen.by {
        By::Context { name, .. } => {
            let contexts = contexts()?;
            let current = contexts.current.as_ref() == Some(name);
            let item = Item { name, current, says: Says::of(contexts.get(name)?) };
            show(item, Some(by), &chosen.way, output)
        }
        By::Setting(_) | By::Default => {
            show(Item { name: "", current: false, says: told(&chosen.way) }, Some(by), &chosen.way, output)
        }
    }
}

/// What would be used, where no context is.
fn told(way: &Way) -> Says {
    let context = match way.clone() {
        Way::Socket(path) => Context { socket: Some(path), ..Context::default() },
        Way::Server { url, recognition, proof } => {
            let (ca, ca_pin) = match recognition {
                Recognition::Ca(path) => (Some(path), None),
                Recognition::Pin(pin) => (None, Some(pin)),
            };
            let (cert, key, api_key_file) = match proof {
                Proof::Certificate { cert, key } => (Some(cert), Some(key), None),
                Proof::ApiKey(file) => (None, None, Some(file)),
            };
            Context { server: Some(url), ca, ca_pin, cert, key, api_key_file, ..Context::default() }
        }
    };
    Says::of(&context)
}

fn show(item: Item<'_>, chosen_by: Option<&'static str>, way: &Way, output: Output) -> Result<(), Failure> {
    let (presented, problem) = match Reach::default().open(way) {
        Ok((_, presented)) => (presented, None),
        Err(failure) => (None, failure.message().map(str::to_owned)),
    };
    let shown = Shown {
        name: Some(item.name).filter(|name| !name.is_empty()),
        current: item.current,
        chosen_by,
        says: item.says,
        cert_not_after: presented.map(|presented| presented.facts.not_after.to_string()),
        problem,
    };
    output.document(&shown, text)
}

fn text(shown: &Shown<'_>) -> String {
    let Says { server, dir, socket, ca, ca_pin, cert, key, api_key_file } = &shown.says;
    let chosen = match shown.chosen_by {
        Some("current") => Some("the current context"),
        Some("default") => Some("no flag, variable or context says otherwise"),
        other => other,
    };
    let current = if shown.current { "yes" } else { "no" };
    Fields::new()
        .with("context", shown.name.unwrap_or("none"))
        .with_some("current", shown.name.map(|_| current))
        .with_some("chosen by", chosen)
        .with_some("server", server.as_deref())
        .with_some("directory", dir.as_deref())
        .with_some("socket", socket.as_deref())
        .with_some("CA", ca.as_deref())
        .with_some("CA pin", ca_pin.as_deref())
        .with_some("certificate", cert.as_deref())
        .with_some("until", shown.cert_not_after.as_deref())
        .with_some("key", key.as_deref())
        .with_some("API key", api_key_file.as_deref())
        .with_some("problem", shown.problem.as_deref())
        .text()
}
