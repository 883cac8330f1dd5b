//! Tenants.

use crate::support::{Domain, check, create_tenant, granted, local, only, refused, tenant};
use lifecycle::registry::{Role, Tenants};

#[test]
fn a_domain_begins_with_one_tenant() {
    let domain = Domain::founded();
    assert_eq!(domain.state.tenants.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["default"]);
}

#[test]
fn a_tenant_is_created_once() {
    let mut domain = Domain::founded();
    let admin = domain.operator("alice", Role::PlatformAdmin, Tenants::All);
    check(&mut domain, (admin, create_tenant("acme")), granted(&["tenant.created"]));
    assert_eq!(domain.state.tenants[&tenant("acme")].created_by, "user:alice");
    check(&mut domain, (local(), create_tenant("acme")), refused("tenant_exists"));
    check(&mut domain, (local(), create_tenant("default")), refused("tenant_exists"));
}

#[test]
fn an_admin_of_some_tenants_creates_none() {
    let mut domain = Domain::founded();
    let admin = domain.operator("alice", Role::PlatformAdmin, only(&["default"]));
    check(&mut domain, (admin, create_tenant("acme")), refused("forbidden"));
}
