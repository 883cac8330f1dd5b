//! What this domain claims.

use crate::ca::keys::audit_issuer;
use api::claims::{ClaimsDocument, HardwareDigest, MachineClaim, SignedClaims, claims_message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::names::{NodeId, Span, Timestamp};
use lifecycle::registry::{NodeState, State};
use pki::sign::AuditKey;
use std::collections::HashMap;

/// A claim lives for so many intervals, in which it can be lost and repeated.
const LIVES: u64 = 10;
/// So long may a document be: some 25,000 machines. Of a larger fleet the rest is not claimed.
const DOCUMENT_BYTES: usize = 6 * 1024 * 1024;

/// The machines that are active here, by the digests of what they are known by.
pub struct ActiveMachines {
    claims: Vec<MachineClaim>,
    nodes: HashMap<HardwareDigest, NodeId>,
}

impl ActiveMachines {
    pub fn of(state: &State) -> Self {
        let (mut claims, mut nodes, mut bytes) = (Vec::new(), HashMap::new(), 0_usize);
        for node in state.nodes.values().filter(|node| node.state == NodeState::Active) {
            let Some(identity) = &node.identity else { continue };
            let hardware: Vec<HardwareDigest> =
                identity.identifiers().map(|identifier| digest(&identifier.to_string())).collect();
            nodes.extend(hardware.iter().map(|digest| (*digest, node.id.clone())));
            bytes = bytes.saturating_add(64 + hardware.len() * 68);
            if bytes <= DOCUMENT_BYTES {
                claims.push(MachineClaim { hardware, active_since: node.state_since.to_string() });
            }
        }
        if bytes > DOCUMENT_BYTES {
            tracing::warn!(claimed = claims.len(), "more machines are active than can be claimed");
        }
        Self { claims, nodes }
    }

    /// The node that is known by this.
    pub fn node(&self, digest: &HardwareDigest) -> Option<&NodeId> {
        self.nodes.get(digest)
    }

    /// The same for the same machines.
    pub fn digest(&self) -> [u8; 32] {
        let machine = |claim: &MachineClaim| {
            let hardware = claim.hardware.iter().map(ToString::to_string);
            hardware.chain([claim.active_since.clone()]).collect::<Vec<_>>().join("\n")
        };
        let texts: Vec<String> = self.claims.iter().map(machine).collect();
        pki::digest::hardware_digest(&texts.join("\n"))
    }
}

/// As others look for it.
pub fn digest(identifier: &str) -> HardwareDigest {
    HardwareDigest(pki::digest::hardware_digest(identifier))
}

/// The body of a post.
pub fn signed(
    state: &State,
    key: &AuditKey,
    machines: &ActiveMachines,
    (at, interval): (Timestamp, Span),
) -> Result<Vec<u8>, String> {
    let missing = || "the domain is not initialized".to_owned();
    let domain = state.domain.as_ref().ok_or_else(missing)?;
    let signer = state.audit_signer.as_ref().ok_or_else(missing)?;
    let life = Span::from_millis(interval.millis().saturating_mul(LIVES));
    let document = ClaimsDocument {
        domain: domain.name.to_string(),
        issued_at: at.to_string(),
        expires_at: at.plus(life).to_string(),
        claims: machines.claims.clone(),
    };
    let document = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
    let signature = key.sign(&claims_message(&document)).map_err(|error| error.to_string())?;
    let issuer = audit_issuer(state, signer).map(|issuer| issuer.certificate.as_slice());
    let chain = [signer.certificate.as_slice()].into_iter().chain(issuer);
    let signed = SignedClaims {
        document: STANDARD.encode(document),
        signature: STANDARD.encode(signature),
        chain: chain.map(|certificate| STANDARD.encode(certificate)).collect(),
    };
    serde_json::to_vec(&signed).map_err(|error| error.to_string())
}
