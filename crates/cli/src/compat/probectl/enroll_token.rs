//! `probectl-control enroll-token -tenant T -agent A -ttl D`.

use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::shell;
use crate::table::harmless;
use crate::token;
use api::rest::tokens::{CreateTokenRequest, MintedToken};
use serde::Serialize;

/// Where the document's agents keep their identity.
const AGENT_DIR: &str = "/var/lib/probectl-agent/identity";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Tenant of the agent [default: the operator's only tenant, else `default`]
    #[arg(long)]
    tenant: Option<String>,
    /// Id of the agent that the token enrolls [default: the control plane assigns an id]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Lifetime of the token, such as 90s, 15m, 1h or 1h30m [default: policy token.default_ttl]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    /// Create it in the data directory of a control plane that is stopped; not in a domain with several replicas
    #[arg(long)]
    stopped: bool,
}

/// The token under the document's names, beside Enlist's own.
#[derive(Serialize)]
struct ProbectlToken {
    id: String,
    tenant_id: String,
    agent_id: Option<String>,
    /// Hex SHA-256 of the certificate that the control plane presents; null if it does not say.
    server_cert_pin: Option<String>,
    agent_command: String,
    #[serde(flatten)]
    token: MintedToken,
}

pub async fn run(arguments: Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let expires = arguments.ttl.map(|ttl| go_duration(&ttl).unwrap_or(ttl));
    let request = CreateTokenRequest {
        expires,
        tenant: arguments.tenant,
        node: arguments.agent,
        profile: None,
        door: Some("probectl".to_owned()),
        ..CreateTokenRequest::default()
    };
    let mut token: MintedToken = token::mint(reach, arguments.stopped, &request).await?;
    let server_cert_pin = token.server_cert_pin.take();
    let minted = ProbectlToken {
        id: token.token_id.clone(),
        tenant_id: token.tenant.clone(),
        agent_id: token.node.clone(),
        agent_command: command(&token, server_cert_pin.as_deref()),
        server_cert_pin,
        token,
    };
    output.document(&minted, |minted| text(minted, output.screen()))
}

/// The document's agents pin the server's own certificate: no other pin is of use to them.
fn command(token: &MintedToken, pin: Option<&str>) -> String {
    let (server, secret) = (&token.server_url, token.token.reveal());
    let command = format!("probectl-agent enroll --server {server} --token {secret} --dir {AGENT_DIR}");
    pin.map_or_else(|| command.clone(), |pin| format!("{command} --ca-pin {pin}"))
}

fn text(minted: &ProbectlToken, screen: Screen) -> String {
    let fields = Fields::new()
        .with("token", minted.token.token.reveal())
        .with("id", &minted.id)
        .with("tenant", &minted.tenant_id)
        .with_some("agent", minted.agent_id.as_deref())
        .with("expires", &screen.full(&minted.token.expires_at))
        .with_some("server certificate pin", minted.server_cert_pin.as_deref());
    let command = shell::paragraph(&harmless(&minted.agent_command), screen);
    format!("{}\nOn the host:\n{command}", fields.text_on(screen))
}

/// `1h30m` and the like, as that program's language writes durations, in seconds.
fn go_duration(text: &str) -> Option<String> {
    let (mut secs, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let unit = match tail.chars().next()? {
            'h' => 3600,
            'm' if !tail.starts_with("ms") => 60,
            's' => 1,
            _ => return None,
        };
        secs = secs.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = tail.get(1..)?;
    }
    (secs > 0).then(|| format!("{secs}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_may_have_several_units() {
        for (text, secs) in [("1h", "3600s"), ("1h0m0s", "3600s"), ("1h30m", "5400s"), ("90s", "90s")] {
            assert_eq!(go_duration(text).as_deref(), Some(secs), "{text}");
        }
        for other in ["", "7d", "1.5h", "h", "10ms", "0s", "-1h", "99999999999999999999h"] {
            assert_eq!(go_duration(other), None, "{other}");
        }
    }
}
