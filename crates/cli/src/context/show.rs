//! `enlist context show`: what a context says, and why it is the one in use.

use super::saved::Context;
use super::{ContextFields, ContextItem};
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::reach::credential::{OperatorCredential, ServerTrust};
use crate::reach::target::{self, ChosenBy, Target};
use api::rest::one_or_more::OneOrMore;
use serde::Serialize;

#[derive(Serialize)]
struct ContextDetail<'a> {
    name: Option<&'a str>,
    /// Whether it is the current context.
    current: bool,
    /// What made it the one in use: a flag, a variable, `current` or `default`; null for one that was asked for by name.
    chosen_by: Option<&'static str>,
    #[serde(flatten)]
    fields: ContextFields,
    cert_not_after: Option<String>,
    /// Why it cannot be used as it is.
    problem: Option<String>,
}

pub fn run(name: Option<&str>, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let contexts = || super::contexts_file()?.load();
    if let Some(name) = name {
        reach.only(&[])?;
        let contexts = contexts()?;
        let context = contexts.get(name)?;
        let item = ContextItem {
            name,
            current: contexts.current.as_deref() == Some(name),
            fields: ContextFields::of(context),
        };
        return show(item, None, &target::of_context(context, &Reach::default())?, output);
    }
    let chosen = reach.chosen()?;
    let by = chosen.by.as_str();
    match &chosen.by {
        ChosenBy::Context { name, .. } => {
            let contexts = contexts()?;
            let current = contexts.current.as_ref() == Some(name);
            let item = ContextItem { name, current, fields: ContextFields::of(contexts.get(name)?) };
            show(item, Some(by), &chosen.target, output)
        }
        ChosenBy::Setting(_) | ChosenBy::Default => show(
            ContextItem { name: "", current: false, fields: used_fields(&chosen.target) },
            Some(by),
            &chosen.target,
            output,
        ),
    }
}

/// What would be used, where no context is.
fn used_fields(target: &Target) -> ContextFields {
    let context = match target.clone() {
        Target::Socket(path) => Context { socket: Some(path), ..Context::default() },
        Target::Server { servers, server_trust, credential } => {
            let (ca, ca_pin) = match server_trust {
                ServerTrust::Ca(path) => (Some(path), None),
                ServerTrust::Pin(pin) => (None, Some(pin)),
            };
            let (cert, key, api_key_file) = match credential {
                Some(OperatorCredential::Certificate { cert, key }) => (Some(cert), Some(key), None),
                Some(OperatorCredential::ApiKey(file)) => (None, None, Some(file)),
                None => (None, None, None),
            };
            Context {
                server: OneOrMore::of(&servers),
                ca,
                ca_pin,
                cert,
                key,
                api_key_file,
                ..Context::default()
            }
        }
    };
    ContextFields::of(&context)
}

fn show(
    item: ContextItem<'_>,
    chosen_by: Option<&'static str>,
    target: &Target,
    output: Output,
) -> Result<(), CommandError> {
    let (presented, problem) = match Reach::default().open(target) {
        Ok((_, presented)) => (presented, None),
        Err(failure) => (None, failure.message().map(str::to_owned)),
    };
    let shown = ContextDetail {
        name: Some(item.name).filter(|name| !name.is_empty()),
        current: item.current,
        chosen_by,
        fields: item.fields,
        cert_not_after: presented.map(|presented| presented.facts.not_after.to_string()),
        problem,
    };
    output.document(&shown, text)
}

fn text(shown: &ContextDetail<'_>) -> String {
    let ContextFields { server: _, servers, dir, socket, ca, ca_pin, cert, key, api_key_file } =
        &shown.fields;
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
        .with_some("server", Some(servers.join(", ")).filter(|all| !all.is_empty()).as_deref())
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
