//! A worker with a certificate that was made elsewhere, as in the development set-up of 003, needs no token: it renews
//! that one, and has from then on an identity like any other.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::agent::{RenewRequest, RenewResponse};
use client::{AgentApi, ServerUrl};
use lifecycle::host::{Backoff, FailureKind, Notices};
use lifecycle::names::Span;
use pki::agent_key::HostKey;
use pki::{describe, pem};

use crate::cli::Contact;
use crate::code::AgentCode;
use crate::config::AgentConfig;
use crate::enroll::plan::{KeptSettings, recognised};
use crate::enroll::{answer, options, persist, rpc};
use crate::failed_call::failure_kind;
use crate::fault::{Exit, Fault};
use crate::issued::{IssuedAnswer, check_tenant, invalid};
use crate::layout::{Files, Layout};
use crate::store::dir::Dir;
use crate::store::identity::{self, HostIdentity};
use crate::store::{disk, renewal_key};
use crate::trust_offer::TrustOffer;
use crate::{chance, clock};

const CAP: Span = Span::from_minutes(1);
const PREFIX: &str = "worker:";
const IMPORT: &str = "have an operator import the certificate: `enlist node import --cert FILE`";
/// What is added to the names of the files that were there.
const ASIDE: &str = ".before";

/// A certificate that was made elsewhere, and its key.
pub struct ImportedCertificate<'a> {
    files: [&'a Path; 2],
    worker: String,
    credentials: client::TlsIdentity,
}

/// A certificate and its key that lie, as files and not as links of ours, where a worker's identity belongs. What
/// cannot be used is none, and only in the way.
pub fn made_elsewhere(files: &Files) -> Option<ImportedCertificate<'_>> {
    let file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let (cert, key) = (files.cert.as_deref()?, files.key.as_deref()?);
    if files.layout != Some(Layout::Taskrun) || !file(cert) || !file(key) {
        return None;
    }
    let pem = disk::read(cert).ok()?;
    let leaf = pem::first_certificate(&pem).ok()?;
    let name = describe::facts(&leaf).ok()?.common_name?;
    let secret = zeroize::Zeroizing::new(disk::read(key).ok()?);
    Some(ImportedCertificate {
        files: [cert, key],
        worker: name.strip_prefix(PREFIX).unwrap_or(&name).to_owned(),
        credentials: client::TlsIdentity::from_pem(&pem, &secret).ok()?,
    })
}

/// Until it works, or the control plane refuses.
pub async fn adopt(
    dir: &Dir,
    contact: &Contact,
    config: &AgentConfig,
    servers: &[ServerUrl],
    there: ImportedCertificate<'_>,
) -> Result<HostIdentity, Fault> {
    let (choice, trust) = recognised(config, servers)?;
    let lists = identity::stored_lists(dir.path());
    let trust = trust.denying(lists.denied());
    let ImportedCertificate { files, worker, credentials } = there;
    let next = renewal_key::resume_or_begin(dir.path()).map_err(|error| not_kept(dir.path(), &error))?;
    let agent = AgentApi::new(servers.to_vec(), &trust, Some(&credentials)).map_err(rpc::fault)?;
    let renewed = renewed(&agent, &next, &options(contact, None)?.correlation_id).await?;
    let mut identity = IssuedAnswer::from(&renewed).check(Arc::new(next), clock::now())?;
    answer::take_trust(&mut identity, TrustOffer::from(&renewed), &trust, lists, clock::now())?;
    if identity.node_id() != Some(worker.as_str()) {
        return Err(invalid(format!("the certificate is not that of worker {worker}")));
    }
    check_tenant(&identity, config.tenant.as_ref())?;
    let kept = KeptSettings {
        files: &config.files,
        storage: config.storage,
        choice: &choice,
        underlay_given: None,
        tenant: config.tenant.as_ref(),
    };
    let servers = persist::merged(servers, &renewed.servers);
    let kept = persist::keep(dir.path(), &identity, None, &servers, kept);
    kept.and_then(|()| renewal_key::remove(dir.path())).map_err(|error| not_kept(dir.path(), &error))?;
    for path in files {
        if let Err(error) = put_aside(path) {
            tracing::warn!(path = %path.display(), %error, "the file could not be moved aside and stays where it is");
        }
    }
    tracing::info!(node_id = worker, "renewed an imported certificate");
    Ok(identity)
}

async fn renewed(agent: &AgentApi, key: &HostKey, correlation_id: &str) -> Result<RenewResponse, Fault> {
    let csr = key.csr_pem().map_err(|error| invalid(error.to_string()))?;
    let request =
        RenewRequest { csr, agent_version: env!("CARGO_PKG_VERSION").to_owned(), ..RenewRequest::default() };
    let (mut backoff, mut notices) = (Backoff::new(CAP), Notices::default());
    loop {
        let error = match agent.renew(request.clone(), correlation_id, None).await {
            Ok(reply) => return Ok(reply.message),
            Err(error) => error,
        };
        // An operator may import it at any moment.
        let unknown = matches!(failure_kind(&error), FailureKind::Unacceptable | FailureKind::UnknownIssuer);
        let fault = rpc::fault(error);
        if !unknown && fault.exit != Exit::Unreachable && !fault.retryable {
            return Err(fault);
        }
        if let Some(count) = notices.note(fault.code.as_str(), clock::now()) {
            let hint = if unknown { IMPORT } else { &*fault.hint };
            tracing::warn!(code = %fault.code, count, "not renewed: {}; remedy: {hint}", fault.message);
        }
        let pause = backoff.next(chance::number(), None);
        tokio::time::sleep(Duration::from_millis(pause.millis())).await;
    }
}

/// Makes room for the link; what was there is kept, and nothing that is there already is replaced.
fn put_aside(path: &Path) -> std::io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ASIDE);
    let aside = PathBuf::from(aside);
    fs::hard_link(path, aside)?;
    fs::remove_file(path)
}

fn not_kept(dir: &Path, error: &std::io::Error) -> Fault {
    let hint = "make room in the directory, and let this user write there; then run the command again";
    Fault::host(AgentCode::NotPersisted, format!("{}: {error}", dir.display()), hint)
}
