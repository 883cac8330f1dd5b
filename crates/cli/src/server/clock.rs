//! `enlist server clock`: how far the clock of a control plane is believed, and what an operator can do about it.

use crate::confirm::ConfirmFlag;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use ::server::clock_repair::{self, ClockRepair};
use ::server::datadir::DataDir;
use api::rest::server_clock::{AcceptClockRequest, ServerClock};
use client::rest::Path;
use lifecycle::names::Span;
use lifecycle::registry::event::ClockRepaired;
use serde::Serialize;

const TAKES_IN: &str = "this data directory was written by an older version: it is taken in first, and older programs cannot \
                        use it from then on";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the clock of the control plane and whether it is believed
    Show,
    /// Take the clock to be right although it jumped while the control plane was running
    ///
    /// Works on the control plane's own machine only, over its operator socket. Prints what ends by the new time and asks
    /// first.
    Accept {
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
    /// Set back the time of a stopped domain that a wrong clock carried far ahead
    ///
    /// Nothing that was denied, expired or resting is accepted again: superseded certificates are denied, unused
    /// enrollment tokens are void, cool-downs of overlay addresses begin anew, expired API keys stay expired.
    /// Certificates that were issued by the wrong clock end, and their hosts are enrolled again; all others are judged by
    /// the right time again.
    Repair {
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
}

pub async fn run(command: Command, reach: Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Show => {
            let clock: ServerClock = reach.operator()?.get(&Path::new("/v1/server/clock")).await?;
            output.document(&clock, text)
        }
        Command::Accept { confirm } => {
            let (operator, path) = (reach.operator()?, Path::new("/v1/server/clock/accept"));
            let before: ServerClock = operator.get(&Path::new("/v1/server/clock")).await?;
            let clock: ServerClock = match operator.post(&path, &AcceptClockRequest::default()).await {
                Ok(clock) => clock,
                Err(refused) => {
                    confirm.or_ask(refused, output)?;
                    operator.post(&path, &AcceptClockRequest { confirm: Some("clock".to_owned()) }).await?
                }
            };
            output.document(&clock, |clock| match before.believed {
                true => format!("the clock is believed: there was nothing to accept\n{}", text(clock)),
                false => text(clock),
            })
        }
        Command::Repair { confirm } => repair(&confirm, &DataDir::new(reach.data_dir()?), output).await,
    }
}

fn text(clock: &ServerClock) -> String {
    let far = Span::from_minutes(clock.offset_ms.unsigned_abs().saturating_add(30_000) / 60_000);
    let side = if clock.offset_ms < 0 { "behind" } else { "ahead of" };
    let believed = match clock.believed {
        true => "yes".to_owned(),
        false => format!("no: {far} {side} the time that has passed; nothing is issued"),
    };
    Fields::new()
        .with("clock", &clock.wall)
        .with("time in use", &clock.time)
        .with("believed", &believed)
        .text()
}

/// What `--json` prints.
#[derive(Serialize)]
struct RepairedClock {
    repaired: bool,
    from: Option<String>,
    to: Option<String>,
    tokens_voided: u64,
    superseded_denied: u64,
    issued_ahead_ended: u64,
    keys_expired: u64,
    addresses_resting: u64,
}

impl RepairedClock {
    fn of(plan: Option<&ClockRepaired>, repaired: bool) -> Self {
        let count = |of: fn(&ClockRepaired) -> u64| plan.map_or(0, of);
        Self {
            repaired,
            from: plan.map(|plan| plan.from.to_string()),
            to: plan.map(|plan| plan.to.to_string()),
            tokens_voided: count(|plan| plan.tokens),
            superseded_denied: count(|plan| plan.superseded),
            issued_ahead_ended: count(|plan| plan.issued_ahead),
            keys_expired: count(|plan| plan.keys),
            addresses_resting: count(|plan| plan.addresses),
        }
    }
}

async fn repair(confirm: &ConfirmFlag, dir: &DataDir, output: Output) -> Result<(), CommandError> {
    let not_ahead = |output: Output| {
        output.document(&RepairedClock::of(None, false), |_| {
            "the time of this domain is not ahead of the clock: nothing was changed\n".to_owned()
        })
    };
    match clock_repair::older(dir)? {
        Some(older) if !older.is_ahead => return not_ahead(output),
        Some(_) => confirm.or_ask_about(TAKES_IN, output)?,
        None => {}
    }
    let repair = ClockRepair::open(dir, super::user()).await?;
    let plan = repair.plan()?;
    if !repair.is_needed()? {
        repair.abandon().await?;
        return not_ahead(output);
    }
    if let Some(plan) = &plan
        && let Err(refused) = confirm.or_ask_about(&consequence(plan), output)
    {
        repair.abandon().await?;
        return Err(refused);
    }
    repair.perform().await?;
    output.document(&RepairedClock::of(plan.as_ref(), true), |done| match &done.to {
        Some(to) => format!("the time of this domain was set back to {to}; start the control plane\n"),
        None => "the repair that was interrupted is complete; start the control plane\n".to_owned(),
    })
}

fn consequence(plan: &ClockRepaired) -> String {
    format!(
        "the time of this domain goes back from {} to {}; for good: {} unused enrollment tokens void, {} superseded \
         certificates denied, {} certificates that the wrong clock issued ended, {} API keys expired, cool-downs of {} \
         overlay addresses begun anew",
        plan.from, plan.to, plan.tokens, plan.superseded, plan.issued_ahead, plan.keys, plan.addresses
    )
}
