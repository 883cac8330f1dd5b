//! Registering: a node is known before it has a certificate. An operator registers in a tenant of its own; a
//! token registers the node that it will enroll, and from then on is for that node alone: asked again, it names
//! the same one.

use super::enroll::{check_attestor, check_token};
use crate::names::{NodeId, SecretHash, TenantId};
use crate::registry::apply::Decision;
use crate::registry::{
    Actor, Claim, Event, NodeRegistered, Outcome, Register, Rejection, State, Token, standing,
};

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
    if standing(state, actor).is_some_and(|standing| !standing.tenants.include(&token.tenant)) {
        return Err(Rejection::TokenInvalid);
    }
    check_attestor(state)?;
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
        hostname: register.hostname.clone(),
        plane: register.plane.clone(),
    }));
    Ok(Decision { events: vec![event], answer: Ok(Outcome::Registered { node }) })
}
