//! The anchors by which node certificates are verified, read from the registry once per change of it.

use lifecycle::registry::{Issuer, IssuerKind, IssuerState, State};
use pki::verify::{AnchorError, NodeIssuers};
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Debug, thiserror::Error)]
pub enum AnchorsError {
    #[error("no domain")]
    NoDomain,
    #[error("node issuers: {0}")]
    Unusable(#[from] AnchorError),
}

/// Rises with either when the anchors may have changed.
type Versions = (u64, u64);

#[derive(Default)]
pub struct NodeAnchors {
    known: RwLock<Option<(Versions, Arc<NodeIssuers>)>>,
}

impl NodeAnchors {
    pub fn of(&self, state: &State) -> Result<Arc<NodeIssuers>, AnchorsError> {
        let versions = (state.bundle_version, state.ephemeral_version);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some((of, issuers)) if of == versions => Ok(issuers),
            Some(_) | None => {
                let issuers = Arc::new(read(state)?);
                let fresh = Some((versions, issuers.clone()));
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                Ok(issuers)
            }
        }
    }
}

/// The issuers themselves, not their roots, so that an issuer that is retired one day is not let in through its root.
fn read(state: &State) -> Result<NodeIssuers, AnchorsError> {
    let domain = state.domain.as_ref().ok_or(AnchorsError::NoDomain)?;
    let verifies = |issuer: &&Issuer| issuer.issues_for().signs_clients() && is_as_published(issuer);
    let usable = || state.issuers.values().filter(verifies);
    let trusted = usable().filter(|issuer| issuer.state.is_trusted());
    let trusted = trusted.flat_map(anchors_of).map(|der| (&domain.name, der));
    let mut issuers = NodeIssuers::new(trusted)?;
    // A revoked issuer stays among them, so that a certificate it signed is refused as revoked (alert 44) and not as unknown.
    for revoked in usable().filter(|issuer| issuer.state == IssuerState::Revoked) {
        for der in anchors_of(revoked) {
            issuers.add_revoked(&domain.name, der)?;
        }
    }
    Ok(issuers)
}

/// A leaf is verified by what signed it: of a step-ca, by its intermediates, as far as its root vouches for them.
fn anchors_of(issuer: &Issuer) -> Vec<&[u8]> {
    let known = issuer.step_ca.iter().flat_map(|step_ca| &step_ca.intermediates);
    let known: Vec<&[u8]> = known.map(|ca| ca.certificate.as_slice()).collect();
    let mut anchors = pki::step_ca::trusted_intermediates(&issuer.certificate, &known);
    anchors.push(&issuer.certificate);
    anchors
}

/// The rules of the registry read no certificate. An entry that published something else than an ephemeral CA, or under
/// another name, makes no anchor.
fn is_as_published(issuer: &Issuer) -> bool {
    match issuer.kind {
        IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Pkcs11 | IssuerKind::StepCa => return true,
        IssuerKind::Ephemeral => {}
    }
    let checked = pki::ephemeral::check(&issuer.certificate);
    let same = checked.as_ref().is_ok_and(|facts| {
        facts.fingerprint == issuer.fingerprint
            && facts.subject == issuer.subject
            && facts.not_after == issuer.not_after
            && pki::issuer::issuer_id(&issuer.certificate) == issuer.id
    });
    if !same {
        let error = checked.err().map(|error| error.to_string());
        tracing::error!(issuer = %issuer.id, error, "a published issuer is not what its record says: it is no anchor");
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{ClusterId, ReplicaId, Span, SpiffeId, Timestamp, TrustDomain, Ulid};
    use lifecycle::registry::{Domain, NodeSigner};
    use pki::agent_key::HostKey;
    use pki::issuer::SigningIssuer;
    use pki::leaf::{Issuance, sign_leaf};
    use rustls::pki_types::CertificateDer;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn name() -> TrustDomain {
        TrustDomain::parse("memory.example").expect("a name")
    }

    fn record(certificate: &[u8]) -> Issuer {
        let facts = pki::describe::facts(certificate).expect("a certificate");
        Issuer {
            id: pki::issuer::issuer_id(certificate),
            kind: IssuerKind::Ephemeral,
            state: IssuerState::Active,
            subject: facts.subject,
            certificate: certificate.to_vec(),
            fingerprint: facts.fingerprint,
            not_after: facts.not_after,
            sealed_key: Vec::new(),
            revoked_at: None,
            replica: Some(ReplicaId(1)),
            usage: lifecycle::names::IssuerUse::Node,
            root: None,
            step_ca: None,
        }
    }

    fn leaf(issuer: &SigningIssuer) -> CertificateDer<'static> {
        let subject = SpiffeId::parse("spiffe://memory.example/tenant/default/agent/n1").expect("an id");
        let (serial, lifetime) = ([7; 16], Span::from_hours(1));
        let issuance = Issuance { subject, common_name: None, serial, signing_time: AT, lifetime };
        let key = HostKey::generate().expect("a key");
        sign_leaf(issuer, &key.spki(), &issuance).expect("signs").der.into()
    }

    fn accepts(anchors: &NodeAnchors, version: u64, issuer: Issuer, leaf: &CertificateDer<'_>) -> bool {
        let domain = Domain {
            name: name(),
            cluster: ClusterId(Ulid::new(AT, [1; 10])),
            founded_at: AT,
            node_signer: NodeSigner::Ephemeral,
        };
        let mut state =
            State { domain: Some(domain), at: AT, ephemeral_version: version, ..State::default() };
        state.issuers.insert(issuer.id.clone(), issuer);
        anchors.of(&state).expect("anchors").check(leaf, AT).is_ok()
    }

    #[test]
    fn only_what_has_the_shape_of_an_ephemeral_ca_and_is_what_its_record_says_is_an_anchor() {
        let anchors = NodeAnchors::default();
        let ca = pki::ephemeral::create(&name(), [1; 16], AT).expect("a CA");
        let (good, signed) = (record(ca.certificate()), leaf(&ca));
        assert!(accepts(&anchors, 1, good.clone(), &signed));
        let other = pki::ephemeral::create(&name(), [2; 16], AT).expect("a CA");
        let forged: [fn(&mut Issuer, &Issuer); 4] = [
            |issuer, other| issuer.fingerprint = other.fingerprint,
            |issuer, other| issuer.id = other.id.clone(),
            |issuer, other| issuer.subject = other.subject.clone(),
            |issuer, _| issuer.not_after = issuer.not_after.plus(Span::from_days(365)),
        ];
        for (version, forge) in (2..).zip(forged) {
            let mut issuer = good.clone();
            forge(&mut issuer, &record(other.certificate()));
            assert!(!accepts(&anchors, version, issuer, &signed), "version {version}");
        }
        // A CA that could sign for servers too, and live for years.
        let made = pki::hierarchy::create(&name(), AT, [[3; 16], [4; 16], [5; 16]]).expect("a hierarchy");
        let issuer = SigningIssuer::new(&made.node.der, &made.node.key).expect("an issuer");
        assert!(!accepts(&anchors, 9, record(&made.node.der), &leaf(&issuer)));
        assert!(accepts(&anchors, 10, good, &signed));
    }
}
