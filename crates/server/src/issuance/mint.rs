//! Minting a token: its value is drawn here and leaves with the answer; only its hash goes on record.

use crate::fleet::everywhere;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use journal::View;
use lifecycle::names::{Labels, NodeId, ProfileName, Span, TenantId, Title, TokenId};
use lifecycle::registry::{Actor, Command, CreateToken, Door, Rejection, Token};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What a door makes of its wire shape.
pub struct TokenRequest {
    /// Whose way of writing tokens, and whose profile unless one is named.
    pub door: Door,
    pub tenant: TenantId,
    pub node: Option<NodeId>,
    pub profile: Option<ProfileName>,
    pub ttl: Option<Span>,
    /// What the node that it makes shall be called.
    pub name: Option<Title>,
    /// The labels of the node that it makes.
    pub labels: Labels,
    /// Whether a node that is connected may lose its place by it.
    pub connected: IfConnected,
}

/// What is asked about the node that a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfConnected {
    /// The documents of the compatibility APIs know no such refusal.
    NotAsked,
    Refuse,
    Replace,
}

/// A token on record, and its value for the only time.
pub struct NewToken {
    pub value: Zeroizing<String>,
    pub token: Arc<Token>,
    pub view: Arc<View>,
}

pub async fn mint(
    app: &App,
    actor: Actor,
    origin: &Provenance,
    order: TokenRequest,
) -> Result<NewToken, Failure> {
    let value = chance::token(order.door)?;
    let id = TokenId(chance::ulid(app.now())?);
    let asked = order.node.as_ref().filter(|_| order.connected != IfConnected::NotAsked);
    let connected = match asked {
        Some(node) => everywhere::node(app, node).await.and_then(|known| known.connection),
        None => None,
    };
    let command = CreateToken {
        token: id,
        hash: pki::digest::secret_hash(value.as_bytes()),
        tenant: order.tenant,
        node: order.node,
        profile: order.profile.or_else(|| order.door.profile()),
        ttl: order.ttl,
        name: order.name,
        labels: order.labels,
        connected,
        replace: order.connected == IfConnected::Replace,
    };
    let (_, view) = app.commit(actor, origin, Command::CreateToken(command)).await?;
    let token = view.state.tokens.get(&id).cloned().ok_or(Rejection::TokenNotFound { token: id })?;
    Ok(NewToken { value, token, view })
}
