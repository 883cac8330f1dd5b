//! `recovery/`: what a recovery takes: the recovery token, its id, the recovery endpoint and the CA that verifies it.
//!
//! `tokens.json` names a new token before `token` holds it, and still names the one before: whatever a crash leaves
//! in `token`, its id is known.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use api::agent::{RecoveryGrant, RecoveryProfile};
use client::RootLists;
use client::ServerUrl;
use lifecycle::names::Timestamp;
use pki::pem;
use pki::succession::roots_to_follow;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::disk::{self, PUBLIC, SECRET};
use crate::token::SecretToken;

const DIR: &str = "recovery";
const TOKEN: &str = "token";
const TOKENS: &str = "tokens.json";
const PROFILE: &str = "profile.json";
const CA: &str = "ca.pem";
/// There when the control plane has said that this node was enrolled without recovery.
const INELIGIBLE: &str = "ineligible";
/// Said of such a node.
pub const WITHOUT: &str = "this node was enrolled without recovery, so it has no recovery token";
/// Said of a token that is not the one in `tokens.json`.
pub const UNKNOWN: &str = "the recovery token in this directory is not the one that the control plane issued";
/// Longer than any token or id that the control plane makes.
const WORD: usize = 512;

/// The token on disk.
#[derive(Debug, Clone)]
pub struct StoredRecoveryToken {
    pub value: SecretToken,
    /// Unknown of a token that was spoilt, or that somebody else put there.
    pub id: Option<String>,
    /// Whose it is.
    pub node: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// The recovery profile that it was given with; empty of a token of before.
    pub profile: String,
}

/// The recovery endpoint, and the CA that verifies it.
#[derive(Debug, Clone)]
pub struct StoredRecoveryProfile {
    pub id: String,
    pub url: ServerUrl,
    pub ca: Vec<CertificateDer<'static>>,
}

/// What the directory holds.
#[derive(Debug, Default)]
pub struct RecoveryMaterial {
    pub token: Option<StoredRecoveryToken>,
    pub profile: Option<StoredRecoveryProfile>,
    /// Open to others than this user, and therefore not used.
    pub exposed: Option<PathBuf>,
    /// The control plane has said that this node keeps no recovery tokens.
    pub ineligible: bool,
}

/// Tells which token is which, without holding one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    id: String,
    sha256: String,
    expires_at: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    node: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    profile: String,
}

#[derive(Serialize, Deserialize)]
struct RecoveryProfileFile {
    id: String,
    url: String,
}

/// What the control plane gave this node, whose recovery CA is vouched for by what the host trusts.
#[derive(Debug, Clone)]
pub struct VouchedGrant<'a> {
    grant: &'a RecoveryGrant,
    /// The recovery CA without the certificates that only vouch for it. Nothing of a profile that cannot be used.
    ca: Vec<CertificateDer<'static>>,
}

impl<'a> VouchedGrant<'a> {
    /// The recovery CA says what a host trusts next where its bundle is stale, so it is believed no more easily than a
    /// bundle: `trusted` is that bundle and what the operator named on this host, and what was kept before counts as well. If
    /// it is refused, so is the token, which would take the place of one that has a way to be used.
    pub fn check(
        dir: &Path,
        grant: &'a RecoveryGrant,
        trusted: &[CertificateDer<'static>],
        lists: &RootLists,
        at: Timestamp,
    ) -> Result<Self, String> {
        let Some(offered) = grant.profile.as_ref().and_then(|profile| check(profile).ok()) else {
            return Ok(Self { grant, ca: Vec::new() });
        };
        let kept = read_profile(dir).map(|profile| profile.ca).unwrap_or_default();
        let known: Vec<CertificateDer<'static>> = trusted.iter().cloned().chain(kept).collect();
        let not_kept = |error: &dyn std::fmt::Display| format!("the recovery CA is not kept: {error}");
        if known.is_empty() {
            return Err(not_kept(&"nothing is trusted here"));
        }
        let denied = lists.denied();
        roots_to_follow(&known, &offered.ca, |der| denied.deny(der), at)
            .map(|ca| Self { grant, ca })
            .map_err(|error| not_kept(&error))
    }
}

/// Keeps what the control plane gave this node; on disk when this returns. What cannot be used replaces nothing.
pub fn keep(dir: &Path, node: &str, vouched: &VouchedGrant<'_>) -> io::Result<()> {
    let VouchedGrant { grant, ca } = vouched;
    let token = token(node, grant)?;
    if let Some(profile) = &grant.profile {
        check(profile)?;
    }
    disk::private_dir(&place(dir))?;
    if grant.ineligible {
        disk::replace(&place(dir).join(INELIGIBLE), node.as_bytes(), PUBLIC)?;
        // Of an earlier life: nobody takes it any more.
        return forget(dir);
    }
    disk::remove(&place(dir).join(INELIGIBLE))?;
    if let Some(profile) = &grant.profile {
        keep_profile(dir, profile, ca)?;
    }
    let Some((token, named)) = token else { return Ok(()) };
    let before = read_token(dir).and_then(|before| name_of(dir, &before));
    let known: Vec<Named> =
        std::iter::once(named.clone()).chain(before.filter(|before| *before != named)).collect();
    disk::replace(&place(dir).join(TOKENS), &serde_json::to_vec(&known)?, SECRET)?;
    let text = Zeroizing::new(format!("{}\n", token.expose()));
    disk::replace(&place(dir).join(TOKEN), text.as_bytes(), SECRET)
}

/// Whatever can be used of it.
pub fn read(dir: &Path) -> RecoveryMaterial {
    if let Some(exposed) = exposed(dir) {
        return RecoveryMaterial { exposed: Some(exposed), ..RecoveryMaterial::default() };
    }
    let token = read_token(dir).map(|value| {
        let named = name_of(dir, &value);
        let expires_at = named.as_ref().and_then(|named| Timestamp::parse(&named.expires_at).ok());
        let node = named.as_ref().map(|named| named.node.clone()).filter(|node| !node.is_empty());
        let profile = named.as_ref().map(|named| named.profile.clone()).unwrap_or_default();
        StoredRecoveryToken { value, id: named.map(|named| named.id), node, expires_at, profile }
    });
    RecoveryMaterial { token, profile: read_profile(dir), exposed: None, ineligible: is_ineligible(dir) }
}

/// Whether token and place are here, as far as the directory alone tells.
pub fn is_ready(dir: &Path, at: Timestamp) -> bool {
    let found = read(dir);
    let good = |kept: &StoredRecoveryToken| kept.id.is_some() && kept.expires_at.is_none_or(|end| at <= end);
    found.profile.is_some() && found.token.as_ref().is_some_and(good)
}

/// Whether the control plane has said that this node keeps no recovery tokens.
pub fn is_ineligible(dir: &Path) -> bool {
    place(dir).join(INELIGIBLE).exists()
}

/// The id of the token on disk, as the control plane is told it; empty without one.
pub fn kept_id(dir: &Path) -> String {
    read(dir).token.and_then(|kept| kept.id).unwrap_or_default()
}

/// The token with this SHA-256 was used. Another that has taken its place meanwhile stays.
pub fn forget_token(dir: &Path, used: &str) -> io::Result<()> {
    if read_token(dir).is_none_or(|token| token.digest() != used) {
        return Ok(());
    }
    forget(dir)
}

/// A token that is known to be another node's is of no use to this one.
pub fn forget_others(dir: &Path, node: &str) -> io::Result<()> {
    let whose = read_token(dir).and_then(|token| name_of(dir, &token)).map(|named| named.node);
    if whose.is_none_or(|whose| whose.is_empty() || whose == node) { Ok(()) } else { forget(dir) }
}

fn forget(dir: &Path) -> io::Result<()> {
    disk::remove(&place(dir).join(TOKEN))?;
    disk::remove(&place(dir).join(TOKENS))?;
    disk::sync_dir(&place(dir))
}

/// The directory itself, for what else belongs to a recovery.
pub fn place(dir: &Path) -> PathBuf {
    dir.join(DIR)
}

fn token(node: &str, grant: &RecoveryGrant) -> io::Result<Option<(SecretToken, Named)>> {
    if grant.token.is_empty() {
        return Ok(None);
    }
    let word =
        |text: &str| (1..=WORD).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !word(&grant.token) || !word(&grant.token_id) {
        return Err(unusable("the recovery token or its id is malformed"));
    }
    Timestamp::parse(&grant.expires_at).map_err(|error| unusable(&format!("expires_at: {error}")))?;
    let Some(token) = SecretToken::new(Zeroizing::new(grant.token.clone())) else { return Ok(None) };
    let named = Named {
        id: grant.token_id.clone(),
        sha256: token.digest(),
        expires_at: grant.expires_at.clone(),
        node: node.to_owned(),
        profile: grant.profile.as_ref().map(|profile| profile.id.clone()).unwrap_or_default(),
    };
    Ok(Some((token, named)))
}

fn check(profile: &RecoveryProfile) -> io::Result<StoredRecoveryProfile> {
    let url = ServerUrl::parse(&profile.url).map_err(|error| unusable(&error.to_string()))?;
    let ca = pem::certificates(profile.ca.as_bytes()).map_err(|error| unusable(&error.to_string()))?;
    if profile.id.len() > WORD || profile.url.len() > WORD {
        return Err(unusable("the id or the address of the recovery profile is too long"));
    }
    Ok(StoredRecoveryProfile { id: profile.id.clone(), url, ca })
}

/// A crash between the two leaves a place that is not trusted, never one that should not be.
fn keep_profile(dir: &Path, profile: &RecoveryProfile, ca: &[CertificateDer<'_>]) -> io::Result<()> {
    let ca = pem::chain_pem(ca.iter().map(AsRef::as_ref));
    let said = serde_json::to_vec(&RecoveryProfileFile { id: profile.id.clone(), url: profile.url.clone() })?;
    for (name, bytes) in [(CA, ca.as_bytes()), (PROFILE, said.as_slice())] {
        let path = place(dir).join(name);
        if disk::read(&path).is_ok_and(|there| there == bytes) {
            continue;
        }
        disk::replace(&path, bytes, PUBLIC)?;
    }
    Ok(())
}

fn read_profile(dir: &Path) -> Option<StoredRecoveryProfile> {
    let said: RecoveryProfileFile =
        serde_json::from_slice(&disk::read(&place(dir).join(PROFILE)).ok()?).ok()?;
    let ca = String::from_utf8(disk::read(&place(dir).join(CA)).ok()?).ok()?;
    check(&RecoveryProfile { id: said.id, url: said.url, ca }).ok()
}

fn read_token(dir: &Path) -> Option<SecretToken> {
    let bytes = Zeroizing::new(disk::read(&place(dir).join(TOKEN)).ok()?);
    let text = std::str::from_utf8(&bytes).ok()?;
    SecretToken::new(Zeroizing::new(text.to_owned())).filter(|token| token.expose().len() <= WORD)
}

fn name_of(dir: &Path, token: &SecretToken) -> Option<Named> {
    let known: Vec<Named> = serde_json::from_slice(&disk::read(&place(dir).join(TOKENS)).ok()?).ok()?;
    known.into_iter().find(|named| named.sha256 == token.digest())
}

/// What others could read, or put something else in the place of.
fn exposed(dir: &Path) -> Option<PathBuf> {
    let owner = fs::metadata(dir).ok()?.uid();
    let open = |path: PathBuf, bits: u32| {
        let found = fs::symlink_metadata(&path).ok()?;
        (found.uid() != owner || found.is_symlink() || found.mode() & bits != 0).then_some(path)
    };
    open(place(dir), 0o022)
        .or_else(|| open(place(dir).join(TOKEN), 0o077))
        .or_else(|| open(place(dir).join(CA), 0o022))
        .or_else(|| open(place(dir).join(PROFILE), 0o022))
}

fn unusable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use lifecycle::names::TrustDomain;

    use super::*;

    fn ca() -> String {
        let domain = TrustDomain::parse("test.example").unwrap();
        let made =
            pki::hierarchy::create(&domain, Timestamp::from_secs(1_800_000_000), [[1; 16], [2; 16], [3; 16]]);
        pem::certificate_pem(&made.unwrap().root_der)
    }

    fn grant(id: &str, token: &str) -> RecoveryGrant {
        let profile = RecoveryProfile { id: "p-1".to_owned(), url: "https://there:1".to_owned(), ca: ca() };
        RecoveryGrant {
            token_id: id.to_owned(),
            token: token.to_owned(),
            expires_at: "2030-01-01T00:00:00Z".to_owned(),
            profile: Some(profile),
            ineligible: false,
        }
    }

    fn give(dir: &Path, grant: &RecoveryGrant) -> io::Result<()> {
        let ca = grant.profile.as_ref().and_then(|profile| check(profile).ok()).map(|profile| profile.ca);
        keep(dir, "n-1", &VouchedGrant { grant, ca: ca.unwrap_or_default() })
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn that_there_is_no_recovery_is_kept_until_there_is() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "hush")).unwrap();
        assert_eq!(
            (is_ineligible(dir.path()), read(dir.path()).token.unwrap().profile),
            (false, "p-1".to_owned())
        );
        let without = RecoveryGrant { ineligible: true, ..RecoveryGrant::default() };
        give(dir.path(), &without).unwrap();
        assert!(read(dir.path()).ineligible && read(dir.path()).token.is_none());
        give(dir.path(), &grant("t-2", "hush")).unwrap();
        assert!(!read(dir.path()).ineligible && kept_id(dir.path()) == "t-2");
    }

    #[test]
    fn a_grant_is_kept_for_this_user_alone_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kept_id(dir.path()), "");
        give(dir.path(), &grant("t-1", "hush")).unwrap();
        let (there, token) = (place(dir.path()), place(dir.path()).join(TOKEN));
        assert_eq!((mode(&there), mode(&token), mode(&there.join(TOKENS))), (0o700, 0o600, 0o600));
        assert_eq!(fs::read_to_string(&token).unwrap(), "hush\n");
        assert!(!fs::read_to_string(there.join(TOKENS)).unwrap().contains("hush"));
        let found = read(dir.path());
        let kept = found.token.unwrap();
        assert_eq!((kept.value.expose(), kept.id.as_deref()), ("hush", Some("t-1")));
        assert_eq!(kept.node.as_deref(), Some("n-1"));
        assert_eq!(kept.expires_at.unwrap().to_string(), "2030-01-01T00:00:00Z");
        let profile = found.profile.unwrap();
        assert_eq!((profile.id.as_str(), profile.url.to_string().as_str()), ("p-1", "https://there:1"));
    }

    #[test]
    fn a_crash_between_the_names_and_the_token_loses_no_id() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "one")).unwrap();
        give(dir.path(), &grant("t-2", "two")).unwrap();
        assert_eq!(kept_id(dir.path()), "t-2");
        fs::write(place(dir.path()).join(TOKEN), "one\n").unwrap();
        assert_eq!(kept_id(dir.path()), "t-1");
        fs::write(place(dir.path()).join(TOKEN), "from elsewhere\n").unwrap();
        assert_eq!(kept_id(dir.path()), "");
        assert!(read(dir.path()).token.is_some());
    }

    #[test]
    fn a_token_that_was_spoilt_is_not_counted_upon() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_secs(1_800_000_000);
        give(dir.path(), &grant("t-1", "one")).unwrap();
        assert!(is_ready(dir.path(), now));
        fs::write(place(dir.path()).join(TOKEN), "spoilt\n").unwrap();
        assert!(!is_ready(dir.path(), now));
        give(dir.path(), &grant("t-2", "two")).unwrap();
        assert!(is_ready(dir.path(), now));
        disk::remove(&place(dir.path()).join(TOKENS)).unwrap();
        assert!(!is_ready(dir.path(), now));
    }

    #[test]
    fn a_grant_without_a_token_renews_only_the_profile() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "one")).unwrap();
        let mut next = grant("", "");
        next.profile.as_mut().unwrap().url = "https://elsewhere:2".to_owned();
        give(dir.path(), &next).unwrap();
        assert_eq!(kept_id(dir.path()), "t-1");
        assert_eq!(read(dir.path()).profile.unwrap().url.to_string(), "https://elsewhere:2");
    }

    #[test]
    fn what_cannot_be_used_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "one")).unwrap();
        let wrong = |change: fn(&mut RecoveryGrant)| {
            let mut wrong = grant("t-2", "two");
            change(&mut wrong);
            assert!(give(dir.path(), &wrong).is_err());
        };
        wrong(|grant| grant.token = "two words".to_owned());
        wrong(|grant| grant.token_id = String::new());
        wrong(|grant| grant.expires_at = "some day".to_owned());
        wrong(|grant| grant.profile.as_mut().unwrap().url = "http://plain".to_owned());
        wrong(|grant| grant.profile.as_mut().unwrap().ca = "nothing".to_owned());
        assert_eq!(kept_id(dir.path()), "t-1");
        assert_eq!(read(dir.path()).profile.unwrap().url.to_string(), "https://there:1");
    }

    #[test]
    fn only_the_token_that_was_used_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "one")).unwrap();
        let one = read(dir.path()).token.unwrap().value;
        give(dir.path(), &grant("t-2", "two")).unwrap();
        forget_token(dir.path(), &one.digest()).unwrap();
        assert_eq!(kept_id(dir.path()), "t-2");
        let two = read(dir.path()).token.unwrap().value;
        forget_token(dir.path(), &two.digest()).unwrap();
        let found = read(dir.path());
        assert!(found.token.is_none() && found.profile.is_some());
        assert!(!place(dir.path()).join(TOKENS).exists());
    }

    #[test]
    fn a_token_of_another_node_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "one")).unwrap();
        forget_others(dir.path(), "n-1").unwrap();
        assert_eq!(kept_id(dir.path()), "t-1");
        forget_others(dir.path(), "n-2").unwrap();
        assert!(read(dir.path()).token.is_none());
        fs::write(place(dir.path()).join(TOKEN), "from elsewhere\n").unwrap();
        forget_others(dir.path(), "n-2").unwrap();
        assert!(place(dir.path()).join(TOKEN).exists(), "nobody knows whose it is");
    }

    #[test]
    fn what_others_could_read_or_replace_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        give(dir.path(), &grant("t-1", "one")).unwrap();
        let token = place(dir.path()).join(TOKEN);
        for (path, open, closed) in [
            (token.clone(), 0o640, 0o600),
            (place(dir.path()), 0o770, 0o700),
            (place(dir.path()).join(CA), 0o666, 0o644),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
            let found = read(dir.path());
            assert_eq!((found.exposed, found.token.is_none()), (Some(path.clone()), true));
            fs::set_permissions(&path, fs::Permissions::from_mode(closed)).unwrap();
        }
        assert!(read(dir.path()).token.is_some());
        fs::rename(&token, dir.path().join("elsewhere")).unwrap();
        symlink(dir.path().join("elsewhere"), &token).unwrap();
        assert_eq!(read(dir.path()).exposed, Some(token));
    }

    #[test]
    fn a_planted_directory_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), place(dir.path())).unwrap();
        assert!(give(dir.path(), &grant("t-1", "one")).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
