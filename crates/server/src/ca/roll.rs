//! Rolling issuers, and the root above them. The root key is elsewhere: requests go out, certificates come back.

use crate::ca::bundle_file;
use crate::ca::hsm;
use crate::ca::keys::roll_context;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use api::rest::ca::{AbandonedRoot, CrossCertificate};
use journal::View;
use lifecycle::names::{Fingerprint, IssuerId, IssuerUse, Timestamp, TrustDomain};
use lifecycle::registry::{
    ActivateIssuer, Actor, AnswerRoll, Command, Confirmation, Issuer, IssuerKind, IssuerRequest, IssuerState,
    NewIssuer, NewRoot, PendingRoll, Rejection, Root, RootList, RootState, State,
};
use pki::issuer::issuer_id;
use pki::verify::is_issued_by;
use pki::{csr, describe, hierarchy, pem, roll};
use rustls_pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What comes after the request.
const UNSIGNED: &str = "sign the CSRs with the root key (`enlist ca sign-intermediate`, or `enlist ca sign-root` for a new root), \
    then submit the certificates: `enlist ca roll prepare --cert FILE`";

/// Who asks, and how it is recorded.
pub struct Requester<'a> {
    pub actor: &'a Actor,
    pub origin: &'a Provenance,
}

impl Requester<'_> {
    pub async fn commit(&self, app: &App, command: Command) -> Result<Arc<View>, Failure> {
        app.commit(self.actor.clone(), self.origin, command).await.map(|(_, view)| view)
    }
}

/// What is to be rolled.
pub struct RollRequest {
    /// `Both` is one of each use.
    pub usage: IssuerUse,
    pub new_root: bool,
    /// Where the new keys are kept; as those of the active issuers, if nobody says.
    pub kind: Option<IssuerKind>,
}

impl RollRequest {
    /// A new root has issuers of its own for both uses, and a domain that has one issuer for both gets one for each.
    fn uses(&self, state: &State) -> Vec<IssuerUse> {
        if self.new_root || self.usage.is_both() || !state.is_divided() {
            vec![IssuerUse::Node, IssuerUse::Server]
        } else {
            vec![self.usage]
        }
    }

    fn kind_for(&self, state: &State, usage: IssuerUse) -> IssuerKind {
        let active = state.domain_issuers_in(IssuerState::Active);
        let held = active.filter(|issuer| issuer.usage.overlaps(usage)).map(|issuer| issuer.kind).next();
        match self.kind.or(held) {
            Some(IssuerKind::Pkcs11) => IssuerKind::Pkcs11,
            Some(IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Ephemeral | IssuerKind::StepCa)
            | None => IssuerKind::Sealed,
        }
    }
}

/// Puts the requests for the next issuers' certificates on record: those that are out, or new ones.
pub async fn request(app: &App, by: &Requester<'_>, wanted: &RollRequest) -> Result<Arc<View>, Failure> {
    // What is sealed meanwhile must not be left behind under the old key.
    let _still = app.ca.sealing().await?;
    let view = app.view();
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let kinds =
        wanted.uses(&view.state).into_iter().map(|usage| (usage, wanted.kind_for(&view.state, usage)));
    let kinds: Vec<(IssuerUse, IssuerKind)> = kinds.collect();
    if let Some(pending) = &view.state.pending_roll {
        // The same roll, or another that is refused; either way no key is made.
        let known = pending.requests.iter().map(|request| (request.usage, request.kind));
        let same = pending.new_root == wanted.new_root && known.eq(kinds.iter().copied());
        let what = "the CSR of another roll waits for its certificate".to_owned();
        return if same { Ok(view) } else { Err(Rejection::RollInProgress { what, active: false }.into()) };
    }
    let mut requests = Vec::new();
    for (usage, kind) in kinds {
        requests.push(requested(app, &domain.name, usage, kind).await?);
    }
    by.commit(app, Command::BeginRoll(PendingRoll { requests, new_root: wanted.new_root })).await
}

/// A new key, and the request for its certificate.
async fn requested(
    app: &App,
    domain: &TrustDomain,
    usage: IssuerUse,
    kind: IssuerKind,
) -> Result<IssuerRequest, Failure> {
    let made = match kind {
        IssuerKind::Pkcs11 => hsm::request(app, domain, usage)?,
        IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Ephemeral | IssuerKind::StepCa => {
            roll::intermediate_request(domain, usage)
                .map_err(|error| Failure::internal("no key for the next issuer", &error))?
        }
    };
    let key = pki::digest::key_hash(&made.spki);
    let sealed_key = app.ca.keys.kek().seal(&roll_context(&key), &made.key);
    let sealed_key = sealed_key.map_err(|error| Failure::internal("a key could not be sealed", &error))?;
    Ok(IssuerRequest { usage, kind, key, request: made.csr_pem, sealed_key })
}

fn bad(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(code::BAD_REQUEST, format!("certificate: {why}")).remedy(
        "submit the file that `enlist ca sign-intermediate` (for a new root `enlist ca sign-root`) wrote with --out for the CSRs of this roll; \
         `enlist ca roll status` shows the roll, and `enlist ca roll prepare --csr-out FILE` writes its CSRs again",
    )
}

const OTHER_ROOT: &str = "sign the CSRs of this roll again, with `enlist ca sign-intermediate` (for a new root `enlist ca \
    sign-root`) and the key of the root that the message names: the key of another domain's root or of a retired one does not \
    do; `enlist ca export --server` writes that root's certificate";
const OTHER_OLD_ROOT: &str = "sign the CSRs of this roll again, with `enlist ca sign-root` and the key of a root that the message \
    names: the key of another domain's root or of a retired one does not do; `enlist ca export --server` writes that root's \
    certificate";

/// What a caller says of the roll whose certificates come back.
#[derive(Clone, Copy)]
pub struct ClaimedRoll {
    pub usage: Option<IssuerUse>,
    pub new_root: bool,
}

impl ClaimedRoll {
    /// What was said must be so: nothing that is given is ignored.
    fn check(self, uses: &[IssuerUse], new_root: bool) -> Result<(), Failure> {
        if self.new_root && !new_root {
            let failure = Failure::new(
                code::BAD_REQUEST,
                "new_root: the roll in progress is one of issuers, under the root that is active",
            );
            return Err(failure.remedy(
                "submit its certificate without --new-root; to roll the root, abandon this roll first (`enlist ca roll abandon`)",
            ));
        }
        match self.usage {
            Some(usage) if !usage.is_both() && !uses.contains(&usage) => {
                let uses: Vec<&str> = uses.iter().map(|usage| usage.as_str()).collect();
                let message =
                    format!("use: the roll in progress is for {}, not for {usage}", uses.join(" and "));
                let hint = "submit the certificate without --use: the roll in progress knows its use";
                Err(Failure::new(code::BAD_REQUEST, message).remedy(hint))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Takes the certificates that came back: one for each request, and with a new root that root and its cross-certificate.
pub async fn certify(
    app: &App,
    by: &Requester<'_>,
    certificates: &str,
    claimed: ClaimedRoll,
) -> Result<Arc<View>, Failure> {
    let view = app.view();
    let ders = pem::certificates(certificates.as_bytes()).map_err(|error| bad(&error))?;
    if let Some(known) = taken_before(&view.state, &ders) {
        return match known.state {
            // Whoever waits for the answer to another CSR would take this for it.
            IssuerState::Active if is_requested(&view.state) => Err(of_another_roll(&known.id)),
            // Sent again after a lost answer, or after it has done its work.
            IssuerState::Prepared | IssuerState::Active => Ok(view),
            IssuerState::Retiring | IssuerState::Retired | IssuerState::Revoked => {
                let (issuer, state) = (known.id.clone(), Some(known.state));
                Err(Rejection::IssuerNotPrepared { issuer, state }.into())
            }
        };
    }
    let pending = view.state.pending_roll.as_ref();
    let pending = pending.ok_or_else(|| none_requested(&view.state, claimed.new_root))?;
    let uses: Vec<IssuerUse> = pending.requests.iter().map(|request| request.usage).collect();
    claimed.check(&uses, pending.new_root)?;
    let list = list_of(certificates)?;
    let answer = AnsweredRoll { state: &view.state, ders, list, at: app.now() }.read(pending)?;
    let prepared = by.commit(app, Command::AnswerRoll(Box::new(answer))).await?;
    bundle_file::follow(app);
    Ok(prepared)
}

/// An issuer of an answer that holds nothing new: every certificate in it is that of an issuer, a root or a cross-certificate on record.
fn taken_before<'a>(state: &'a State, ders: &[CertificateDer<'_>]) -> Option<&'a Issuer> {
    let issuer = |der: &CertificateDer<'_>| {
        let known = state.issuers.get(&issuer_id(der)).filter(|known| known.is_of_domain());
        known.filter(|known| known.certificate == der.as_ref())
    };
    let is_root = |der: &[u8]| {
        let cross =
            |root: &Root| root.cross_certificate.as_ref().is_some_and(|cross| cross.as_slice() == der);
        state.roots.iter().any(|root| root.certificate == der || cross(root))
    };
    let all = ders.iter().all(|der| issuer(der).is_some() || is_root(der));
    ders.iter().find_map(issuer).filter(|_| all)
}

/// The revocation list beside the certificates, if there is one: `sign-root` writes the first one of the new root.
fn list_of(answer: &str) -> Result<Option<Vec<u8>>, Failure> {
    match pem::revocation_list(answer.as_bytes()) {
        Ok(list) => Ok(Some(list.to_vec())),
        Err(pem::PemError::Missing(_)) => Ok(None),
        Err(error) => Err(bad(&error)),
    }
}

/// What the new root's list says. One that denies somebody is imported by itself, so that its consequences are asked about.
fn first_list(der: &[u8], root: &[u8]) -> Result<RootList, Failure> {
    let read = pki::crl::read_root_list(der, &[root]).map_err(|error| bad(&error))?;
    if !read.denied.is_empty() {
        return Err(bad(
            &"the revocation list of the new root denies an issuer: import it with `enlist ca import-crl`",
        ));
    }
    read.check(root).map_err(|error| bad(&error))?;
    Ok(RootList { number: read.number, denied: read.denied, der: der.to_vec() })
}

/// The certificate of the last roll, where that of the next one is awaited.
fn of_another_roll(issuer: &IssuerId) -> Failure {
    let message = format!(
        "certificate: it is that of issuer {issuer}, which is active already; the CSR of the roll in progress still waits for its \
         certificate, and nothing was changed"
    );
    Failure { message, ..bad(&"of another roll") }
}

/// The certificates of an answer, and what they are held against.
struct AnsweredRoll<'a> {
    state: &'a State,
    ders: Vec<CertificateDer<'static>>,
    /// The first revocation list of the new root, DER.
    list: Option<Vec<u8>>,
    at: Timestamp,
}

impl AnsweredRoll<'_> {
    fn read(&self, pending: &PendingRoll) -> Result<AnswerRoll, Failure> {
        if self.list.is_some() && !pending.new_root {
            return Err(bad(
                &"the answer holds a revocation list, and the roll in progress brings no new root",
            ));
        }
        let root = if pending.new_root { Some(self.new_root()?) } else { None };
        let issuers = pending.requests.iter().map(|request| self.issuer(request, root.as_ref()));
        let issuers = issuers.collect::<Result<Vec<_>, Failure>>()?;
        self.check_serials(&issuers, root.as_ref())?;
        Ok(AnswerRoll { issuers, root })
    }

    /// A root's list denies by serial number: with that of another CA, an issuer could not be denied alone.
    fn check_serials(&self, issuers: &[NewIssuer], new_root: Option<&NewRoot>) -> Result<(), Failure> {
        let crossed = |root: &'_ Root| root.cross_certificate.as_ref().map(|der| der.to_vec());
        let on_record = self.state.issuers.values().map(|issuer| issuer.certificate.clone());
        let roots = self.state.roots.iter().flat_map(|root| [Some(root.certificate.clone()), crossed(root)]);
        let new =
            new_root.into_iter().flat_map(|root| [root.certificate.clone(), root.cross_certificate.clone()]);
        let others = on_record.chain(roots.flatten()).chain(new);
        let serial = |der: &[u8]| describe::facts(der).map(|facts| facts.serial);
        let mut taken: BTreeSet<_> = others.filter_map(|der| serial(&der).ok()).collect();
        for issuer in issuers {
            let serial = serial(&issuer.certificate).map_err(|error| bad(&error))?;
            if !taken.insert(serial.clone()) {
                return Err(bad(&format!(
                    "another issuer or root of this domain has the serial number {serial}: sign the CSR with a new one"
                )));
            }
        }
        Ok(())
    }

    fn new_root(&self) -> Result<NewRoot, Failure> {
        let known: Vec<&[u8]> = self.state.server_trust().collect();
        let is_new = |der: &&CertificateDer<'_>| is_issued_by(der, der) && !known.contains(&der.as_ref());
        let root = self.ders.iter().find(is_new);
        let root = root
            .ok_or_else(|| bad(&"the answer holds no new root: sign the CSRs with `enlist ca sign-root`"))?;
        let facts = describe::facts(root).map_err(|error| bad(&error))?;
        let same = |der: &&CertificateDer<'_>| {
            let other = describe::facts(der);
            **der != *root
                && other.is_ok_and(|other| other.spki == facts.spki && other.subject == facts.subject)
        };
        let cross = self.ders.iter().find(same);
        let cross = cross.ok_or_else(|| bad(&"the answer holds no cross-certificate of the new root"))?;
        let checked = roll::check_new_root(root, cross, &known, self.at).map_err(|error| match error {
            roll::NewRootError::ForeignCross(_) | roll::NewRootError::CrossSignature(_) => {
                bad(&error).remedy(OTHER_OLD_ROOT)
            }
            _ => bad(&error),
        })?;
        Ok(NewRoot {
            certificate: root.to_vec(),
            fingerprint: checked.root.fingerprint,
            not_after: checked.root.not_after,
            cross_certificate: cross.to_vec(),
            list: self.list.as_deref().map(|der| first_list(der, root)).transpose()?,
        })
    }

    /// The certificate for this request, below the new root or below the one that is active.
    fn issuer(&self, request: &IssuerRequest, new_root: Option<&NewRoot>) -> Result<NewIssuer, Failure> {
        let (root, fingerprint): (&[u8], Fingerprint) = match new_root {
            Some(root) => (&root.certificate, root.fingerprint),
            None => {
                let root = self.state.active_root().ok_or(Rejection::NotInitialized)?;
                (&root.certificate, root.fingerprint)
            }
        };
        let asked = csr::read(request.request.as_bytes())
            .map_err(|error| Failure::internal("the pending request cannot be read", &error))?;
        let of_key =
            |der: &&CertificateDer<'_>| describe::facts(der).is_ok_and(|facts| facts.spki == asked.spki);
        let der = self.ders.iter().find(of_key).ok_or_else(|| {
            let pending = self.state.pending_roll.as_ref();
            let several = pending.is_some_and(|pending| pending.requests.len() > 1);
            let together = if several { ": all CSRs are answered together" } else { "" };
            bad(&format!(
                "the answer holds no certificate for the key of the {} issuer{together}",
                request.usage
            ))
        })?;
        let checked =
            roll::check_intermediate(der, &[root], &asked.spki, request.usage, self.at).map_err(|error| {
                match error {
                    roll::IntermediateError::ForeignRoot(_) => bad(&error).remedy(OTHER_ROOT),
                    _ => bad(&error),
                }
            })?;
        if self.state.issuers.values().any(|issuer| issuer.subject == checked.facts.subject) {
            return Err(bad(&"another issuer of this domain has its name"));
        }
        Ok(NewIssuer {
            id: issuer_id(der),
            kind: request.kind,
            subject: checked.facts.subject,
            certificate: der.to_vec(),
            fingerprint: checked.facts.fingerprint,
            not_after: checked.facts.not_after,
            sealed_key: request.sealed_key.clone(),
            usage: request.usage,
            root: Some(fingerprint),
        })
    }
}

/// Lets the prepared issuers sign from now on. The audit key stays; its certificate comes from the new issuer of the control
/// plane.
pub async fn activate(
    app: &App,
    by: &Requester<'_>,
    named: Option<IssuerId>,
    force: bool,
    confirm: Option<String>,
) -> Result<Arc<View>, Failure> {
    let view = app.view();
    let prepared = view.state.issuers_by_use(IssuerState::Prepared);
    let is_prepared = |id: &IssuerId| prepared.iter().any(|issuer| issuer.id == *id);
    let (issuer, other) = match named {
        // Whatever it is, the registry has the words for it.
        Some(id) if !is_prepared(&id) => (id, None),
        named => {
            let first = prepared.first().ok_or_else(|| not_ready(&view.state))?.id.clone();
            let issuer = named.unwrap_or(first);
            let other = prepared.iter().map(|issuer| issuer.id.clone()).find(|id| *id != issuer);
            (issuer, other)
        }
    };
    if is_prepared(&issuer) {
        // An HSM that has lost the key of either would leave the domain without an issuer for that use.
        prepared.iter().try_for_each(|record| hsm::ready(app, &app.ca.keys.open(record)?))?;
    }
    let audit_certificate = match prepared.iter().find(|issuer| issuer.usage.signs_servers()) {
        Some(record) if is_prepared(&issuer) => audit_certificate(app, &view.state, record).await?,
        Some(_) | None => Vec::new(),
    };
    let confirm = Confirmation::Asked(confirm);
    let command =
        ActivateIssuer { issuer, force, audit_certificate, confirm, other, by_stored_bundles: true };
    let activated = by.commit(app, Command::ActivateIssuer(command)).await?;
    // From now on `/readyz` speaks of the keys that sign now.
    hsm::follow(app, &activated.state);
    Ok(activated)
}

async fn audit_certificate(app: &App, state: &State, record: &Issuer) -> Result<Vec<u8>, Failure> {
    let domain = state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let signer = state.audit_signer.as_ref().ok_or(Rejection::NotInitialized)?;
    let issuer = app.ca.keys.open(record)?;
    let at = app.now();
    let serial = chance::serial(at)?;
    hsm::signed(app, &issuer, "the audit key could not be certified", || {
        hierarchy::recertify_audit(&issuer, &signer.certificate, &domain.name, serial, at)
    })
}

/// Retires one issuer, or all that were active before, and with them the root above them if that is being rolled.
pub async fn retire(
    app: &App,
    by: &Requester<'_>,
    named: Option<IssuerId>,
    force: bool,
    confirm: Option<String>,
) -> Result<Arc<View>, Failure> {
    let view = app.view();
    if force && (named.is_some() || view.state.root_in(RootState::Retiring).is_none()) {
        return Err(no_force(&view.state, named.is_some()));
    }
    let (together, command) = if let Some(issuer) = &named {
        (false, Command::RetireIssuer { issuer: issuer.clone(), also: Vec::new() })
    } else if let Some(root) = view.state.root_in(RootState::Retiring) {
        let confirm = Confirmation::Asked(confirm);
        (false, Command::RetireRoot { root: root.fingerprint, force, confirm, counts_operators: true })
    } else {
        let retiring = view.state.issuers_by_use(IssuerState::Retiring);
        let mut retiring = retiring.into_iter().map(|issuer| issuer.id.clone());
        let Some(issuer) = retiring.next() else { return Err(none_retiring(&view.state)) };
        let also: Vec<IssuerId> = retiring.collect();
        (!also.is_empty(), Command::RetireIssuer { issuer, also })
    };
    match by.commit(app, command).await {
        Ok(retired) => {
            bundle_file::follow(app);
            Ok(retired)
        }
        Err(failure) => {
            let again = match &named {
                Some(issuer) => format!("`enlist ca roll retire {issuer}`"),
                None if force => "`enlist ca roll retire --force`".to_owned(),
                None => "`enlist ca roll retire`".to_owned(),
            };
            Err(still_in_use(failure, &again, together))
        }
    }
}

/// What to do until issuers can retire, and the command to run then.
fn still_in_use(failure: Failure, again: &str, together: bool) -> Failure {
    let Some(Rejection::IssuerInUse { holders, own, drained_at, state: None, .. }) =
        failure.rejection.as_deref()
    else {
        return failure;
    };
    const REPLICAS: &str = "a replica that runs renews by itself, within seconds; start one that does not run (`enlist cluster status`), \
                            or remove it if it is gone for good (`enlist cluster remove ID`)";
    let are_replicas = holders.iter().any(|name| name.starts_with("replica "));
    let are_others = holders.iter().any(|name| !name.starts_with("replica "));
    let remedy = match (are_others, own, drained_at) {
        (true, _, _) => {
            let replicas = if are_replicas { format!("; {REPLICAS}") } else { String::new() };
            format!(
                "let those renew that the message names (`enlist node rotate ID` makes a node renew now, an operator runs `enlist operator renew`) \
                 or wait until their certificates expire{replicas}; then run {again}"
            )
        }
        (false, _, Some(_)) if are_replicas => format!("{REPLICAS}; run {again} then, and after that time"),
        (false, _, None) if are_replicas => format!("{REPLICAS}; then run {again}"),
        (false, _, Some(_)) => format!("nothing is left to do but wait: run {again} after that time"),
        (false, true, None) => format!(
            "nothing is left to do but wait: the control plane moves to a certificate of the new issuer by itself, within seconds; \
             run {again} then"
        ),
        (false, false, None) => format!("run {again} once its certificates have expired"),
    };
    if !together {
        return failure.remedy(remedy);
    }
    // Several issuers retire together, and one of them cannot yet.
    let message = format!("{}; nothing was retired", failure.message);
    Failure { message, ..failure }.remedy(format!(
        "{remedy}; `enlist ca roll retire ISSUER` retires one alone (`enlist ca show` lists them)"
    ))
}

/// Why a retirement cannot be forced.
fn no_force(state: &State, named: bool) -> Failure {
    if !named && state.domain_issuers_in(IssuerState::Retiring).next().is_none() {
        return none_retiring(state);
    }
    Failure::new(code::BAD_REQUEST, "force: only a root is retired by force, and none is retiring").remedy(
        "retire issuers without --force once their certificates are renewed or have expired; `enlist ca revoke ISSUER` denies what an \
         issuer signed at once",
    )
}

/// Gives up a roll that is not active yet. Answers with its new root too, if certificates had come back.
pub async fn abandon(
    app: &App,
    by: &Requester<'_>,
    confirm: Option<String>,
) -> Result<(Option<AbandonedRoot>, Arc<View>), Failure> {
    let view = app.view();
    view.state.check_abandon(&Confirmation::Asked(confirm))?;
    let certified_root =
        view.state.root_in(RootState::Prepared).and_then(|root| certified(&view.state, root));
    let abandoned = by.commit(app, Command::AbandonRoll).await;
    let abandoned = abandoned.map_err(|failure| {
        if failure.code == code::NO_ROLL { none_to_abandon(&app.view().state) } else { failure }
    })?;
    bundle_file::follow(app);
    Ok((certified_root, abandoned))
}

/// What outlives a root that is given up: it is not on record afterwards.
fn certified(state: &State, root: &Root) -> Option<AbandonedRoot> {
    let cross = root.cross_certificate.as_ref()?;
    let facts = describe::facts(cross).ok()?;
    let der = CertificateDer::from(cross.as_slice());
    let above = state.trusted_roots().find(|above| is_issued_by(&der, &above.certificate));
    let cross_certificate = CrossCertificate {
        serial: facts.serial.to_string(),
        fingerprint: facts.fingerprint.pin(),
        not_after: facts.not_after.to_string(),
        pem: pem::certificate_pem(cross),
    };
    let certified_by = above.map(|above| above.fingerprint.pin());
    Some(AbandonedRoot { fingerprint: root.fingerprint.pin(), certified_by, cross_certificate })
}

/// Why there is nothing to abandon.
fn none_to_abandon(state: &State) -> Failure {
    if is_retiring(state) {
        let failure = Failure::new(
            code::NO_ROLL,
            "nothing is left to abandon: no CSR is pending and nothing is prepared",
        );
        return failure.remedy(
            "what was active before the last roll is retiring: finish that with `enlist ca roll retire`; to leave the active issuers again, \
             roll to others (`enlist ca roll prepare`)",
        );
    }
    Failure::new(code::NO_ROLL, "no roll is in progress")
        .remedy("nothing is left to do; `enlist ca show` lists the issuers")
}

/// Why no certificate is awaited.
fn none_requested(state: &State, new_root: bool) -> Failure {
    let failure = Failure::new(code::NO_ROLL, "no CSR of this domain waits for a certificate");
    if state.domain_issuers_in(IssuerState::Prepared).next().is_some() {
        return failure.remedy(
            "an issuer is prepared already: activate it (`enlist ca roll activate`), or abandon the roll (`enlist ca roll abandon`)",
        );
    }
    failure.remedy(if new_root {
        "begin a roll and have `enlist ca sign-root` answer its CSRs first: `enlist ca roll prepare --new-root --csr-out FILE`"
    } else {
        "begin a roll and sign its CSR first: `enlist ca roll prepare --csr-out FILE`"
    })
}

/// Whether what was active before a roll is still to be retired.
fn is_retiring(state: &State) -> bool {
    state.domain_issuers_in(IssuerState::Retiring).next().is_some()
        || state.root_in(RootState::Retiring).is_some()
}

/// Why there is nothing to activate.
fn not_ready(state: &State) -> Failure {
    if !is_requested(state) && is_retiring(state) {
        let failure = Failure::new(
            code::NO_ROLL,
            "nothing is prepared: the issuers of the last roll are active already",
        );
        return failure.remedy("retire what was active before: `enlist ca roll retire`");
    }
    if is_requested(state) {
        Failure::new(code::NO_ROLL, "the next issuer has no certificate yet").remedy(UNSIGNED)
    } else {
        Rejection::NoRoll.into()
    }
}

/// Why there is nothing to retire.
fn none_retiring(state: &State) -> Failure {
    let failure = |why: &str| Failure::new(code::NO_ROLL, format!("no issuer is retiring{why}"));
    if state.domain_issuers_in(IssuerState::Prepared).next().is_some() {
        let hint = "activate the prepared issuer first: `enlist ca roll activate`";
        return failure(": the prepared issuer is not active yet").remedy(hint);
    }
    if is_requested(state) {
        failure(": the next issuer has no certificate yet").remedy(UNSIGNED)
    } else {
        failure("").remedy("nothing is left to retire; `enlist ca show` lists the issuers and their states")
    }
}

fn is_requested(state: &State) -> bool {
    state.pending_roll.is_some() || state.roll.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remedy for `enlist ca roll retire` while these hold it up.
    fn remedy(holders: &[&str], own: bool, drained_at: Option<u64>, together: bool) -> Failure {
        let failure = Failure::from(Rejection::IssuerInUse {
            issuer: IssuerId::parse("i1").expect("an id"),
            others: Box::default(),
            leaves: 1,
            holders: holders.iter().map(|&name| name.to_owned()).collect(),
            own,
            drained_at: drained_at.map(Timestamp::from_secs),
            state: None,
        });
        still_in_use(failure, "`enlist ca roll retire i1`", together)
    }

    #[test]
    fn what_only_takes_time_is_waited_for_and_who_has_to_renew_is_asked_to() {
        let hint = |failure: Failure| failure.hint.expect("a remedy").into_owned();
        let own = hint(remedy(&[], true, None, false));
        assert!(own.contains("within seconds") && !own.contains("renew that"), "{own}");
        for drains in [hint(remedy(&[], false, Some(9), false)), hint(remedy(&[], true, Some(9), false))] {
            assert!(drains.contains("nothing is left to do but wait") && drains.contains("after that time"));
        }
        let holders = hint(remedy(&["n1"], true, Some(9), false));
        assert!(holders.contains("let those renew") && !holders.contains("nothing is left"), "{holders}");
        let replicas = hint(remedy(&["replica 3"], false, None, false));
        assert!(
            replicas.contains("start one") && replicas.contains("`enlist cluster remove ID`"),
            "{replicas}"
        );
        assert!(!replicas.contains("node rotate"), "{replicas}");
        let both = hint(remedy(&["replica 3", "n1"], false, Some(9), false));
        assert!(both.contains("node rotate") && both.contains("`enlist cluster remove ID`"), "{both}");
        for one in [own, holders, replicas] {
            assert!(one.contains("`enlist ca roll retire i1`") && !one.contains("ISSUER"), "{one}");
        }
        let together = remedy(&[], true, None, true);
        assert!(together.message.ends_with("nothing was retired"), "{}", together.message);
        let together = hint(together);
        assert!(together.contains("within seconds") && together.contains("retire ISSUER"), "{together}");
    }
}
