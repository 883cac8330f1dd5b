//! `enlist policy`: replicated values that can change an outcome.

mod show;

use crate::confirm::ConfirmFlag;
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, harmless};
use api::code;
use api::rest::policy::{PolicyItem, PolicyList, SetPolicyRequest};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use client::rest::Path;
use lifecycle::registry::{Policy, PolicyKeyReference};
use std::ffi::OsStr;
use std::sync::LazyLock;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show every policy value with its meaning, or one value
    Show {
        /// Policy key, such as token.default_ttl [default: all keys]
        #[arg(id = "policy_key", value_name = "KEY", value_parser = KnownKeys, hide_possible_values = true)]
        key: Option<String>,
    },
    /// Change a policy value; it takes effect at once, everywhere
    Set {
        /// Policy key, such as token.default_ttl (KEY in `enlist policy show`)
        #[arg(id = "policy_key", value_name = "KEY", value_parser = KnownKeys, hide_possible_values = true)]
        #[arg(long_help = explained())]
        key: String,
        /// New value, such as 30m
        #[arg(allow_negative_numbers = true)]
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
            if output.is_json() {
                output.list(&list.items, |_| Table::new(["KEY", "VALUE"], ""))
            } else {
                output.verbatim(&show::text(&list.items, output.screen()))
            }
        }
        Command::Show { key: Some(key) } => {
            let list: PolicyList = operator.get(&path).await?;
            let item = list.items.into_iter().find(|item| item.key == key).ok_or_else(|| unknown(&key))?;
            output.document(&item, |item| format!("{}\n", harmless(&item.value)))
        }
        Command::Set { key, value, confirm } => {
            if key == TOKEN_MAX_TTL {
                confirm.at_terminal(&lowered_for_good(&value), output)?;
            }
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

/// The one value that cannot be set back.
const TOKEN_MAX_TTL: &str = "token.max_ttl";

fn lowered_for_good(value: &str) -> String {
    format!("{TOKEN_MAX_TTL} can only be lowered: once it is {value}, it can never be more than that again")
}

/// As `set` would be refused.
fn unknown(key: &str) -> CommandError {
    let code = code::POLICY_KEY_UNKNOWN;
    CommandError::new(Exit::Refused, code.word, format!("there is no policy key {key}"), code.hint)
}
