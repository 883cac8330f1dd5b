//! `enlist policy`: replicated values that can change an outcome.

use crate::confirm::ConfirmFlag;
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone, harmless};
use api::code;
use api::rest::policy::{PolicyItem, PolicyList, SetPolicyRequest};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use client::rest::Path;
use lifecycle::registry::{Policy, PolicyKeyReference};
use std::ffi::OsStr;
use std::sync::LazyLock;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show every policy value, or one
    Show {
        /// Policy key, such as token.max_ttl [default: all keys]
        #[arg(id = "policy_key", value_name = "KEY", value_parser = KnownKeys, hide_possible_values = true)]
        key: Option<String>,
    },
    /// Change a policy value; it takes effect at once, everywhere
    Set {
        /// Policy key, such as token.max_ttl (KEY in `enlist policy show`)
        #[arg(id = "policy_key", value_name = "KEY", value_parser = KnownKeys, hide_possible_values = true)]
        #[arg(long_help = explained())]
        key: String,
        /// New value, such as 12h
        value: String,
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
}

/// Any text is a key, since the control plane may know other keys than this program; shells complete the known ones.
#[derive(Clone)]
struct KnownKeys;

impl TypedValueParser for KnownKeys {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        static KEYS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| Policy::default().list());
        Some(Box::new(KEYS.iter().map(|(key, _)| PossibleValue::new(key.as_str()))))
    }
}

/// Every key with its meaning, for the long help.
fn explained() -> String {
    let key = |key: PolicyKeyReference| {
        format!("{} = {}; default {}.\n{}.", key.key, key.accepts, key.default, key.help)
    };
    let keys: Vec<String> = Policy::reference().into_iter().map(key).collect();
    format!("Policy key, one of the following; NAME is that of a profile\n\n{}", keys.join("\n\n"))
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    let path = Path::new("/v1/policy");
    match command {
        Command::Show { key: None } => {
            let list: PolicyList = operator.get(&path).await?;
            output.list(&list.items, table)
        }
        Command::Show { key: Some(key) } => {
            let list: PolicyList = operator.get(&path).await?;
            let item = list.items.into_iter().find(|item| item.key == key).ok_or_else(|| unknown(&key))?;
            output.document(&item, |item| format!("{}\n", harmless(&item.value)))
        }
        Command::Set { key, value, confirm } => {
            let request = SetPolicyRequest { key: key.clone(), value, confirm: None };
            let set: PolicyItem = match operator.put(&path, &request).await {
                Ok(set) => set,
                Err(refused) => {
                    confirm.or_ask(refused, output)?;
                    operator.put(&path, &SetPolicyRequest { confirm: Some(key), ..request }).await?
                }
            };
            output.document(&set, |set| format!("{} is {}\n", harmless(&set.key), harmless(&set.value)))
        }
    }
}

/// As `set` would be refused.
fn unknown(key: &str) -> CommandError {
    let code = code::POLICY_KEY_UNKNOWN;
    CommandError::new(Exit::Refused, code.word, format!("there is no policy key {key}"), code.hint)
}

fn table(items: &[PolicyItem]) -> Table {
    // A value is never left out, only cut at its end.
    let mut table = Table::new(["KEY", "VALUE"], "no policy values").painting("VALUE").cutting("VALUE");
    for item in items {
        table.row(Tone::Plain, [&item.key, &item.value]);
    }
    table
}
