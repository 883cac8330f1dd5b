//! The revocation lists of roots, at most one of each: a host's `root-crls.pem`, an operator's `ca-crls.pem`. They name issuers by which
//! nobody is the control plane any more, and are never replaced by older ones. A list stays when its root is no longer trusted: a
//! cross-certificate still leads to that root from another.

use crate::denied_issuers::DeniedIssuers;
use lifecycle::names::{Fingerprint, Serial};
use pki::crl::{RootListError, RootListFacts, read_root_list};
use pki::{digest, pem};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// Of all lists that are offered.
const MAX_BYTES: usize = 192 * 1024;
/// Of all lists in one file with their roots: less than a file of an agent's store may have.
const MAX_STORED_BYTES: usize = 240 * 1024;
/// As many as there may be roots in a bundle.
const MAX_LISTS: usize = 16;

/// Why a list that was offered is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListNotKept {
    #[error("more than {0} bytes of revocation lists")]
    TooLong(usize),
    #[error("more than {MAX_LISTS} revocation lists")]
    TooMany,
    #[error("not PEM of revocation lists")]
    NotPem,
    #[error(transparent)]
    Invalid(RootListError),
    #[error("number {offered} is lower than {kept}, which is here already")]
    Older { offered: u64, kept: u64 },
    #[error("another list of number {0} is here already")]
    SameNumber(u64),
    #[error("number {offered} leaves out {serial}, which number {kept}, here already, denies")]
    LeavesOut { offered: u64, kept: u64, serial: Serial },
    #[error("something else than revocation lists and certificates in PEM")]
    OtherContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredRootList {
    root: CertificateDer<'static>,
    number: u64,
    denied: Vec<Serial>,
    der: Vec<u8>,
}

impl StoredRootList {
    fn new(der: Vec<u8>, facts: RootListFacts, root: CertificateDer<'static>) -> Self {
        Self { root, number: facts.number, denied: facts.denied, der }
    }

    /// The first that the other denies and this one does not.
    fn left_out<'a>(&self, other: &'a Self) -> Option<&'a Serial> {
        other.denied.iter().find(|serial| !self.denied.contains(serial))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootLists(Vec<StoredRootList>);

impl RootLists {
    /// What the store holds. A list is good if one of these roots has signed it, or one that is stored beside it: a list only denies,
    /// so whoever may write there gains nothing.
    pub fn read(text: &[u8], roots: &[CertificateDer<'static>]) -> Result<Self, ListNotKept> {
        let stored = StoredBlocks::read(text)?;
        let known = stored.with_roots(roots);
        let found = stored.lists.into_iter().filter_map(|der| verified(der, &known).ok());
        Ok(found.fold(Self::default(), Self::joined))
    }

    /// The same of a file that nobody sends again: what cannot be read or verified in it is an error, for it may have denied an issuer.
    pub fn read_whole(text: &[u8], roots: &[CertificateDer<'static>]) -> Result<Self, ListNotKept> {
        let stored = StoredBlocks::read(text)?;
        if stored.lists.is_empty() || !stored.is_all_of(text) {
            return Err(ListNotKept::OtherContent);
        }
        let known = stored.with_roots(roots);
        let found = stored.lists.into_iter().map(|der| verified(der, &known));
        found
            .collect::<Result<Vec<_>, _>>()
            .map(|found| found.into_iter().fold(Self::default(), Self::joined))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of these roots alone.
    pub fn pem_of(&self, roots: &[CertificateDer<'static>]) -> String {
        let of_roots = self.0.iter().filter(|list| roots.contains(&list.root));
        of_roots.map(|list| pem::crl_pem(&list.der)).collect()
    }

    /// Each list after its root, to be read without other roots.
    pub fn pem_with_roots(&self) -> String {
        let pair = |list: &StoredRootList| pem::certificate_pem(&list.root) + &pem::crl_pem(&list.der);
        self.0.iter().map(pair).collect()
    }

    pub fn denied(&self) -> DeniedIssuers {
        DeniedIssuers::new(self.0.iter().map(|list| (list.root.clone(), list.denied.clone())))
    }

    /// Each root that has a list here, and the list's number.
    pub fn numbers(&self) -> impl Iterator<Item = (Fingerprint, u64)> {
        self.0.iter().map(|list| (digest::fingerprint(&list.root), list.number))
    }

    /// Those that the others are not or have an older one of, for the log: the root's fingerprint, the number, and how many issuers
    /// are denied.
    pub fn newer_than<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = (String, u64, usize)> + 'a {
        let new = self.0.iter().filter(|list| !others.0.contains(list));
        new.map(|list| {
            (digest::fingerprint(&list.root).labelled().to_string(), list.number, list.denied.len())
        })
    }

    /// With what was offered, signed by these roots, which are trusted now; and why some of it was not taken. A list that is not
    /// offered stays.
    pub fn updated(&self, offered: &str, roots: &[CertificateDer<'static>]) -> (Self, Vec<ListNotKept>) {
        let (mut lists, mut refused) = (self.clone(), Vec::new());
        let offered = match blocks(offered.as_bytes(), MAX_BYTES) {
            Ok(offered) => offered,
            Err(reason) => return (lists, vec![reason]),
        };
        for der in offered {
            match acceptable(der, roots).map(|list| lists.clone().with(list)) {
                Ok(Ok(more)) => lists = more,
                Ok(Err((_, reason))) | Err(reason) => refused.push(reason),
            }
        }
        (lists.with_room_for(roots), refused)
    }

    /// With those of the others that are newer and deny no less, or of other roots as long as there is room.
    pub fn and(&self, others: &Self) -> Self {
        let lists = others.0.iter().cloned().fold(self.clone(), Self::joined);
        let own: Vec<CertificateDer<'static>> = self.0.iter().map(|list| list.root.clone()).collect();
        lists.with_room_for(&own)
    }

    /// As many as one file may hold; the lists of other roots than these go first, the oldest of them before the others.
    fn with_room_for(mut self, roots: &[CertificateDer<'static>]) -> Self {
        while self.0.len() > MAX_LISTS || self.pem_with_roots().len() > MAX_STORED_BYTES {
            let other = self.0.iter().position(|list| !roots.contains(&list.root));
            self.0.remove(other.unwrap_or(self.0.len().saturating_sub(1)));
        }
        self
    }

    /// With one more that is stored too. Of two of one root the newer one counts, unless it leaves out what the older one denies.
    fn joined(mut self, list: StoredRootList) -> Self {
        let Some(known) = self.0.iter_mut().find(|known| known.root == list.root) else {
            self.0.push(list);
            return self;
        };
        let counts = match list.number >= known.number {
            true => list.left_out(known).is_none(),
            false => known.left_out(&list).is_some(),
        };
        if counts {
            *known = list;
        }
        self
    }

    /// With one more, in the place of an older one of its root; or as it was, and why.
    fn with(mut self, list: StoredRootList) -> Result<Self, (Self, ListNotKept)> {
        let Some(known) = self.0.iter_mut().find(|known| known.root == list.root) else {
            self.0.push(list);
            return Ok(self);
        };
        if list.der == known.der {
            return Ok(self);
        }
        let (offered, kept) = (list.number, known.number);
        let reason = match (offered.cmp(&kept), list.left_out(known)) {
            (Ordering::Less, _) => ListNotKept::Older { offered, kept },
            (Ordering::Equal, _) => ListNotKept::SameNumber(kept),
            (Ordering::Greater, Some(serial)) => {
                ListNotKept::LeavesOut { offered, kept, serial: serial.clone() }
            }
            (Ordering::Greater, None) => {
                *known = list;
                return Ok(self);
            }
        };
        Err((self, reason))
    }
}

fn blocks(text: &[u8], most: usize) -> Result<Vec<Vec<u8>>, ListNotKept> {
    if text.len() > most {
        return Err(ListNotKept::TooLong(most));
    }
    let found: Vec<_> = CertificateRevocationListDer::pem_slice_iter(text).take(MAX_LISTS + 1).collect();
    if found.len() > MAX_LISTS {
        return Err(ListNotKept::TooMany);
    }
    let read = |list: Result<CertificateRevocationListDer<'static>, _>| match list {
        Ok(list) => Ok(list.to_vec()),
        Err(_) => Err(ListNotKept::NotPem),
    };
    found.into_iter().map(read).collect()
}

/// The file of lists beside a CA file: `ca.pem`, `ca-crls.pem`; beside the file itself where this is a link.
pub fn lists_beside(ca: &Path) -> PathBuf {
    let ca = ca.canonicalize().unwrap_or_else(|_| ca.to_owned());
    let mut name = ca.file_stem().unwrap_or_default().to_owned();
    name.push("-crls.pem");
    ca.with_file_name(name)
}

/// What one file holds.
struct StoredBlocks {
    lists: Vec<Vec<u8>>,
    /// The roots that are stored beside their lists.
    beside: Vec<CertificateDer<'static>>,
}

impl StoredBlocks {
    fn read(text: &[u8]) -> Result<Self, ListNotKept> {
        let lists = blocks(text, MAX_STORED_BYTES)?;
        let beside = CertificateDer::pem_slice_iter(text).take(MAX_LISTS).collect::<Result<Vec<_>, _>>();
        Ok(Self { lists, beside: beside.map_err(|_| ListNotKept::NotPem)? })
    }

    fn with_roots(&self, roots: &[CertificateDer<'static>]) -> Vec<CertificateDer<'static>> {
        roots.iter().chain(&self.beside).cloned().collect()
    }

    /// Whether nothing else is in the text. A block with a spoilt label is passed over by the library.
    fn is_all_of(&self, text: &[u8]) -> bool {
        let size = |text: &[u8]| text.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
        let lists = self.lists.iter().map(|der| pem::crl_pem(der));
        let roots = self.beside.iter().map(|der| pem::certificate_pem(der));
        lists.chain(roots).map(|pem| size(pem.as_bytes())).sum::<usize>() == size(text)
    }
}

/// One that is offered: it may be signed well and still be none to go by.
fn acceptable(der: Vec<u8>, roots: &[CertificateDer<'static>]) -> Result<StoredRootList, ListNotKept> {
    let (facts, root) = signed(&der, roots)?;
    facts.check(&root).map_err(ListNotKept::Invalid)?;
    Ok(StoredRootList::new(der, facts, root))
}

fn verified(der: Vec<u8>, roots: &[CertificateDer<'static>]) -> Result<StoredRootList, ListNotKept> {
    let (facts, root) = signed(&der, roots)?;
    Ok(StoredRootList::new(der, facts, root))
}

/// What a list says, and its root.
fn signed(
    der: &[u8],
    roots: &[CertificateDer<'static>],
) -> Result<(RootListFacts, CertificateDer<'static>), ListNotKept> {
    let known: Vec<&[u8]> = roots.iter().map(AsRef::as_ref).collect();
    let facts = read_root_list(der, &known).map_err(ListNotKept::Invalid)?;
    let foreign = ListNotKept::Invalid(RootListError::ForeignRoot);
    let root = roots.get(facts.root).cloned().ok_or(foreign)?;
    Ok((facts, root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Timestamp, TrustDomain};
    use pki::crl::sign_root_list;
    use pki::issuer::SigningIssuer;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn root() -> SigningIssuer {
        let domain = TrustDomain::parse("test.example").unwrap();
        let made = pki::hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        SigningIssuer::new(&made.root_der, key.secret_der()).unwrap()
    }

    fn list(root: &SigningIssuer, number: u64) -> String {
        list_of(root, number, &["7f"])
    }

    fn list_of(root: &SigningIssuer, number: u64, denied: &[&str]) -> String {
        let denied: Vec<_> = denied.iter().map(|serial| (Serial::parse(serial).unwrap(), AT)).collect();
        pem::crl_pem(&sign_root_list(root, &denied, number, AT, root.not_after()).unwrap())
    }

    fn roots(of: &[&SigningIssuer]) -> Vec<CertificateDer<'static>> {
        of.iter().map(|root| CertificateDer::from(root.certificate().to_vec())).collect()
    }

    fn numbers(lists: &RootLists) -> Vec<u64> {
        lists.numbers().map(|(_, number)| number).collect()
    }

    #[test]
    fn a_list_stays_when_its_root_is_trusted_no_more_and_is_read_without_it() {
        let (old, new) = (root(), root());
        let both = roots(&[&old, &new]);
        let (of_old, of_new) = (list(&old, 3), list(&new, 2));
        let (lists, refused) = RootLists::default().updated(&(list(&old, 1) + &of_new), &both);
        assert_eq!((numbers(&lists), refused), (vec![1, 2], vec![]));
        let (lists, refused) = lists.updated(&of_old, &roots(&[&old]));
        assert_eq!((numbers(&lists), refused), (vec![3, 2], vec![]));
        assert_eq!(lists.pem_of(&roots(&[&old])), of_old, "what is stored beside a bundle");
        let text = lists.pem_with_roots();
        assert_eq!(RootLists::read(text.as_bytes(), &[]), Ok(lists));
        // As files were before, without the roots.
        let text = of_old + &of_new;
        assert_eq!(numbers(&RootLists::read(text.as_bytes(), &roots(&[&old])).unwrap()), [3]);
    }

    #[test]
    fn a_list_that_denies_less_never_takes_the_place_of_one_that_is_here() {
        let root = root();
        let only = roots(&[&root]);
        let kept = RootLists::default().updated(&list_of(&root, 5, &["7f", "8"]), &only).0;
        let serial = Serial::parse("8").unwrap();
        let less = list_of(&root, 6, &["7f", "9"]);
        let reason = ListNotKept::LeavesOut { offered: 6, kept: 5, serial };
        assert_eq!(kept.updated(&less, &only), (kept.clone(), vec![reason]));
        let offered_first = RootLists::default().updated(&less, &only).0;
        assert_eq!(numbers(&offered_first), [6], "nothing is known that it leaves out");
        assert_eq!((offered_first.and(&kept), kept.and(&offered_first)), (kept.clone(), kept.clone()));
        let more = RootLists::default().updated(&list_of(&root, 6, &["9", "8", "7f"]), &only).0;
        assert_eq!((more.and(&kept), kept.and(&more)), (more.clone(), more.clone()));
        let same_number = RootLists::default().updated(&list_of(&root, 5, &["8"]), &only).0;
        assert_eq!((same_number.and(&kept), kept.and(&same_number)), (kept.clone(), kept.clone()));
    }

    #[test]
    fn a_list_that_could_never_be_replaced_or_that_denies_its_root_is_not_kept() {
        let root = root();
        let own = pki::describe::facts(root.certificate()).unwrap().serial;
        for (offered, reason) in [
            (list(&root, u64::MAX), RootListError::NumberTooHigh),
            (list_of(&root, 5, &["7f", own.as_str()]), RootListError::DeniesItsRoot),
        ] {
            let (lists, refused) = RootLists::default().updated(&offered, &roots(&[&root]));
            assert_eq!((lists.is_empty(), refused), (true, vec![ListNotKept::Invalid(reason)]));
        }
    }

    #[test]
    fn a_spoilt_file_is_an_error_to_whoever_reads_it_whole() {
        let (old, new) = (root(), root());
        let (lists, _) =
            RootLists::default().updated(&(list(&old, 3) + &list(&new, 2)), &roots(&[&old, &new]));
        let text = lists.pem_with_roots();
        let said = |lists: &RootLists| lists.0.iter().map(|list| list.der.clone()).collect::<Vec<_>>();
        assert_eq!(RootLists::read_whole(text.as_bytes(), &[]), Ok(lists.clone()));
        assert_eq!(RootLists::read_whole(text.replace('\n', "\r\n").as_bytes(), &[]), Ok(lists.clone()));
        for garbage in
            ["", "\n", "garbage", &pem::certificate_pem(old.certificate()), &(text.clone() + "more")]
        {
            assert_eq!(
                RootLists::read_whole(garbage.as_bytes(), &[]),
                Err(ListNotKept::OtherContent),
                "{garbage}"
            );
        }
        for place in (0..text.len()).filter(|place| !text.as_bytes()[*place].is_ascii_whitespace()) {
            let mut changed = text.clone().into_bytes();
            changed[place] ^= 1;
            // What neither a list nor the name and key of its root depends on changes nothing that is denied.
            let read = RootLists::read_whole(&changed, &[]);
            assert!(!read.is_ok_and(|read| said(&read) != said(&lists)), "changed at {place}");
        }
        let long = RootLists::read_whole(&vec![b'\n'; MAX_STORED_BYTES + 1], &[]);
        assert_eq!(long, Err(ListNotKept::TooLong(MAX_STORED_BYTES)));
    }

    #[test]
    fn what_is_stored_can_be_read_however_many_roots_there_were() {
        let mut lists = RootLists::default();
        let all: Vec<SigningIssuer> = (0..20).map(|_| root()).collect();
        for (number, root) in (1..).zip(&all) {
            lists = lists.updated(&list(root, number), &roots(&[root])).0;
            assert_eq!(numbers(&lists).last(), Some(&number), "that of the root that is trusted");
            assert_eq!(RootLists::read(lists.pem_with_roots().as_bytes(), &[]).as_ref(), Ok(&lists));
        }
        assert_eq!(numbers(&lists), (5..=20).collect::<Vec<_>>());
    }
}
