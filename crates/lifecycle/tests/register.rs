//! Making a node known before it has a certificate.

use crate::support::{Domain, check, granted, local, node, only, refused, register, span, tenant};
use lifecycle::names::{Label, NodeId, SecretHash, TenantId, Title};
use lifecycle::registry::{Actor, Claim, Command, NodeState, Outcome, Register, Role, Tenants};

const REGISTERED: &[&str] = &["host.registered"];

/// The node that a token registers, under an id of its own if it is new.
#[track_caller]
fn by_token(domain: &mut Domain, token: SecretHash, drawn: &str) -> NodeId {
    let Command::Register(register) = register(Claim::Token(token)) else { unreachable!() };
    let register = Command::Register(Register { node: node(drawn), ..register });
    match domain.give(Actor::Stranger, register).answer {
        Ok(Outcome::Registered { node }) => node,
        other => panic!("{other:?}"),
    }
}

fn in_default() -> Command {
    register(Claim::Tenant(TenantId::default_tenant()))
}

#[test]
fn an_operator_registers_in_its_own_tenant() {
    let mut domain = Domain::founded();
    let acme = domain.tenant("acme");
    let operator = domain.operator("alice", Role::Operator, only(&["acme"]));
    check(&mut domain, (operator.clone(), in_default()), refused("tenant_not_found"));
    check(&mut domain, (operator.clone(), register(Claim::Tenant(acme.clone()))), granted(REGISTERED));
    let known = &domain.state.nodes[&node("c1")];
    assert_eq!((known.state, &known.tenant), (NodeState::Registered, &acme));
    assert_eq!((known.serials.len(), known.token, known.enrolled_at), (0, None, None));
    check(&mut domain, (operator, register(Claim::Tenant(acme))), refused("node_id_in_use"));
    check(&mut domain, (local(), register(Claim::Tenant(tenant("never")))), refused("tenant_not_found"));
    let viewer = domain.operator("eve", Role::Viewer, Tenants::All);
    check(&mut domain, (viewer, in_default()), refused("forbidden"));
    check(&mut domain, (Actor::Stranger, in_default()), refused("unauthenticated"));
}

#[test]
fn a_registered_node_is_enrolled_by_a_pinned_token() {
    let mut domain = Domain::founded();
    check(&mut domain, (local(), in_default()), granted(REGISTERED));
    let token = domain.mint_pinned(&node("c1"));
    let enrolled = domain.enroll_with(token, |_| ());
    assert_eq!(enrolled.node, node("c1"));
    assert_eq!(domain.state.nodes[&node("c1")].state, NodeState::Enrolled);
}

#[test]
fn a_token_registers_one_node_however_often_it_is_asked_and_then_enrolls_it() {
    let mut domain = Domain::founded();
    let name = Title::parse("Edge 1").ok();
    let token = domain.mint_with(|create| create.name = name.clone());
    let Command::Register(first) = register(Claim::Token(token.hash)) else { unreachable!() };
    let (plane, hostname) = (Label::parse("flow").ok(), Label::parse("edge-1").ok());
    let first = Register { plane: plane.clone(), hostname: hostname.clone(), ..first };
    check(&mut domain, (Actor::Stranger, Command::Register(first)), granted(REGISTERED));
    let known = &domain.state.nodes[&node("c1")];
    assert_eq!((&known.plane, &known.hostname, &known.name), (&plane, &hostname, &name));
    assert_eq!(by_token(&mut domain, token.hash, "c2"), node("c1"));
    assert!(!domain.state.nodes.contains_key(&node("c2")));
    let enrolled = domain.enroll_with(token, |_| ());
    assert_eq!(enrolled.node, node("c1"));
    assert_eq!(domain.state.nodes[&node("c1")].plane, plane);
    let again = (Actor::Stranger, register(Claim::Token(token.hash)));
    check(&mut domain, again, refused("token_used"));
}

#[test]
fn a_pinned_token_registers_its_pin() {
    let mut domain = Domain::founded();
    let token = domain.mint_pinned(&node("rack-7"));
    assert_eq!(by_token(&mut domain, token.hash, "c1"), node("rack-7"));
    let active = domain.active();
    let token = domain.mint_pinned(&active.node);
    assert_eq!(by_token(&mut domain, token.hash, "c1"), active.node);
    assert_eq!(domain.state.nodes[&active.node].state, NodeState::Active);
}

#[test]
fn a_token_that_is_not_good_registers_nothing() {
    let mut domain = Domain::founded();
    let by = |token: SecretHash| (Actor::Stranger, register(Claim::Token(token)));
    check(&mut domain, by(SecretHash::new([9; 32])), refused("token_invalid"));
    let revoked = domain.mint();
    let revoke = Command::RevokeToken { token: revoked.id };
    check(&mut domain, (local(), revoke), granted(&["enrollment_token.revoked"]));
    check(&mut domain, by(revoked.hash), refused("token_revoked"));
    let gone = domain.active();
    let pinned = domain.mint_pinned(&gone.node);
    domain.end(&gone.node, NodeState::Revoked);
    check(&mut domain, by(pinned.hash), refused("node_revoked"));
    domain.policy("attestors", "hardware");
    let token = domain.mint();
    check(&mut domain, by(token.hash), refused("attestor_not_allowed"));
    domain.policy("attestors", "join-token");
    domain.pass(span("1h"));
    check(&mut domain, by(token.hash), refused("token_expired"));
}

#[test]
fn an_operator_gains_nothing_by_a_token_of_another_tenant() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let token = domain.mint();
    let (theirs, ours) = (
        domain.operator("mallory", Role::PlatformAdmin, only(&["acme"])),
        domain.operator("alice", Role::Operator, only(&["default"])),
    );
    check(&mut domain, (theirs, register(Claim::Token(token.hash))), refused("token_invalid"));
    check(&mut domain, (ours, register(Claim::Token(token.hash))), granted(REGISTERED));
}
