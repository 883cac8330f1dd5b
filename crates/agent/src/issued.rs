//! Checks a certificate that came back before any of it is written: a host that stores one it cannot use would
//! only find out later.

use std::sync::Arc;

use api::agent::{EnrollResponse, RecoverResponse, RenewResponse};
use lifecycle::names::{Span, SpiffePath, TenantId, Timestamp};
use pki::agent_key::HostKey;
use pki::describe::{self, Facts};
use pki::pem;
use pki::verify::{NodeIssuers, PeerError, is_issued_by};
use rustls_pki_types::CertificateDer;

use crate::code::AgentCode;
use crate::enroll::persist::{LONGEST, SERVERS};
use crate::fault::Fault;
use crate::store::identity::{HostIdentity, IdentityMeta};
use crate::trust_offer::TrustOffer;
use client::RootLists;

/// How far this clock may be behind the control plane's. A leaf begins a minute early, which is not enough for
/// a host that has just started and not yet heard of the time.
const CLOCK_TOLERANCE: Span = Span::from_minutes(5);

/// What Enroll, Renew and Recover answer alike.
#[derive(Debug)]
pub struct IssuedAnswer<'a> {
    certificate: &'a str,
    chain: &'a str,
    pub trust: TrustOffer<'a>,
    cert_serial: &'a str,
    renew_at: &'a str,
    profile: &'a str,
    servers: &'a [String],
}

/// The three answers that hold a certificate name these fields alike.
macro_rules! from_answers {
    ($($answer:ident),*) => {
        $(impl<'a> From<&'a $answer> for IssuedAnswer<'a> {
            fn from(answer: &'a $answer) -> Self {
                Self {
                    certificate: &answer.certificate,
                    chain: &answer.chain,
                    trust: TrustOffer::from(answer),
                    cert_serial: &answer.cert_serial,
                    renew_at: &answer.renew_at,
                    profile: &answer.profile,
                    servers: &answer.servers,
                }
            }
        })*
    };
}

from_answers!(EnrollResponse, RenewResponse, RecoverResponse);

impl IssuedAnswer<'_> {
    /// The identity that the answer holds, for the key that asked for it. It trusts nothing yet: what of the offer is taken
    /// depends on what is trusted already.
    pub fn check(&self, key: Arc<HostKey>, at: Timestamp) -> Result<HostIdentity, Fault> {
        let leaf = match certificates("certificate", self.certificate)?.as_slice() {
            [leaf] => leaf.clone(),
            _ => return Err(invalid("certificate holds more than the leaf")),
        };
        let mut chain = match self.chain.trim() {
            "" => Vec::new(),
            chain => certificates("chain", chain)?,
        };
        let bundle = certificates("bundle", self.trust.bundle)?;
        let facts = describe::facts(&leaf).map_err(|error| invalid(format!("certificate: {error}")))?;
        if facts.spki != key.spki() {
            return Err(invalid("the certificate is for another key than this host's"));
        }
        let spiffe = facts.spiffe.clone();
        let spiffe = spiffe.ok_or_else(|| invalid("the certificate names no SPIFFE identity"))?;
        if !matches!(spiffe.path, SpiffePath::Agent { .. }) {
            return Err(invalid("the certificate is not a node's"));
        }
        agrees("cert_serial", self.cert_serial, &facts.serial.to_string())?;
        let moment = moment(&facts, at)?;
        // A node's issuer need not be one that hosts trust for the control plane, so the chain counts as well.
        let anchors = chain.iter().chain(&bundle).map(|ca| (&spiffe.domain, ca.as_ref()));
        let issuers = NodeIssuers::new(anchors).map_err(|error| invalid(error.to_string()))?;
        issuers.check(&leaf, moment).map_err(|error| refusal(&error, &facts, at))?;
        // What is no intermediate has done its work by now: an ephemeral issuer is an anchor of the control plane's, to whom it
        // need not be shown, and must not get among what this host's programs trust.
        chain.retain(|ca| bundle.contains(ca) || !is_issued_by(ca, ca));
        let meta = IdentityMeta {
            renew_at: renew_at(self.renew_at, &facts)?,
            profile: self.profile.chars().take(LONGEST).collect(),
            servers: bounded(self.servers),
            ..IdentityMeta::default()
        };
        let (root_lists, node_issuers) = (RootLists::default(), Arc::default());
        Ok(HostIdentity {
            key,
            leaf,
            chain,
            // What of it may be trusted is for the caller to say.
            bundle: Vec::new(),
            root_lists,
            node_issuers,
            facts,
            spiffe,
            meta: Some(meta),
        })
    }
}

/// As many addresses, and as long ones, as fit into the small file beside the certificate.
pub fn bounded(servers: &[String]) -> Vec<String> {
    servers.iter().filter(|text| text.len() <= LONGEST).take(SERVERS).cloned().collect()
}

/// Whether what an answer says of a certificate is what the certificate says.
pub fn agrees(field: &str, said: &str, certified: &str) -> Result<(), Fault> {
    if said == certified {
        return Ok(());
    }
    Err(invalid(format!("{field} is {said:?}, and the certificate says {certified:?}")))
}

pub fn certificates(field: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    pem::certificates(text.as_bytes()).map_err(|error| invalid(format!("{field}: {error}")))
}

/// The moment to verify at: now, or the certificate's beginning if this clock is only a little behind.
fn moment(facts: &Facts, at: Timestamp) -> Result<Timestamp, Fault> {
    if facts.not_after <= facts.not_before {
        return Err(invalid("the certificate expires before it becomes valid"));
    }
    if at > facts.not_after || at.plus(CLOCK_TOLERANCE) < facts.not_before {
        return Err(clock_skew(facts, at));
    }
    Ok(at.max(facts.not_before))
}

fn renew_at(text: &str, facts: &Facts) -> Result<String, Fault> {
    match Timestamp::parse(text) {
        Ok(at) if facts.not_before <= at && at <= facts.not_after => Ok(at.to_string()),
        Ok(_) => Err(invalid("renew_at lies outside the certificate's validity")),
        Err(error) => Err(invalid(format!("renew_at: {error}"))),
    }
}

fn refusal(error: &PeerError, facts: &Facts, at: Timestamp) -> Fault {
    match error {
        PeerError::Expired | PeerError::NotYetValid => clock_skew(facts, at),
        other => invalid(other.to_string()),
    }
}

fn clock_skew(facts: &Facts, at: Timestamp) -> Fault {
    let message = format!(
        "the certificate is valid from {} to {}, and the clock here says {at}",
        facts.not_before, facts.not_after
    );
    Fault::host(AgentCode::ClockSkew, message, "set this host's clock, then run the same command again")
}

/// Whether an identity is of the tenant that this host is to be of. Nothing of another one is stored: whoever registered the machine
/// in another tenant would decide what it runs.
pub fn check_tenant(identity: &HostIdentity, wanted: Option<&TenantId>) -> Result<(), Fault> {
    let given = identity.tenant().unwrap_or_default();
    match wanted.filter(|wanted| wanted.as_str() != given) {
        None => Ok(()),
        Some(wanted) => Err(Fault::host(
            AgentCode::TenantMismatch,
            format!(
                "the control plane answered with an identity of tenant {given} (node {}), and this host is of tenant {wanted}: nothing was \
                 stored; a token that was used is spent, and the node stands in the registry of tenant {given}",
                identity.node_id().unwrap_or("-")
            ),
            AgentCode::TenantMismatch.remedy(),
        )),
    }
}

/// The same of an identity that is stored already, which is left as it is.
pub fn check_stored_tenant(identity: &HostIdentity, wanted: Option<&TenantId>) -> Result<(), Fault> {
    let stored = identity.tenant().unwrap_or_default();
    match wanted.filter(|wanted| wanted.as_str() != stored) {
        None => Ok(()),
        Some(wanted) => Err(Fault::usage(
            AgentCode::TenantMismatch,
            format!(
                "the identity that is stored here is of tenant {stored} (node {}), and this host is of tenant {wanted} by --tenant or \
                 agent.toml: it is not used",
                identity.node_id().unwrap_or("-")
            ),
            "correct `tenant`; or, if the identity is the wrong one, have an operator revoke its node, and enroll with --replace and a token of \
             the right tenant",
        )),
    }
}

pub fn invalid(message: impl Into<String>) -> Fault {
    let hint = "nothing was stored; update enlist-agent if the control plane is newer, then run the same command again";
    Fault::host(
        AgentCode::AnswerInvalid,
        format!("the control plane's answer cannot be used: {}", message.into()),
        hint,
    )
}
