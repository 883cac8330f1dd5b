//! Bootstrap identities: issued, listed, revoked, and what they may read.

use crate::support::{Domain, check, granted, local, refused, set_policy, span, vcluster};
use lifecycle::names::{BootstrapName, KeyHash, Span, SpiffeId};
use lifecycle::registry::{Actor, Command, IssueBootstrap, Owner, boot_config};

fn name(text: &str) -> BootstrapName {
    BootstrapName::parse(text).unwrap()
}

fn issue(domain: &mut Domain, called: &str, lifetime: Span) -> Command {
    let of = domain.state.domain.as_ref().unwrap().name.clone();
    let key = KeyHash::new(domain.digest());
    let certificate = domain.issue(SpiffeId::bootstrap(&of, &name(called)), key, lifetime);
    Command::IssueBootstrap(Box::new(IssueBootstrap { name: name(called), certificate }))
}

#[test]
fn one_name_may_have_several_certificates_and_is_revoked_with_all_of_them() {
    let mut domain = Domain::founded();
    for _ in 0..2 {
        let command = issue(&mut domain, "image-1", span("90d"));
        check(&mut domain, (local(), command), granted(&["bootstrap.issued"]));
    }
    let serials = domain.state.bootstraps[&name("image-1")].serials.clone();
    assert_eq!(serials.len(), 2);
    for serial in &serials {
        assert_eq!(domain.state.certificates[serial].owner, Owner::Bootstrap(name("image-1")));
        assert!(domain.state.is_good(serial));
    }
    let revoke = || (local(), Command::RevokeBootstrap { name: name("image-1") });
    check(&mut domain, revoke(), granted(&["bootstrap.revoked"]));
    assert!(serials.iter().all(|serial| domain.state.is_denied(serial)));
    check(&mut domain, revoke(), granted(&[]));
    check(
        &mut domain,
        (local(), Command::RevokeBootstrap { name: name("other") }),
        refused("bootstrap_not_found"),
    );
    let command = issue(&mut domain, "image-1", span("1h"));
    check(&mut domain, (local(), command), granted(&["bootstrap.issued"]));
    assert!(serials.iter().all(|serial| domain.state.is_denied(serial)), "what was revoked stays so");
}

#[test]
fn a_name_is_forgotten_with_its_last_certificate() {
    let mut domain = Domain::founded();
    let command = issue(&mut domain, "image-1", span("1h"));
    check(&mut domain, (local(), command), granted(&["bootstrap.issued"]));
    domain.pass(span("2h"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&["registry.tidied"]));
    assert!(domain.state.bootstraps.is_empty());
}

#[test]
fn a_lifetime_has_bounds() {
    let mut domain = Domain::founded();
    let command = issue(&mut domain, "image-1", span("30s"));
    check(&mut domain, (local(), command), refused("bootstrap_ttl_invalid"));
}

#[test]
fn policy_says_what_is_read() {
    let mut domain = Domain::founded();
    let read = |domain: &Domain, named: Option<&str>| {
        let named = named.map(vcluster);
        boot_config(&domain.state, named.as_ref()).map(drop).map_err(|rejection| rejection.code())
    };
    assert_eq!(read(&domain, None), Ok(()));
    assert_eq!(read(&domain, Some("ml")), Err("bootstrap_read_not_allowed"));
    check(&mut domain, (local(), set_policy("bootstrap.read", "vclusters")), granted(&["policy.changed"]));
    assert_eq!(read(&domain, Some("ml")), Err("vcluster_not_found"));
    check(&mut domain, (local(), set_policy("bootstrap.read", "none")), granted(&["policy.changed"]));
    assert_eq!(read(&domain, None), Err("bootstrap_read_not_allowed"));
}
