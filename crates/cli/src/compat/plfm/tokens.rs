//! `plfm hosts enroll-token`: in the words that the document prints.

use super::tenant_scope::PlfmTenant;
use crate::error::{CommandError, not_the_secret};
use crate::output::Output;
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::tokens::{CreateTokenRequest, MintedToken, TokenItem, TokenQuery};
use client::OperatorApi;
use client::rest::Path;
use lifecycle::names::{Span, Timestamp};
use serde::Serialize;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create an enrollment token; its value is shown only once
    Create {
        /// Lifetime of the token, such as 90s, 15m or 1h [default: policy token.default_ttl]
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List pending tokens
    List {
        /// Include tokens that are used, revoked or expired
        #[arg(long)]
        all: bool,
    },
    /// Revoke an unused token
    Revoke {
        /// Id of the token (TOKEN ID in `plfm hosts enroll-token list`), not its value
        token_id: String,
    },
}

pub async fn run(command: Command, scope: PlfmTenant<'_>, output: Output) -> Result<(), CommandError> {
    let (path, operator) = (Path::new("/v1/tokens"), scope.operator);
    let tenant = Some(scope.tenant.clone());
    match command {
        Command::Create { expires } => {
            let request = CreateTokenRequest {
                expires,
                tenant,
                node: None,
                profile: None,
                door: Some("plfm".to_owned()),
                ..CreateTokenRequest::default()
            };
            let minted: MintedToken = operator.post(&path, &request).await?;
            let life = if output.is_json() { None } else { life(&minted, operator).await };
            output.document(&minted, |minted| created(minted, life))
        }
        Command::List { all } => {
            let query = TokenQuery { all: all.then_some(true), tenant, ..TokenQuery::default() };
            let items: Vec<TokenItem> = operator.list(&path.queries(&query)?).await?;
            let items: Vec<PlfmToken> = items.into_iter().map(PlfmToken::of).collect();
            output.list(&items, table)
        }
        Command::Revoke { token_id } => {
            not_the_secret(&token_id, server::chance::TOKEN_PREFIX)?;
            let TokenItem { token_id, .. } = scope.token(&token_id).await?;
            operator.delete(&path.segment(&token_id)).await?;
            let done = serde_json::json!({ "token_id": token_id, "state": "revoked" });
            output.document(&done, |_| format!("Enrollment token {} revoked.\n", harmless(&token_id)))
        }
    }
}

/// How long the token is good, as it is on record. Nothing if that cannot be read: the token is made, and must
/// be shown all the same.
async fn life(minted: &MintedToken, operator: &OperatorApi) -> Option<Span> {
    let item: TokenItem = operator.get(&Path::new("/v1/tokens").segment(&minted.token_id)).await.ok()?;
    let at = |text: &str| Timestamp::parse(text).ok();
    Some(at(&item.expires_at)?.since(at(&item.created_at)?))
}

fn created(minted: &MintedToken, life: Option<Span>) -> String {
    let within =
        life.map_or_else(|| "before it expires".to_owned(), |life| format!("within {}", words(life)));
    format!(
        "Enrollment token created.\n\
         Token: {}\n\
         Expires: {}\n\
         \n\
         Use this token {within} to enroll a new host.\n\
         This token can only be used once.\n",
        minted.token.reveal(),
        harmless(&whole_seconds(&minted.expires_at)),
    )
}

/// As the document writes a moment; a fraction less is on the safe side.
fn whole_seconds(text: &str) -> String {
    let floor = |at: Timestamp| Timestamp::from_millis(at.millis() / 1000 * 1000).to_string();
    Timestamp::parse(text).map_or_else(|_| text.to_owned(), floor)
}

/// `1 hour`, `30 minutes`: in the largest unit that needs no fraction.
fn words(life: Span) -> String {
    let secs = life.secs();
    let (number, unit) = match secs {
        _ if secs.is_multiple_of(3600) => (secs / 3600, "hour"),
        _ if secs.is_multiple_of(60) => (secs / 60, "minute"),
        _ => (secs, "second"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

/// A token under the document's names too.
#[derive(Serialize)]
struct PlfmToken {
    #[serde(flatten)]
    item: TokenItem,
    used: bool,
    used_by_host_id: Option<String>,
}

impl PlfmToken {
    fn of(item: TokenItem) -> Self {
        Self { used: item.state == "used", used_by_host_id: item.used_by.clone(), item }
    }
}

fn table(items: &[PlfmToken]) -> Table {
    let mut table = Table::new(
        ["TOKEN ID", "STATE", "CREATED BY", "EXPIRES", "USED BY"],
        "no pending tokens; --all shows the others",
    );
    for PlfmToken { item, .. } in items {
        let tone = if item.state == "unused" { Tone::Plain } else { Tone::Gone };
        let used_by = or_dash(item.used_by.as_deref());
        table.row(tone, [&item.token_id, &item.state, &item.created_by, &item.expires_at, used_by]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_told_in_whole_units() {
        for (text, expected) in [
            ("1h", "1 hour"),
            ("24h", "24 hours"),
            ("1m", "1 minute"),
            ("90m", "90 minutes"),
            ("90s", "90 seconds"),
        ] {
            assert_eq!(words(Span::parse(text).unwrap()), expected);
        }
    }

    #[test]
    fn a_moment_has_no_fraction() {
        assert_eq!(whole_seconds("2025-12-17T13:00:00.999Z"), "2025-12-17T13:00:00Z");
        assert_eq!(whole_seconds("soon"), "soon");
    }
}
