//! Initializing a domain: hierarchy, sealed keys, first log entry, configuration.

use crate::ca::keys;
use crate::ca::log_key::{self, LogKeyError};
use crate::ca::server_cert::{ConfiguredCertificate, read_configured};
use crate::process::chance::{self, NoChance};
use crate::process::clock;
use crate::process::config::{self, ConfigMistake, ConfigMistakes, ControlPlaneConfig, RawConfig};
use crate::process::datadir::{DataDir, DirError, replace};
use journal::{Journal, LogKey, OpenError, Options, ProposeError};
use lifecycle::names::{ClusterId, Fingerprint, ProfileName, RequestId, Source, Timestamp, TrustDomain};
use lifecycle::registry::{
    Actor, Command, Confirmation, Envelope, InitializeDomain, IssuerKind, NewIssuer, NodeSigner, Policy,
    Rejection, SetPolicy,
};
use pki::hierarchy;
use pki::issuer::SigningIssuer;
use pki::seal::{Kek, KekError, KekSource};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What `server init` was asked for.
pub struct InitRequest {
    pub dir: DataDir,
    pub domain: TrustDomain,
    pub profile: ProfileName,
    pub config: RawConfig,
    pub issuer: IssuerChoice,
    /// Keys and values of policy to begin with.
    pub policy: Vec<(String, String)>,
    /// Who runs it, for the record.
    pub user: String,
}

/// Where the CA comes from.
pub enum IssuerChoice {
    /// A new root, whose key is given out once, and an intermediate whose key is sealed.
    Sealed,
    /// The same, for operators and the control plane itself; the certificates of nodes are signed by a CA that each replica
    /// makes in its memory at every start.
    Ephemeral,
    /// A CA that exists: its certificate (and its parents, root last) and key, as PEM.
    Imported { certificates: Vec<u8>, key: Zeroizing<Vec<u8>> },
}

/// What was made. It becomes a data directory with [`InitializedDomain::finish`], which comes after the root key is in
/// safe hands: a domain whose root key was lost on the way should not exist.
pub struct InitializedDomain {
    dir: DataDir,
    pub root_fingerprint: Fingerprint,
    pub root_pem: String,
    /// The only copy. None when the CA was imported.
    pub root_key_pem: Option<Zeroizing<String>>,
    pub server_url: Option<String>,
    /// What the operator should know, such as a key-encryption key beside what it protects.
    pub warnings: Vec<String>,
}

impl InitializedDomain {
    pub fn finish(&self) -> Result<(), DirError> {
        self.dir.write_version()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error(transparent)]
    Config(#[from] ConfigMistakes),
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("key-encryption key: {0}")]
    Kek(#[from] KekError),
    #[error(transparent)]
    Chance(#[from] NoChance),
    #[error("the CA could not be made: {0}")]
    Hierarchy(#[from] hierarchy::HierarchyError),
    #[error("the CA cannot be used: {0}")]
    Imported(String),
    #[error("the server certificate cannot be used: {0}")]
    ServerCertificate(String),
    #[error("sealing failed: {0}")]
    Seal(#[from] pki::seal::SealError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the first entry could not be written: {0}")]
    Propose(#[from] ProposeError),
    #[error("the log did not close cleanly: {0}")]
    Close(#[from] journal::ShutdownError),
    #[error(transparent)]
    LogKey(#[from] LogKeyError),
    #[error("the domain was not initialized: {0}")]
    Refused(#[from] Rejection),
}

/// The CA before it is sealed.
struct Authority {
    root: Vec<u8>,
    root_key_pem: Option<Zeroizing<String>>,
    issuer: SigningIssuer,
    issuer_key: Zeroizing<Vec<u8>>,
    kind: IssuerKind,
}

/// Makes the data directory. Nothing is left to chance half done: the version file, written last, is what
/// makes it a data directory.
pub async fn init(request: InitRequest) -> Result<InitializedDomain, InitError> {
    let mut mistakes = Vec::new();
    if !Policy::default().profiles.contains_key(&request.profile) {
        let names: Vec<String> = Policy::default().profiles.keys().map(ToString::to_string).collect();
        mistakes.push(ConfigMistake::new(
            "profile",
            &request.profile.to_string(),
            format!("one of {}", names.join(", ")),
        ));
    }
    let config = match config::check(&request.config, &mut mistakes) {
        Some(config) if mistakes.is_empty() => config,
        _ => return Err(ConfigMistakes(mistakes).into()),
    };
    let at = clock::now();
    let authority = authority(&request, at)?;
    let own = config.own_certificate.as_ref().map(|files| read_configured(files, at)).transpose();
    let own = own.map_err(InitError::ServerCertificate)?;
    // A key that exists is read before anything is made: a wrong one must not leave half a directory behind.
    let existing = match &config.kek {
        KekSource::File(path) if !path.exists() => None,
        source => Some(source.load()?),
    };
    let traces = request.dir.create()?;
    let made = make(&request, &config, &authority, existing, at).await;
    let root_fingerprint = match made {
        Ok(root_fingerprint) => root_fingerprint,
        Err(error) => {
            // Whoever corrects the mistake can ask again for the same directory.
            traces.remove();
            return Err(error);
        }
    };
    let warnings = warnings(&request, &config, own.as_ref(), &authority);
    Ok(InitializedDomain {
        dir: request.dir.clone(),
        root_fingerprint,
        root_pem: pki::pem::certificate_pem(&authority.root),
        root_key_pem: authority.root_key_pem,
        server_url: config.server_url(),
        warnings,
    })
}

/// Everything that is written, but for the version file.
async fn make(
    request: &InitRequest,
    config: &ControlPlaneConfig,
    authority: &Authority,
    existing: Option<Kek>,
    at: Timestamp,
) -> Result<Fingerprint, InitError> {
    let _lock = request.dir.lock()?;
    let kek = match existing {
        Some(kek) => kek,
        None => config.kek.load_or_create()?,
    };
    let command = first_command(request, authority, &kek, at)?;
    let root_fingerprint = command.root_fingerprint;
    write_files(request, authority, &kek)?;
    let key = log_key::make(&request.dir.keys(log_key::FILE), &kek)?;
    write_first_entries(request, command, key, at).await?;
    Ok(root_fingerprint)
}

fn authority(request: &InitRequest, at: Timestamp) -> Result<Authority, InitError> {
    let unusable = |error: &dyn std::fmt::Display| InitError::Imported(error.to_string());
    match &request.issuer {
        IssuerChoice::Sealed | IssuerChoice::Ephemeral => {
            let serials = [chance::serial(at)?, chance::serial(at)?];
            let made = hierarchy::create(&request.domain, at, serials)?;
            let issuer = SigningIssuer::new(&made.intermediate_der, &made.intermediate_key)
                .map_err(hierarchy::HierarchyError::from)?;
            Ok(Authority {
                root: made.root_der,
                root_key_pem: Some(made.root_key_pem),
                issuer,
                issuer_key: made.intermediate_key,
                kind: IssuerKind::Sealed,
            })
        }
        IssuerChoice::Imported { certificates, key } => {
            let chain = pki::pem::certificates(certificates).map_err(|error| unusable(&error))?;
            let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
                return Err(unusable(&"the certificate file is empty"));
            };
            hierarchy::check_chain(&chain).map_err(|error| unusable(&error))?;
            let key = pki::pem::private_key(key).map_err(|error| unusable(&error))?;
            let issuer = SigningIssuer::new(first, key.secret_der()).map_err(|error| unusable(&error))?;
            if issuer.not_after() <= at {
                return Err(unusable(&format!("it expired at {}", issuer.not_after())));
            }
            Ok(Authority {
                root: last.to_vec(),
                root_key_pem: None,
                issuer,
                issuer_key: Zeroizing::new(key.secret_der().to_vec()),
                kind: IssuerKind::Imported,
            })
        }
    }
}

fn first_command(
    request: &InitRequest,
    authority: &Authority,
    kek: &Kek,
    at: Timestamp,
) -> Result<InitializeDomain, InitError> {
    let issuer = &authority.issuer;
    let id = issuer.id();
    let root =
        pki::describe::facts(&authority.root).map_err(|error| InitError::Imported(error.to_string()))?;
    let (audit_certificate, audit_key) =
        hierarchy::audit_signer(issuer, &request.domain, chance::serial(at)?, at)?;
    Ok(InitializeDomain {
        domain: request.domain.clone(),
        cluster: ClusterId(chance::ulid(at)?),
        overlay_prefix: chance::overlay_prefix()?,
        default_profile: request.profile.clone(),
        root: authority.root.clone(),
        root_fingerprint: root.fingerprint,
        root_not_after: root.not_after,
        issuer: NewIssuer {
            sealed_key: kek.seal(&keys::issuer_context(&id), &authority.issuer_key)?,
            id,
            kind: authority.kind,
            subject: issuer.subject(),
            certificate: issuer.certificate().to_vec(),
            fingerprint: pki::digest::fingerprint(issuer.certificate()),
            not_after: issuer.not_after(),
        },
        audit_certificate,
        audit_sealed_key: kek.seal(keys::AUDIT_CONTEXT, &audit_key)?,
        node_signer: match request.issuer {
            IssuerChoice::Ephemeral => NodeSigner::Ephemeral,
            IssuerChoice::Sealed | IssuerChoice::Imported { .. } => NodeSigner::DomainIssuer,
        },
    })
}

fn write_files(request: &InitRequest, authority: &Authority, kek: &Kek) -> Result<(), InitError> {
    let dir = &request.dir;
    let raw = toml::to_string(&request.config).unwrap_or_default();
    let text = format!(
        "# Local configuration of this control plane. Policy is replicated: see `enlist policy show`.\n{raw}"
    );
    replace(&dir.config(), text.as_bytes(), 0o640)?;
    replace(&dir.ca("bundle.pem"), pki::pem::certificate_pem(&authority.root).as_bytes(), 0o644)?;
    replace(&dir.keys("kek.id"), format!("{}\n", kek.id()).as_bytes(), 0o600)?;
    Ok(())
}

async fn write_first_entries(
    request: &InitRequest,
    found: InitializeDomain,
    key: LogKey,
    at: Timestamp,
) -> Result<(), InitError> {
    let options = Options::new(request.dir.path(), Arc::new(clock::now), key);
    let journal = Journal::create(options).await?;
    let set = |(key, value): &(String, String)| {
        Command::SetPolicy(SetPolicy {
            key: key.clone(),
            value: value.clone(),
            confirm: Confirmation::NotAsked,
        })
    };
    let first = [Command::InitializeDomain(Box::new(found))];
    for command in first.into_iter().chain(request.policy.iter().map(set)) {
        let envelope = Envelope {
            id: RequestId(chance::ulid(at)?),
            actor: Actor::Local { user: request.user.clone() },
            source: Source::Internal,
            request_id: None,
            correlation_id: None,
            command,
        };
        journal.propose(envelope).await?.answer?;
    }
    journal.shutdown().await?;
    Ok(())
}

fn warnings(
    request: &InitRequest,
    config: &ControlPlaneConfig,
    own: Option<&ConfiguredCertificate>,
    authority: &Authority,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let (root, issuer) = (authority.root.as_slice(), authority.issuer.certificate());
    if own.is_some_and(|own| !own.leads_to(&[issuer, root], &[root])) {
        warnings.push("the server certificate was not issued under this CA: hosts will refuse it".to_owned());
    }
    let inside = |path: &Path| {
        let (Ok(key), Ok(dir)) = (path.canonicalize(), request.dir.path().canonicalize()) else {
            return false;
        };
        key.starts_with(dir)
    };
    if matches!(&config.kek, KekSource::File(path) if inside(path)) {
        warnings.push(
            "the key-encryption key lies in the data directory: a copy of the directory holds both"
                .to_owned(),
        );
    }
    let unspecified = config.listen.first().is_some_and(|address| address.ip().is_unspecified());
    if unspecified && config.names.is_empty() && config.advertise.is_empty() {
        warnings.push("no --name or --advertise given: hosts are directed to localhost".to_owned());
    }
    warnings
}
