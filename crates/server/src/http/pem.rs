//! Certificates as the doors hand them out.

use lifecycle::names::{IssuerId, Timestamp};
use lifecycle::registry::{Issuer, IssuerState, State, StepCa};
use pki::pem;
use rustls_pki_types::CertificateDer;

/// A leaf, then the intermediates between it and its root.
pub fn leaf_and_chain(state: &State, der: &[u8], issuer: &IssuerId) -> String {
    let leaf = pem::certificate_pem(der);
    if is_root(state, issuer) || is_ephemeral(state, issuer) {
        leaf
    } else {
        leaf + &chain(state, der, issuer)
    }
}

/// What verifies the control plane: intermediates, then roots. An issuer of nodes alone is not in it: its certificate allows
/// client certificates only, and some TLS libraries ignore that of a CA which they were given as an anchor. A leaf of such an
/// issuer verifies by the roots with the intermediates that stand behind it.
pub fn trust(state: &State, issuer: &IssuerId) -> String {
    let servers = match state.issuers.get(issuer) {
        Some(own) if !own.is_of_domain() || is_root(state, issuer) => None,
        // One that signs for nodes and servers alike, such as an imported CA.
        Some(own) if own.usage.signs_servers() => Some(own),
        Some(_) | None => server_issuer(state),
    };
    certificates(servers) + &bundle(state)
}

/// The same for pact's clients, which verify their leaf by it: with an issuer outside of the domain's hierarchy, which no client can
/// verify a leaf without. An ephemeral one is for client certificates only, and says so; of a step-ca, its own root decides that.
pub fn trust_with_outside_issuer(state: &State, issuer: &IssuerId) -> String {
    let outside = state.issuers.get(issuer).filter(|issuer| !issuer.is_of_domain());
    let below = outside.and_then(|issuer| issuer.step_ca.as_deref()).into_iter().flat_map(intermediates);
    pem::chain_pem(below) + &certificates(outside) + &trust(state, issuer)
}

/// The same for probectl's agents, whose document has them verify their own leaf by this alone: with the issuer of the leaf,
/// unless that is outside of the domain's hierarchy.
pub fn trust_with_issuer(state: &State, issuer: &IssuerId) -> String {
    let nodes =
        state.issuers.get(issuer).filter(|issuer| !issuer.usage.signs_servers() && issuer.is_of_domain());
    certificates(nodes) + &trust(state, issuer)
}

/// What signs the control plane's own certificates now.
fn server_issuer(state: &State) -> Option<&Issuer> {
    let signs = |issuer: &&Issuer| {
        issuer.state == IssuerState::Active && issuer.is_of_domain() && issuer.usage.signs_servers()
    };
    state.issuers.values().find(signs)
}

/// In the memory of a replica: a root of its own, and of no server's certificate.
fn is_ephemeral(state: &State, issuer: &IssuerId) -> bool {
    state.issuers.get(issuer).is_some_and(Issuer::is_ephemeral)
}

/// An imported CA may be its own root, whether that is trusted still or not.
fn is_root(state: &State, issuer: &IssuerId) -> bool {
    let issuer = state.issuers.get(issuer);
    issuer.is_some_and(|issuer| state.roots.iter().any(|root| root.fingerprint == issuer.fingerprint))
}

/// What a leaf is verified by beside the bundle: the intermediates between it and its root, or its ephemeral issuer.
pub fn chain(state: &State, leaf: &[u8], issuer: &IssuerId) -> String {
    let issuer = state.issuers.get(issuer);
    match issuer.and_then(|issuer| issuer.step_ca.as_deref()) {
        Some(step_ca) => pem::chain_pem(above(step_ca, leaf)),
        None => certificates(issuer),
    }
}

/// What hosts trust to reach the control plane.
pub fn bundle(state: &State) -> String {
    pem::chain_pem(state.server_trust())
}

/// The same for enlist-agent, with the certificates by which a host that trusts an older root follows. Only for those who tell
/// them from roots: as an anchor, a cross-certificate would outlive the root that signed it.
pub fn bundle_to_follow(state: &State, now: Timestamp) -> String {
    pem::chain_pem(state.server_trust().chain(state.cross_certificates(now)))
}

/// The revocation lists of the roots that hosts trust, as hosts and operators' command lines are sent them.
pub fn root_crls(state: &State) -> String {
    state.denying_lists().map(|list| pem::crl_pem(&list.der)).collect()
}

/// What verifies the certificates of nodes: every issuer of theirs that may have signed a good one, then the roots. Never by what
/// to trust the control plane.
pub fn node_issuers(state: &State) -> String {
    pem::chain_pem(node_issuer_certificates(state))
}

pub fn node_issuer_certificates(state: &State) -> impl Iterator<Item = &[u8]> {
    let issuers = state.node_issuers().filter(|issuer| !is_root(state, &issuer.id));
    issuers.flat_map(verifying).chain(state.server_trust())
}

/// The certificates of one issuer: its own and, of a step-ca, those of its intermediates.
pub fn verifying(issuer: &Issuer) -> impl Iterator<Item = &[u8]> {
    let below = issuer.step_ca.as_deref().into_iter().flat_map(intermediates);
    std::iter::once(issuer.certificate.as_slice()).chain(below)
}

fn intermediates(step_ca: &StepCa) -> impl Iterator<Item = &[u8]> {
    step_ca.intermediates.iter().map(|ca| ca.certificate.as_slice())
}

/// The intermediates of a step-ca above one of its certificates.
fn above<'a>(step_ca: &'a StepCa, leaf: &[u8]) -> Vec<&'a [u8]> {
    let mut chain: Vec<&[u8]> = Vec::new();
    let mut last = CertificateDer::from(leaf.to_vec());
    while let Some(next) =
        intermediates(step_ca).find(|ca| !chain.contains(ca) && pki::verify::is_issued_by(&last, ca))
    {
        chain.push(next);
        last = CertificateDer::from(next.to_vec());
    }
    chain
}

/// Rises whenever [`node_issuers`] changes: with what hosts trust, and with issuers outside of the domain's hierarchy.
pub fn node_issuers_version(state: &State) -> u64 {
    state.bundle_version.saturating_add(state.ephemeral_version)
}

fn certificates<'a>(issuers: impl IntoIterator<Item = &'a Issuer>) -> String {
    pem::chain_pem(issuers.into_iter().map(|issuer| issuer.certificate.as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Fingerprint, IssuerUse, ReplicaId};
    use lifecycle::registry::{IssuerKind, Root, RootState};

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn issuer(name: &str, kind: IssuerKind, state: IssuerState, usage: IssuerUse) -> Issuer {
        Issuer {
            id: IssuerId::parse(name).unwrap(),
            kind,
            state,
            subject: name.to_owned(),
            certificate: name.as_bytes().to_vec(),
            fingerprint: fingerprint(name),
            not_after: AT,
            sealed_key: Vec::new(),
            revoked_at: None,
            replica: None::<ReplicaId>,
            usage,
            root: None,
            step_ca: None,
        }
    }

    fn fingerprint(name: &str) -> Fingerprint {
        pki::digest::fingerprint(name.as_bytes())
    }

    fn root(name: &str, state: RootState, cross: Option<&str>) -> Root {
        Root {
            certificate: name.as_bytes().to_vec(),
            fingerprint: fingerprint(name),
            not_after: AT,
            state,
            cross_certificate: cross.map(|cross| cross.as_bytes().to_vec().into()),
            since_bundle: 1,
            retired_at: (state == RootState::Retired).then_some(AT),
        }
    }

    fn state(issuers: Vec<Issuer>, roots: Vec<Root>) -> State {
        let issuers = issuers.into_iter().map(|issuer| (issuer.id.clone(), issuer)).collect();
        State { issuers, roots, ..State::default() }
    }

    /// What the PEM text holds, by the names that stand for certificates here.
    fn names(text: &str) -> Vec<String> {
        let found = pem::certificates(text.as_bytes()).unwrap_or_default();
        found.iter().map(|der| String::from_utf8_lossy(der).into_owned()).collect()
    }

    #[test]
    fn from_the_split_on_only_probectl_is_given_the_issuer_of_nodes() {
        let (sealed, active) = (IssuerKind::Sealed, IssuerState::Active);
        let state = state(
            vec![
                issuer("nodes", sealed, active, IssuerUse::Node),
                issuer("servers", sealed, active, IssuerUse::Server),
                issuer("both", sealed, IssuerState::Retiring, IssuerUse::Both),
            ],
            vec![root("root", RootState::Active, None)],
        );
        let nodes = IssuerId::parse("nodes").unwrap();
        assert_eq!(names(&trust(&state, &nodes)), ["servers", "root"]);
        assert_eq!(names(&trust_with_outside_issuer(&state, &nodes)), ["servers", "root"]);
        assert_eq!(names(&trust_with_issuer(&state, &nodes)), ["nodes", "servers", "root"]);
        assert_eq!(names(&leaf_and_chain(&state, b"leaf", &nodes)), ["leaf", "nodes"]);
        let both = IssuerId::parse("both").unwrap();
        assert_eq!(names(&trust(&state, &both)), ["both", "root"]);
        assert_eq!(names(&trust_with_issuer(&state, &both)), ["both", "root"]);
    }

    #[test]
    fn an_ephemeral_issuer_is_given_to_pact_alone() {
        let state = state(
            vec![
                issuer("memory", IssuerKind::Ephemeral, IssuerState::Active, IssuerUse::Node),
                issuer("servers", IssuerKind::Sealed, IssuerState::Active, IssuerUse::Server),
            ],
            vec![root("root", RootState::Active, None)],
        );
        let memory = IssuerId::parse("memory").unwrap();
        assert_eq!(names(&trust(&state, &memory)), ["root"]);
        assert_eq!(names(&trust_with_issuer(&state, &memory)), ["root"]);
        assert_eq!(names(&trust_with_outside_issuer(&state, &memory)), ["memory", "root"]);
        assert_eq!(names(&node_issuers(&state)), ["memory", "root"]);
    }

    #[test]
    fn a_retired_root_is_trusted_by_nobody_and_followed_for_a_while() {
        let issuers = vec![issuer("new", IssuerKind::Imported, IssuerState::Active, IssuerUse::Both)];
        let roots =
            vec![root("old", RootState::Retired, None), root("new", RootState::Active, Some("cross"))];
        let state = state(issuers, roots);
        assert_eq!(names(&bundle(&state)), ["new"]);
        assert_eq!(names(&bundle_to_follow(&state, AT)), ["new", "cross"]);
        let later = AT.plus(state.policy.recovery_ttl);
        assert_eq!(names(&bundle_to_follow(&state, later)), ["new"]);
        // An imported CA that is its own root stands there once.
        assert_eq!(names(&node_issuers(&state)), ["new"]);
    }
}
