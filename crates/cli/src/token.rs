//! `enlist token`: secrets that let one node in, once.

use crate::command_line::duration;
use crate::error::CommandError;
use crate::error::not_the_secret;
use crate::fields::Fields;
use crate::node::label;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::server::stopped::StoppedControlPlane;
use crate::shell;
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::tokens::{CreateTokenRequest, MintedToken, TokenItem, TokenQuery};
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create a token; its value is shown only once
    Create {
        /// Lifetime of the token, such as 90s, 15m or 1h [default: policy token.default_ttl]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires: Option<String>,
        /// Tenant of the node [default: the operator's only tenant, else `default`]
        #[arg(long)]
        tenant: Option<String>,
        /// Id of the node that the token enrolls [default: any node]
        #[arg(long, value_name = "ID")]
        node: Option<String>,
        /// Certificate profile of the node [default: the domain's default profile]
        #[arg(long)]
        profile: Option<String>,
        /// Create it even if the node is connected; whoever uses it takes the place of that host
        #[arg(long, requires = "node")]
        replace: bool,
        /// Create it in the data directory of a control plane that is stopped; not in a domain with several replicas
        #[arg(long)]
        stopped: bool,
        /// Label of the node, in place of those it has; repeatable
        #[arg(long, value_name = "KEY=VALUE", value_parser = label::pair)]
        label: Vec<(String, String)>,
    },
    /// List tokens that can still be used
    List {
        /// Include tokens that are used, revoked or expired
        #[arg(long)]
        all: bool,
        /// Show only tokens of this tenant
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Revoke a token that has not been used
    Revoke {
        /// Id of the token (TOKEN ID in `enlist token list`), not its value
        id: String,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Create { expires, tenant, node, profile, replace, stopped, label } => {
            let labels = label::map(label)?;
            let request = CreateTokenRequest { expires, tenant, node, profile, door: None, replace, labels };
            let minted = mint(reach, stopped, &request).await?;
            output.document(&minted, |minted| created(minted, reach, output.screen()))
        }
        Command::List { all, tenant } => {
            let operator = reach.operator()?;
            let query = TokenQuery { all: all.then_some(true), tenant, ..TokenQuery::default() };
            let items: Vec<TokenItem> = operator.list(&Path::new("/v1/tokens").queries(&query)?).await?;
            output.list(&items, table)
        }
        Command::Revoke { id } => {
            not_the_secret(&id, server::chance::TOKEN_PREFIX)?;
            reach.operator()?.delete(&Path::new("/v1/tokens").segment(&id)).await?;
            let done = serde_json::json!({ "token_id": id, "state": "revoked" });
            output.document(&done, |_| format!("token {} is revoked\n", harmless(&id)))
        }
    }
}

/// By a control plane that runs, or by that of a stopped directory, which is run for this alone.
pub async fn mint(
    reach: &Reach,
    stopped: bool,
    request: &CreateTokenRequest,
) -> Result<MintedToken, CommandError> {
    let path = Path::new("/v1/tokens");
    if !stopped {
        return Ok(reach.operator()?.post(&path, request).await?);
    }
    let control_plane = StoppedControlPlane::start(reach).await?;
    let minted = control_plane.operator().post(&path, request).await;
    control_plane.stop().await?;
    Ok(minted?)
}

fn created(minted: &MintedToken, reach: &Reach, screen: Screen) -> String {
    let fields = Fields::new()
        .with("token", minted.token.reveal())
        .with("id", &minted.token_id)
        .with("tenant", &minted.tenant)
        .with_some("node", minted.node.as_deref())
        .with_some("profile", minted.profile.as_deref())
        .with_some("labels", label::shown(&minted.labels).as_deref())
        .with("expires", &screen.full(&minted.expires_at))
        .with("CA pin", &minted.ca_pin);
    let shown = |line: &str| shell::paragraph(line, screen);
    format!(
        "{}\nOn the host, enroll it:\n{}\
         Then keep it connected and its certificate renewed:\n{}\
         or, with the unit file of docs/agent.md, as a service:\n{}\
         Here, see it arrive:\n{}",
        fields.text_on(screen),
        shown(&harmless(minted.join_command.reveal())),
        shown("enlist-agent run"),
        shown("systemctl enable --now enlist-agent"),
        shown(&shell::same_target(reach, "node list")),
    )
}

fn table(items: &[TokenItem]) -> Table {
    let head = ["TOKEN ID", "STATE", "TENANT", "NODE", "PROFILE", "EXPIRES", "CREATED BY", "USED BY"];
    let mut table = Table::new(head, "no tokens that can still be used; --all shows the others").dropping([
        "PROFILE",
        "CREATED BY",
        "TENANT",
        "USED BY",
        "NODE",
    ]);
    for item in items {
        let tone = if item.state == "unused" { Tone::Plain } else { Tone::Gone };
        let (node, profile) = (or_dash(item.node.as_deref()), or_dash(item.profile.as_deref()));
        let used_by = or_dash(item.used_by.as_deref());
        let (id, by) = (&item.token_id, &item.created_by);
        table.row(tone, [id, &item.state, &item.tenant, node, profile, &item.expires_at, by, used_by]);
    }
    table
}
