//! What nodes that are well are given, so that they can recover one day: tokens, and where to turn to.

use crate::http::failure::Failure;
use crate::http::pem::{bundle, bundle_to_follow};
use crate::process::app::App;
use crate::process::chance;
use api::agent::{RecoveryGrant, RecoveryProfile};
use lifecycle::names::{Label, NodeId, TokenId, Ulid};
use lifecycle::registry::{Keeping, Mint, State};
use zeroize::Zeroizing;

/// How recovery tokens begin, so that people and scanners know what they found.
const PREFIX: &str = "recovery_";

/// A token that may be granted. Nothing about it leaves the process before it is.
pub struct Drawn {
    pub mint: Mint,
    pub value: Zeroizing<String>,
}

pub fn draw(app: &App) -> Result<Drawn, Failure> {
    let value = chance::secret(PREFIX)?;
    let token = TokenId(chance::ulid(app.now())?);
    Ok(Drawn { mint: Mint { token, hash: pki::digest::secret_hash(value.as_bytes()) }, value })
}

/// What a host has on its disk. Words that are no token's id say the same as none: a host is not turned away for
/// what it would be given anew.
pub fn kept(text: &str) -> Option<TokenId> {
    Ulid::parse(text).ok().map(TokenId)
}

/// What a host says of recovery with a request.
pub struct RecoveryExchange {
    kept: Option<TokenId>,
    /// Drawn for a host that keeps such tokens.
    drawn: Option<Drawn>,
    /// The recovery profile that a token drawn now is for.
    profile: Label,
}

impl RecoveryExchange {
    pub fn new(app: &App, kept_words: &str, wanted: bool) -> Result<Self, Failure> {
        let drawn = wanted.then(|| draw(app)).transpose()?;
        Ok(Self { kept: kept(kept_words), drawn, profile: app.config.recovery.id.clone() })
    }

    pub fn keeping(&self) -> Keeping {
        let mint = self.drawn.as_ref().map(|drawn| drawn.mint);
        Keeping { kept: self.kept, mint, profile: mint.map(|_| self.profile.clone()) }
    }

    /// What a host that wants it is told: the profile, and the token if it was granted; or that its node keeps none.
    /// Nothing in quarantine.
    pub fn grant(&self, app: &App, state: &State, node: &NodeId) -> Option<RecoveryGrant> {
        let on_record = state.nodes.get(node).filter(|node| !node.quarantined)?;
        let drawn = self.drawn.as_ref()?;
        if !on_record.keeps_recovery_tokens() {
            return Some(ineligible());
        }
        Some(granted(app, state, node, drawn).unwrap_or_else(|| RecoveryGrant {
            profile: Some(profile_to_follow(app, state)),
            ..RecoveryGrant::default()
        }))
    }
}

/// What the host of a node that was enrolled without recovery is told, so that it asks no more.
pub fn ineligible() -> RecoveryGrant {
    RecoveryGrant { ineligible: true, ..RecoveryGrant::default() }
}

/// The token, if it is on record as the node's.
pub fn granted(app: &App, state: &State, node: &NodeId, drawn: &Drawn) -> Option<RecoveryGrant> {
    let on_record = state.nodes.get(node)?.recovery.token(drawn.mint.token)?;
    on_record.is_valid().then(|| RecoveryGrant {
        token_id: on_record.id.to_string(),
        token: drawn.value.to_string(),
        expires_at: on_record.expires_at.to_string(),
        profile: Some(profile_to_follow(app, state)),
        ineligible: false,
    })
}

/// Where a lost node turns to, and what it trusts there: as configured, else where everybody goes.
pub fn profile(app: &App, state: &State) -> RecoveryProfile {
    profile_with(app, || bundle(state))
}

/// The same for a host, which takes a new root only from one that it trusts.
pub fn profile_to_follow(app: &App, state: &State) -> RecoveryProfile {
    profile_with(app, || bundle_to_follow(state, app.now()))
}

fn profile_with(app: &App, bundle: impl FnOnce() -> String) -> RecoveryProfile {
    let configured = &app.config.recovery;
    let first = || app.servers().into_iter().next().unwrap_or_default();
    RecoveryProfile {
        id: configured.id.to_string(),
        url: configured.url.clone().unwrap_or_else(first),
        ca: configured.ca.clone().unwrap_or_else(bundle),
    }
}
