//! Initializing a domain: hierarchy, sealed keys, first log entry, configuration.

use crate::ca::log_key::{self, LogKeyError};
use crate::ca::server_cert::{ConfiguredCertificate, read_configured};
use crate::ca::step_ca::CheckedStepCa;
use crate::ca::{hsm, keys};
use crate::process::chance::{self, NoChance};
use crate::process::clock;
use crate::process::config::{self, ConfigMistake, ConfigMistakes, ControlPlaneConfig, RawConfig};
use crate::process::datadir::{DataDir, DirError, Traces, replace};
use crate::process::own_domain;
use journal::{Journal, LogKey, OpenError, Options, ProposeError};
use lifecycle::names::{
    ClusterId, Fingerprint, IssuerUse, ProfileName, RequestId, Source, Timestamp, TrustDomain,
};
use lifecycle::registry::{
    Actor, Command, Confirmation, Envelope, InitializeDomain, IssuerKind, NewIssuer, NodeSigner, Policy,
    Rejection, RootList, SetPolicy, StepCaAccess,
};
use pki::hierarchy;
use pki::issuer::SigningIssuer;
use pki::pkcs11::{FoundOrMade, Hsm, KeyReference, PinMemory, server_label};
use pki::seal::{Kek, KekError, KekSource};
use pki::step_ca::FoundProvisionerKey;
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
    /// A new root, whose key is given out once, and an intermediate whose key is in the token of `[pkcs11]`: the one that has
    /// the label there, or a new one.
    Pkcs11,
    /// A CA that exists: its certificate (and its parents, root last) and key, as PEM.
    Imported { certificates: Vec<u8>, key: Zeroizing<Vec<u8>> },
    /// As with `Sealed` for operators and the control plane itself; the certificates of nodes are signed by a step-ca.
    StepCa(StepCaChoice),
}

/// A step-ca, and the provisioner by which it is asked.
pub struct StepCaChoice {
    pub url: String,
    /// Its root certificate, PEM.
    pub root: Vec<u8>,
    pub provisioner: String,
    pub key: FoundProvisionerKey,
}

/// What was made. It becomes a data directory with [`InitializedDomain::finish`], which comes after the root key is in
/// safe hands: a domain whose root key was lost on the way should not exist. Dropped without that, nothing is left of it.
pub struct InitializedDomain {
    dir: DataDir,
    traces: Traces,
    pub root_fingerprint: Fingerprint,
    pub root_pem: String,
    /// The only copy. None when the CA was imported.
    pub root_key_pem: Option<Zeroizing<String>>,
    pub server_url: Option<String>,
    /// What the operator should know, such as a key-encryption key beside what it protects.
    pub warnings: Vec<String>,
    /// The issuers' keys, if they are in an HSM.
    pub hsm_keys: Vec<HsmKeyUse>,
}

/// A key in the HSM that an issuer uses.
#[derive(Debug, Clone)]
pub struct HsmKeyUse {
    pub label: String,
    /// Made by this initialization; otherwise the token had it before.
    pub is_new: bool,
}

impl InitializedDomain {
    pub fn finish(mut self) -> Result<(), DirError> {
        self.dir.write_version()?;
        self.traces.keep();
        Ok(())
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
    #[error(transparent)]
    Hsm(#[from] pki::pkcs11::HsmError),
    #[error("the CA cannot be used: {0}")]
    Imported(String),
    #[error("step-ca cannot be used: {0}")]
    StepCa(String),
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
    /// The first revocation list of the root, DER. None when the CA was imported.
    root_list: Option<Vec<u8>>,
    /// Signs for nodes and operators, and without a server issuer for the control plane too.
    issuer: UnsealedIssuer,
    server: Option<UnsealedIssuer>,
    warnings: Vec<String>,
    hsm_keys: Vec<HsmKeyUse>,
}

/// An issuer, and its key as it will be sealed.
struct UnsealedIssuer {
    issuer: SigningIssuer,
    /// Of a key in an HSM, where it is found.
    key: Zeroizing<Vec<u8>>,
    kind: IssuerKind,
    usage: IssuerUse,
}

impl Authority {
    fn server(&self) -> &SigningIssuer {
        &self.server.as_ref().unwrap_or(&self.issuer).issuer
    }
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
    // A mistake in what was given for step-ca is found before a key-encryption key or a directory is made.
    if let IssuerChoice::StepCa(choice) = &request.issuer {
        checked_step_ca(choice, at)?;
    }
    let authority = authority(&request, &config, at)?;
    let own = config.own_certificate.as_ref().map(|files| read_configured(files, at)).transpose();
    let own = own.map_err(InitError::ServerCertificate)?;
    // A key that exists is read before anything is made: a wrong one must not leave half a directory behind.
    let existing = match &config.kek {
        KekSource::File(path) if !path.exists() => None,
        source => Some(source.load()?),
    };
    // Whoever corrects a mistake, or was interrupted, can ask again for the same directory.
    let traces = request.dir.create()?;
    let root_fingerprint = make(&request, &config, &authority, existing, at).await?;
    let warnings = warnings(&request, &config, own.as_ref(), &authority);
    Ok(InitializedDomain {
        dir: request.dir.clone(),
        traces,
        root_fingerprint,
        root_pem: pki::pem::certificate_pem(&authority.root),
        root_key_pem: authority.root_key_pem,
        server_url: config.server_url(),
        warnings,
        hsm_keys: authority.hsm_keys,
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

fn authority(
    request: &InitRequest,
    config: &ControlPlaneConfig,
    at: Timestamp,
) -> Result<Authority, InitError> {
    let unusable = |error: &dyn std::fmt::Display| InitError::Imported(error.to_string());
    match &request.issuer {
        IssuerChoice::Sealed | IssuerChoice::Ephemeral | IssuerChoice::StepCa(_) => {
            let serials = [chance::serial(at)?, chance::serial(at)?, chance::serial(at)?];
            let made = hierarchy::create(&request.domain, at, serials)?;
            Ok(Authority {
                root: made.root_der,
                root_key_pem: Some(made.root_key_pem),
                root_list: Some(made.root_list),
                issuer: sealed(made.node, IssuerUse::Node)?,
                server: Some(sealed(made.server, IssuerUse::Server)?),
                warnings: Vec::new(),
                hsm_keys: Vec::new(),
            })
        }
        IssuerChoice::Pkcs11 => {
            let expected = "the table of the token that keeps the issuer's key";
            let missing = || ConfigMistakes(vec![ConfigMistake::missing("pkcs11", expected)]);
            let pkcs11 = config.pkcs11.as_ref().ok_or_else(missing)?;
            let program = hsm::session_program(config)?;
            let token = Hsm::with_program(pkcs11.token.clone(), PinMemory::default(), program)?;
            in_hsm(request, &token, &pkcs11.key, at)
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
            let key = Zeroizing::new(key.secret_der().to_vec());
            let (kind, usage) = (IssuerKind::Imported, IssuerUse::Both);
            Ok(Authority {
                root: last.to_vec(),
                root_key_pem: None,
                root_list: None,
                issuer: UnsealedIssuer { issuer, key, kind, usage },
                server: None,
                warnings: Vec::new(),
                hsm_keys: Vec::new(),
            })
        }
    }
}

/// Issuers whose keys are in the token. One that exists stays as it is.
fn in_hsm(
    request: &InitRequest,
    hsm: &Arc<Hsm>,
    first_label: &str,
    at: Timestamp,
) -> Result<Authority, InitError> {
    let (mut warnings, mut hsm_keys) = (Vec::new(), Vec::new());
    let (root_der, root_key) = hierarchy::create_root(&request.domain, chance::serial(at)?, at)?;
    let root = SigningIssuer::new(&root_der, &root_key).map_err(hierarchy::HierarchyError::from)?;
    let mut below = |label: &str, usage: IssuerUse| -> Result<UnsealedIssuer, InitError> {
        let FoundOrMade { key, is_new, is_extractable } = hsm.find_or_generate(label)?;
        hsm_keys.push(HsmKeyUse { label: label.to_owned(), is_new });
        if !is_new {
            warnings.push(format!(
                "the token had a key labelled '{label}' before, which is now this domain's: no other domain may use it"
            ));
        }
        if is_extractable {
            warnings.push(format!(
                "the key labelled '{label}' can be extracted from its token: make one that cannot, under another label"
            ));
        }
        let (serial, lifetime) = (chance::serial(at)?, hierarchy::INTERMEDIATE_LIFETIME);
        let signed = hierarchy::sign_intermediate(&root, &key.spki(), usage, serial, at, lifetime)?;
        let issuer =
            SigningIssuer::in_hsm(&signed.der, hsm, label).map_err(hierarchy::HierarchyError::from)?;
        let key = KeyReference { label: label.to_owned() }.to_bytes();
        Ok(UnsealedIssuer { issuer, key, kind: IssuerKind::Pkcs11, usage })
    };
    let issuer = below(first_label, IssuerUse::Node)?;
    let server = below(&server_label(first_label), IssuerUse::Server)?;
    let root_key_pem = Some(pki::pem::key_pem_pkcs8(&root_key));
    let root_list = Some(pki::crl::sign_first_root_list(&root, at).map_err(hierarchy::HierarchyError::from)?);
    Ok(Authority {
        root: root_der,
        root_key_pem,
        root_list,
        issuer,
        server: Some(server),
        warnings,
        hsm_keys,
    })
}

fn sealed(made: hierarchy::IssuerMaterial, usage: IssuerUse) -> Result<UnsealedIssuer, InitError> {
    let issuer = SigningIssuer::new(&made.der, &made.key).map_err(hierarchy::HierarchyError::from)?;
    Ok(UnsealedIssuer { issuer, key: made.key, kind: IssuerKind::Sealed, usage })
}

impl UnsealedIssuer {
    /// An imported CA may end a moment after its root, as those of `step ca init` do: nobody accepts it by then.
    fn record(&self, kek: &Kek, root: &pki::describe::Facts) -> Result<NewIssuer, InitError> {
        let id = self.issuer.id();
        Ok(NewIssuer {
            sealed_key: kek.seal(&keys::issuer_context(&id), &self.key)?,
            id,
            kind: self.kind,
            subject: self.issuer.subject(),
            certificate: self.issuer.certificate().to_vec(),
            fingerprint: pki::digest::fingerprint(self.issuer.certificate()),
            not_after: self.issuer.not_after().min(root.not_after),
            usage: self.usage,
            root: Some(root.fingerprint),
        })
    }
}

fn first_command(
    request: &InitRequest,
    authority: &Authority,
    kek: &Kek,
    at: Timestamp,
) -> Result<InitializeDomain, InitError> {
    let root =
        pki::describe::facts(&authority.root).map_err(|error| InitError::Imported(error.to_string()))?;
    let (audit_certificate, audit_key) =
        hierarchy::audit_signer(authority.server(), &request.domain, chance::serial(at)?, at)?;
    let step_ca = match &request.issuer {
        IssuerChoice::StepCa(choice) => {
            Some(Box::new(checked_step_ca(choice, at)?.seal(kek, &choice.key.bytes)?))
        }
        IssuerChoice::Sealed
        | IssuerChoice::Ephemeral
        | IssuerChoice::Pkcs11
        | IssuerChoice::Imported { .. } => None,
    };
    let server_issuer = authority.server.as_ref().map(|server| server.record(kek, &root));
    Ok(InitializeDomain {
        domain: request.domain.clone(),
        cluster: ClusterId(chance::ulid(at)?),
        overlay_prefix: chance::overlay_prefix()?,
        default_profile: request.profile.clone(),
        root: authority.root.clone(),
        root_fingerprint: root.fingerprint,
        root_not_after: root.not_after,
        issuer: authority.issuer.record(kek, &root)?,
        server_issuer: server_issuer.transpose()?,
        step_ca,
        root_list: authority.root_list.clone().map(|der| RootList {
            number: pki::crl::FIRST_NUMBER,
            denied: Vec::new(),
            der,
        }),
        audit_certificate,
        audit_sealed_key: kek.seal(keys::AUDIT_CONTEXT, &audit_key)?,
        node_signer: match request.issuer {
            IssuerChoice::Ephemeral => NodeSigner::Ephemeral,
            IssuerChoice::StepCa(_) => NodeSigner::StepCa,
            IssuerChoice::Sealed | IssuerChoice::Pkcs11 | IssuerChoice::Imported { .. } => {
                NodeSigner::DomainIssuer
            }
        },
    })
}

/// What is given for a step-ca, checked without asking it.
fn checked_step_ca(choice: &StepCaChoice, at: Timestamp) -> Result<CheckedStepCa, InitError> {
    let access = StepCaAccess {
        url: choice.url.clone(),
        provisioner: choice.provisioner.clone(),
        key_id: choice.key.key_id.clone(),
    };
    CheckedStepCa::check(access, &choice.root, at).map_err(InitError::StepCa)
}

fn write_files(request: &InitRequest, authority: &Authority, kek: &Kek) -> Result<(), InitError> {
    let dir = &request.dir;
    let raw = toml::to_string(&request.config).unwrap_or_default();
    let text = format!(
        "# Local configuration of this control plane. Policy is replicated: see `enlist policy show`.\n{raw}"
    );
    replace(&dir.config(), text.as_bytes(), 0o640)?;
    replace(&dir.ca("bundle.pem"), pki::pem::certificate_pem(&authority.root).as_bytes(), 0o644)?;
    own_domain::write(dir, &request.domain)?;
    replace(&dir.keys("kek.id"), format!("{}\n", kek.id()).as_bytes(), 0o600)?;
    if !authority.hsm_keys.is_empty() {
        let labels: Vec<String> = authority.hsm_keys.iter().map(|key| key.label.clone()).collect();
        hsm::write_labels(dir, &labels)?;
    }
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
    let mut warnings = authority.warnings.clone();
    let (root, issuer) = (authority.root.as_slice(), authority.server().certificate());
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
