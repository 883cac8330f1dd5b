//! Registering: a node is known before it has a certificate. An operator registers in a tenant of its own; a
//! token registers the node that it will enroll, and from then on is for that node alone: asked again, it names
//! the same one.

use super::credential::Attestor;
use super::describe::label_field;
use super::enroll::check_token;
use crate::names::{Label, Labels, NodeId, ProfileName, SecretHash, TenantId, Title, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Actor, Envelope, Event, Node, Outcome, Rejection, State, Token, permissions};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Makes a node known before it has a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Drawn by the replica. A token's pin has the last word.
    pub node: NodeId,
    pub claim: Claim,
    /// The domain's default when neither this nor the token names one.
    pub profile: Option<ProfileName>,
    /// What kind of collector it is.
    pub plane: Option<Label>,
    pub hostname: Option<Label>,
}

/// By what right a node is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// The actor's own, in this tenant.
    Tenant(TenantId),
    /// That of whoever minted the token, which from then on is for this node alone.
    Token(SecretHash),
}

pub(in crate::registry) fn decide(state: &State, actor: &Actor, register: &Register) -> Decision {
    let decided = match &register.claim {
        Claim::Tenant(tenant) => by_operator(state, tenant, register),
        Claim::Token(token) => by_token(state, actor, token, register),
    };
    decided.unwrap_or_else(Decision::from)
}

fn by_operator(state: &State, tenant: &TenantId, register: &Register) -> Result<Decision, Rejection> {
    if !state.tenants.contains_key(tenant) {
        return Err(Rejection::TenantNotFound { tenant: tenant.clone() });
    }
    if state.nodes.contains_key(&register.node) {
        return Err(Rejection::NodeIdInUse { node: register.node.clone() });
    }
    registered(state, register, tenant, register.node.clone(), None)
}

fn by_token(
    state: &State,
    actor: &Actor,
    token: &SecretHash,
    register: &Register,
) -> Result<Decision, Rejection> {
    let token = check_token(state, token, None)?;
    // An operator who found a token of another tenant is no better off for being an operator.
    if permissions(state, actor).is_some_and(|granted| !granted.tenants.include(&token.tenant)) {
        return Err(Rejection::TokenInvalid);
    }
    state.policy.check_attestor(Attestor::JoinToken)?;
    let Some(pinned) = &token.node else {
        if state.nodes.contains_key(&register.node) {
            return Err(Rejection::PreparedStale);
        }
        return registered(state, register, &token.tenant, register.node.clone(), Some(token));
    };
    match state.nodes.get(pinned) {
        None => registered(state, register, &token.tenant, pinned.clone(), Some(token)),
        Some(node) if node.tenant != token.tenant => Err(Rejection::NodeIdInUse { node: pinned.clone() }),
        Some(node) if node.state.is_gone() => Err(Rejection::NodeRevoked { node: pinned.clone() }),
        Some(node) => {
            let answer = Ok(Outcome::Registered { node: node.id.clone() });
            Ok(Decision { events: Vec::new(), answer })
        }
    }
}

fn registered(
    state: &State,
    register: &Register,
    tenant: &TenantId,
    node: NodeId,
    token: Option<&Token>,
) -> Result<Decision, Rejection> {
    let profile = token.and_then(|token| token.profile.clone()).or_else(|| register.profile.clone());
    let profile = profile.unwrap_or_else(|| state.policy.default_profile.clone());
    if !state.policy.profiles.contains_key(&profile) {
        return Err(Rejection::ProfileNotFound { profile });
    }
    let event = Event::NodeRegistered(Box::new(NodeRegistered {
        node: node.clone(),
        tenant: tenant.clone(),
        profile,
        token: token.map(|token| token.id),
        name: token.and_then(|token| token.name.clone()),
        labels: token.map(|token| token.labels.clone()).unwrap_or_default(),
        hostname: register.hostname.clone(),
        plane: register.plane.clone(),
    }));
    Ok(Decision { events: vec![event], answer: Ok(Outcome::Registered { node }) })
}

/// A node is known, and has no certificate yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRegistered {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: ProfileName,
    /// From now on for this node alone.
    pub token: Option<TokenId>,
    pub name: Option<Title>,
    pub labels: Labels,
    pub hostname: Option<Label>,
    pub plane: Option<Label>,
}

impl Happened for NodeRegistered {
    const NAME: &'static str = "host.registered";

    fn fields(&self) -> AuditFields {
        let mut fields = host(
            &self.node,
            [
                ("tenant", AuditField::text(&self.tenant)),
                ("profile", AuditField::text(&self.profile)),
                ("token_id", AuditField::maybe(self.token)),
                ("name", AuditField::maybe(self.name.as_ref())),
                ("hostname", AuditField::maybe(self.hostname.as_ref())),
                ("plane", AuditField::maybe(self.plane.as_ref())),
            ],
        );
        if !self.labels.is_empty() {
            fields.push(("labels", label_field(&self.labels)));
        }
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let (id, tenant) = (self.node.clone(), self.tenant.clone());
        let mut node = Node::registered(id.clone(), tenant, self.profile.clone(), state.at);
        node.name = self.name.clone();
        node.labels = self.labels.clone();
        node.hostname = self.hostname.clone();
        node.plane = self.plane.clone();
        state.nodes.insert(id.clone(), Arc::new(node));
        let token = self.token.and_then(|token| state.tokens.get_mut(&token));
        if let Some(token) = token.map(Arc::make_mut) {
            token.node = Some(id);
        }
    }
}
