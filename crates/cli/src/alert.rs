//! `enlist alert`: what wants an operator's attention.

mod show;

use crate::error::CommandError;
use crate::node::named;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::alerts::{AlertItem, AlertQuery};
use api::rest::nodes::Plainly;
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List open alerts, oldest first
    List {
        /// Show only alerts of this kind, such as enrollment_stuck
        #[arg(long)]
        kind: Option<String>,
        /// Show only alerts about this node
        #[arg(long, value_name = "ID")]
        node: Option<String>,
    },
    /// Show an alert with its whole detail, what it means and what to do
    Show {
        /// Id of the alert (ALERT ID in `enlist alert list`)
        id: String,
    },
    /// Acknowledge an alert; it stays open until its cause is gone
    Ack {
        /// Id of the alert (ALERT ID in `enlist alert list`)
        id: String,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    let path = Path::new("/v1/alerts");
    match command {
        Command::List { kind, node } => {
            let node = match node {
                Some(name) => Some(named::id(&operator, name).await?),
                None => None,
            };
            let query = AlertQuery { kind, node, ..AlertQuery::default() };
            let items: Vec<AlertItem> = operator.list(&path.queries(&query)?).await?;
            output.list(&items, table)
        }
        Command::Show { id } => {
            let alert: AlertItem = operator.get(&path.segment(&id)).await?;
            show::print(alert, output)
        }
        Command::Ack { id } => {
            let alert: AlertItem = operator.post(&path.segment(&id).segment("ack"), &Plainly {}).await?;
            output.document(&alert, |alert| format!("alert {} is acknowledged\n", harmless(&alert.alert_id)))
        }
    }
}

fn table(items: &[AlertItem]) -> Table {
    let head = ["ALERT ID", "KIND", "NODE", "SINCE", "COUNT", "ACKNOWLEDGED", "DETAIL"];
    let mut table = Table::new(head, "no open alerts")
        .painting("KIND")
        .keeping("NODE")
        .cutting("DETAIL")
        .dropping(["COUNT", "ACKNOWLEDGED", "DETAIL", "SINCE"])
        .seeing("enlist alert show ID");
    for item in items {
        let tone = if item.acknowledged { Tone::Plain } else { Tone::Attention };
        let (node, count) = (or_dash(item.node_id.as_deref()), item.count.to_string());
        let taken = if item.acknowledged { "yes" } else { "no" };
        table.row(tone, [&item.alert_id, &item.kind, node, &item.since, &count, taken, &item.detail]);
    }
    table
}
