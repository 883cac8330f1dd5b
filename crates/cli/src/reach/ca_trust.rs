//! What verifies the control plane, on disk: the CA file, and beside it the revocation lists of its roots (`ca.pem`,
//! `ca-crls.pem`). Both follow the control plane as hosts do: a new root is taken if one that is trusted vouches for it, a list if a
//! trusted root has signed it and it is not older than the one that is here. Each list is stored after its root, and stays when that
//! root is trusted no more; files of older versions hold lists alone.

use super::credential::ServerTrust;
use super::target::Target;
use super::{parse_pin, pending_path, server_urls};
use crate::error::{CommandError, Exit};
use crate::private_file::{PrivateFile, lock_directory, own_directory, unreadable};
use api::rest::ca::OfferedTrust;
use client::rest::Path as Url;
use client::{ListNotKept, OperatorApi, RootLists, Trust, lists_beside};
use pki::crl::RootListError;
use pki::succession::vouched;
use pki::{digest, pem};
use rustls_pki_types::CertificateDer;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// More than lists may have, so that what is too long is found out.
const LISTS_BYTES: u64 = 256 * 1024;

/// CAs, and what their roots deny.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaTrust {
    cas: Vec<CertificateDer<'static>>,
    lists: RootLists,
}

impl CaTrust {
    pub fn read(ca: &Path) -> Result<Self, CommandError> {
        let cas = Trust::from_ca_pem(&super::read(ca)?).map_err(client::Error::from)?.anchors().to_vec();
        let file = lists_beside(ca);
        let stored = stored_lists(&file)?.map(|text| RootLists::read_whole(&text, &cas)).transpose();
        Ok(Self { cas, lists: stored.map_err(|error| spoilt(&file, &error))?.unwrap_or_default() })
    }

    pub fn trust(&self) -> Trust {
        Trust::cas(self.cas.clone()).denying(self.lists.denied())
    }

    pub fn ca_pem(&self) -> String {
        pem::chain_pem(self.cas.iter().map(AsRef::as_ref))
    }

    /// Each list after its root; empty if there is none.
    pub fn lists_pem(&self) -> String {
        self.lists.pem_with_roots()
    }

    /// What is trusted next, if what is trusted now vouches for it.
    fn followed(&self, offer: &OfferedTrust) -> Result<Self, CommandError> {
        let offered = pem::certificates(offer.bundle.as_bytes()).map_err(|error| refused(&error))?;
        let (denied, at) = (self.lists.denied(), ::server::clock::now());
        let cas =
            vouched(&self.cas, &offered, |der| denied.deny(der), at).map_err(|error| refused(&error))?;
        let (lists, not_kept) = self.lists.updated(&offer.root_crls, &cas);
        // A predecessor of the roots that are trusted here is offered to others, with its list.
        let foreign = ListNotKept::Invalid(RootListError::ForeignRoot);
        match not_kept.iter().find(|reason| **reason != foreign) {
            Some(reason) => Err(refused(&format!("a revocation list: {reason}"))),
            None => Ok(Self { cas, lists }),
        }
    }

    fn trusts(&self, ca: &CertificateDer<'_>) -> bool {
        self.cas.contains(ca)
    }

    /// Puts the next into the files. The lists first, with their roots: killed in between, none of them is lost.
    fn replace_by(&self, next: &Self, ca: &Path) -> Result<(), CommandError> {
        let same_cas = self.cas.iter().all(|ca| next.trusts(ca)) && next.cas.iter().all(|ca| self.trusts(ca));
        let (lists, pem) = (lists_beside(ca), next.lists_pem());
        // Also where a file of an older version holds the same without the roots.
        let same_lists = pem.is_empty() || stored_lists(&lists)?.as_deref() == Some(pem.as_bytes());
        if same_cas && same_lists {
            return Ok(());
        }
        own_directory(directory(ca))?;
        if !same_lists {
            replace(&lists, ca, &pem)?;
        }
        if same_cas { Ok(()) } else { replace(ca, ca, &next.ca_pem()) }
    }
}

/// What there is to say about a change of what is trusted.
#[derive(Debug, Serialize)]
pub struct TrustChange {
    /// The CA file.
    ca: String,
    /// The file with the revocation lists of its roots, if there are any.
    crls: Option<String>,
    /// What verifies the control plane from now on, by fingerprint.
    roots: Vec<String>,
    roots_added: Vec<String>,
    roots_removed: Vec<String>,
    /// The fingerprint of each root that has a list, and the list's number.
    crl_numbers: BTreeMap<String, u64>,
    crls_changed: bool,
}

impl TrustChange {
    fn between(known: &CaTrust, next: &CaTrust, ca: &Path) -> Self {
        let names = |cas: &[CertificateDer<'_>], but: &CaTrust| {
            let others = cas.iter().filter(|ca| !but.trusts(ca));
            others.map(|ca| digest::fingerprint(ca).pin()).collect::<Vec<_>>()
        };
        let crl_numbers: BTreeMap<String, u64> =
            next.lists.numbers().map(|(root, number)| (root.pin(), number)).collect();
        Self {
            ca: ca.display().to_string(),
            crls: (!crl_numbers.is_empty()).then(|| lists_beside(ca).display().to_string()),
            roots: names(&next.cas, &CaTrust::default()),
            roots_added: names(&next.cas, known),
            roots_removed: names(&known.cas, next),
            crl_numbers,
            crls_changed: known.lists != next.lists,
        }
    }

    /// A line for each change; none if nothing has changed.
    pub fn text(&self) -> String {
        let added =
            self.roots_added.iter().map(|root| format!("{} trusts root {root} from now on\n", self.ca));
        let removed = self.roots_removed.iter().map(|ca| format!("{} no longer trusts {ca}\n", self.ca));
        let lists = self.crl_numbers.iter().filter(|_| self.crls_changed);
        let lists = lists.map(|(root, number)| {
            format!("issuers on revocation list {number} of root {root} are refused from now on\n")
        });
        added.chain(removed).chain(lists).collect()
    }
}

/// Follows the control plane, and writes what has changed into the CA file and beside it. Nothing that identifies the operator is
/// sent: who answers may be on a list that is still to come.
pub async fn update(servers: &[String], ca: &Path) -> Result<(CaTrust, TrustChange), CommandError> {
    let ca = ca.canonicalize().map_err(|error| unreadable(ca, &error))?;
    let _held = lock_directory(directory(&ca))?;
    let known = CaTrust::read(&ca)?;
    let next = known.followed(&offer(servers, &known.trust()).await?)?;
    known.replace_by(&next, &ca)?;
    let change = TrustChange::between(&known, &next, &ca);
    Ok((next, change))
}

/// Follows the control plane for a CA file that is still to be written. Where nothing is known by name, on the operator socket or by a
/// pin of the server itself, what it offers is taken as it is.
pub async fn follow(target: &Target, ca: &Path) -> Result<(CaTrust, TrustChange), CommandError> {
    let (known, offer) = match target {
        Target::Socket(path) => (CaTrust::default(), asked(&OperatorApi::over_socket(path)).await?),
        Target::Server { servers, server_trust: ServerTrust::Ca(ca), .. } => {
            let known = CaTrust::read(ca)?;
            let offer = offer(servers, &known.trust()).await?;
            (known, offer)
        }
        Target::Server { servers, server_trust: ServerTrust::Pin(pin), .. } => {
            let trust = Trust::pin(parse_pin(pin)?);
            let offer = offer(servers, &trust).await?;
            // By now the server has presented what is pinned.
            (CaTrust { cas: trust.anchors().to_vec(), lists: RootLists::default() }, offer)
        }
    };
    let next = known.followed(&offer)?;
    let change = TrustChange::between(&known, &next, ca);
    Ok((next, change))
}

async fn offer(servers: &[String], trust: &Trust) -> Result<OfferedTrust, CommandError> {
    asked(&OperatorApi::over_tls(server_urls(servers)?, trust, None)?).await
}

async fn asked(operator: &OperatorApi) -> Result<OfferedTrust, CommandError> {
    operator.get(&Url::new("/v1/ca/trust")).await.map_err(|error| match error.code() {
        "not_found" => {
            let message = "the control plane does not say what to verify it by: it is of an older version";
            CommandError::new(Exit::Fault, "answer_incomplete", message, "update the control plane")
        }
        _ => error.into(),
    })
}

fn refused(why: &dyn std::fmt::Display) -> CommandError {
    let message =
        format!("what the control plane offers to verify it by is refused, and nothing has changed: {why}");
    let hint = "ask whoever keeps the root key: an impostor with a stolen issuer can offer this; so can a control plane that was \
        restored from an older backup, into which the newest revocation list has to be imported again (`enlist ca import-crl`)";
    CommandError::new(Exit::Fault, "trust_refused", message, hint)
}

/// Nothing if there is no such file. A link that leads nowhere is an error: there were lists once.
fn stored_lists(file: &Path) -> Result<Option<Vec<u8>>, CommandError> {
    let mut text = Vec::new();
    match File::open(file).and_then(|open| open.take(LISTS_BYTES).read_to_end(&mut text)) {
        Err(error) if error.kind() == ErrorKind::NotFound => match file.symlink_metadata() {
            Ok(_) => Err(spoilt(file, &"the link leads to no file")),
            Err(_) => Ok(None),
        },
        Err(error) => Err(unreadable(file, &error)),
        Ok(_) => Ok(Some(text)),
    }
}

/// Lists that cannot be read may have denied an issuer, so that they do not count as none.
fn spoilt(file: &Path, why: &dyn std::fmt::Display) -> CommandError {
    let hint = "remove the file, and fetch the lists again with `enlist ca update-trust` over a network that you trust";
    let message = format!("{}: its revocation lists cannot be used: {why}", file.display());
    CommandError::usage(message, hint)
}

fn directory(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

/// Puts a text in the place of a file, at once, with the owner and mode of another.
fn replace(path: &Path, like: &Path, text: &str) -> Result<(), CommandError> {
    let new = pending_path(path);
    // Left behind by a process that was killed; nobody else writes here now.
    let _ = std::fs::remove_file(&new);
    let mut file = PrivateFile::create_like(&new, like)?;
    file.write(text.as_bytes())?;
    file.replace(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Serial, TrustDomain};
    use pki::crl::sign_root_list;
    use pki::issuer::SigningIssuer;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;

    fn root() -> SigningIssuer {
        let domain = TrustDomain::parse("test.example").unwrap();
        let made =
            pki::hierarchy::create(&domain, ::server::clock::now(), [[1; 16], [2; 16], [3; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        SigningIssuer::new(&made.root_der, key.secret_der()).unwrap()
    }

    fn list(root: &SigningIssuer, number: u64) -> String {
        let (at, denied) = (::server::clock::now(), Serial::parse("7f").unwrap());
        pem::crl_pem(&sign_root_list(root, &[(denied, at)], number, at, root.not_after()).unwrap())
    }

    fn offer(roots: &[&SigningIssuer], lists: &[String]) -> OfferedTrust {
        let bundle = pem::chain_pem(roots.iter().map(|root| root.certificate()));
        OfferedTrust { bundle, root_crls: lists.concat() }
    }

    fn known(dir: &Path, root: &SigningIssuer) -> PathBuf {
        let ca = dir.join("prod.pem");
        std::fs::write(&ca, pem::certificate_pem(root.certificate())).unwrap();
        std::fs::set_permissions(&ca, Permissions::from_mode(0o640)).unwrap();
        ca
    }

    fn take(ca: &Path, offer: &OfferedTrust) -> Result<TrustChange, CommandError> {
        let known = CaTrust::read(ca)?;
        let next = known.followed(offer)?;
        known.replace_by(&next, ca)?;
        Ok(TrustChange::between(&known, &next, ca))
    }

    #[test]
    fn a_list_is_kept_beside_the_ca_file_and_never_replaced_by_an_older_one() {
        let (dir, root) = (tempfile::tempdir().unwrap(), root());
        let ca = known(dir.path(), &root);
        let before = std::fs::read(&ca).unwrap();
        assert!(!take(&ca, &offer(&[&root], &[])).unwrap().crls_changed);
        assert!(!dir.path().join("prod-crls.pem").exists());
        let change = take(&ca, &offer(&[&root], &[list(&root, 5)])).unwrap();
        assert!(change.crls_changed && change.roots_added.is_empty() && change.roots_removed.is_empty());
        let kept = std::fs::read(dir.path().join("prod-crls.pem")).unwrap();
        assert_eq!(dir.path().join("prod-crls.pem").metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(take(&ca, &offer(&[&root], &[list(&root, 4)])).unwrap_err().code(), "trust_refused");
        assert_eq!(take(&ca, &offer(&[&root], &["nonsense".to_owned()])).unwrap().crl_numbers.len(), 1);
        assert!(!take(&ca, &offer(&[&root], &[])).unwrap().crls_changed, "one that is not offered stays");
        assert_eq!(std::fs::read(dir.path().join("prod-crls.pem")).unwrap(), kept);
        assert_eq!(std::fs::read(&ca).unwrap(), before);
    }

    #[test]
    fn a_root_that_nobody_vouches_for_changes_nothing() {
        let (dir, root, other) = (tempfile::tempdir().unwrap(), root(), root());
        let ca = known(dir.path(), &root);
        for roots in [vec![&other], vec![&root, &other], vec![]] {
            assert_eq!(take(&ca, &offer(&roots, &[list(&other, 1)])).unwrap_err().code(), "trust_refused");
        }
        assert_eq!(CaTrust::read(&ca).unwrap().cas, [CertificateDer::from(root.certificate())]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        // A list of a root that is none of ours is another's business.
        assert!(!take(&ca, &offer(&[&root], &[list(&other, 1)])).unwrap().crls_changed);
    }

    #[test]
    fn a_file_of_lists_alone_is_read_and_gets_their_roots() {
        let (dir, root) = (tempfile::tempdir().unwrap(), root());
        let (ca, lists) = (known(dir.path(), &root), dir.path().join("prod-crls.pem"));
        let signed = list(&root, 5);
        std::fs::write(&lists, &signed).unwrap();
        assert_eq!(CaTrust::read(&ca).unwrap().lists.numbers().count(), 1);
        let change = take(&ca, &offer(&[&root], &[])).unwrap();
        assert!(!change.crls_changed && change.crl_numbers.len() == 1);
        let stored = pem::certificate_pem(root.certificate()) + &signed;
        assert_eq!(std::fs::read_to_string(&lists).unwrap(), stored);
    }

    #[test]
    fn a_spoilt_file_of_lists_never_counts_as_none() {
        let (dir, root) = (tempfile::tempdir().unwrap(), root());
        let (ca, lists) = (known(dir.path(), &root), dir.path().join("prod-crls.pem"));
        take(&ca, &offer(&[&root], &[list(&root, 5)])).unwrap();
        let good = std::fs::read(&lists).unwrap();
        let mut changed = good.clone();
        // In the list, which stands after its root.
        let place = changed.len() - 60;
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let label = String::from_utf8(good).unwrap().replace("X509 CRL", "X509 CRK").into_bytes();
        let refused = || {
            let error = CaTrust::read(&ca).unwrap_err();
            assert!(error.message().unwrap().contains("prod-crls.pem"), "{error:?}");
        };
        for text in [changed, label, b"garbage".to_vec(), Vec::new(), vec![b'x'; 300_000]] {
            std::fs::write(&lists, text).unwrap();
            refused();
        }
        std::fs::remove_file(&lists).unwrap();
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &lists).unwrap();
        refused();
        std::fs::remove_file(&lists).unwrap();
        assert!(CaTrust::read(&ca).unwrap().lists.is_empty());
    }

    #[test]
    fn lists_beside_a_link_are_those_of_the_file() {
        let (dir, elsewhere, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), root());
        let ca = known(dir.path(), &root);
        take(&ca, &offer(&[&root], &[list(&root, 1)])).unwrap();
        let link = elsewhere.path().join("ca.pem");
        std::os::unix::fs::symlink(&ca, &link).unwrap();
        assert_eq!(CaTrust::read(&link).unwrap(), CaTrust::read(&ca).unwrap());
        assert!(!CaTrust::read(&link).unwrap().lists.is_empty());
    }
}
