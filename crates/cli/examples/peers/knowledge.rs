//! Which hosts know which: one bit each, so that thousands of hosts that know thousands fit into memory.

use crate::framing::Error;
use api::agent::OverlayPeers;
use prost::Message as _;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nothing comes any more when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);

pub struct Knowledge {
    hosts: Vec<Mutex<Known>>,
    bytes: AtomicU64,
    /// Milliseconds since the start at which something came last.
    last: AtomicU64,
    start: Instant,
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct Known {
    revision: u64,
    peers: Vec<u64>,
    coming: Vec<u64>,
}

fn set(bits: &mut Vec<u64>, number: usize, to: bool) {
    if bits.len() <= number / 64 {
        bits.resize(number / 64 + 1, 0);
    }
    if let Some(word) = bits.get_mut(number / 64) {
        let bit = 1 << (number % 64);
        *word = if to { *word | bit } else { *word & !bit };
    }
}

fn number(id: &str) -> Option<usize> {
    id.strip_prefix("host-")?.parse().ok()
}

impl Knowledge {
    pub fn new(hosts: usize) -> Self {
        Self {
            hosts: (0..hosts).map(|_| Mutex::default()).collect(),
            bytes: AtomicU64::new(0),
            last: AtomicU64::new(0),
            start: Instant::now(),
            failure: Mutex::default(),
        }
    }

    fn known(&self, host: usize) -> Option<MutexGuard<'_, Known>> {
        Some(self.hosts.get(host)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn fail(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    fn check(&self) -> Result<(), Error> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(why) => Err(why.into()),
            None => Ok(()),
        }
    }

    /// A host applies a message, by the rules of the protocol.
    pub fn told(&self, host: usize, told: &OverlayPeers) {
        self.bytes.fetch_add(told.encoded_len() as u64, Ordering::Relaxed);
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last.fetch_max(now, Ordering::Relaxed);
        let Some(mut known) = self.known(host) else { return };
        let peers = told.peers.iter().filter_map(|peer| number(&peer.node_id));
        match told.after {
            None => {
                if told.piece == 0 {
                    known.coming.clear();
                }
                peers.for_each(|peer| set(&mut known.coming, peer, true));
                if told.piece + 1 == told.pieces {
                    known.peers = std::mem::take(&mut known.coming);
                    known.revision = told.revision;
                }
            }
            Some(after) if told.revision > known.revision => {
                if after > known.revision {
                    self.fail(format!(
                        "host {host} knows {} and was told what follows {after}",
                        known.revision
                    ));
                }
                peers.for_each(|peer| set(&mut known.peers, peer, true));
                let gone = told.gone.iter().filter_map(|id| number(id));
                gone.for_each(|peer| set(&mut known.peers, peer, false));
                known.revision = told.revision;
            }
            Some(_) => {}
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When a host was told something last.
    pub fn last_news(&self) -> Instant {
        self.start + Duration::from_micros(self.last.load(Ordering::Relaxed))
    }

    pub async fn quiet(&self) {
        while self.last_news().elapsed() < QUIET {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn knows(&self, host: usize, peer: usize) -> bool {
        let known = self.known(host);
        known.is_some_and(|known| known.peers.get(peer / 64).is_some_and(|word| word >> (peer % 64) & 1 == 1))
    }

    fn count(&self, host: usize) -> u32 {
        self.known(host).map_or(0, |known| known.peers.iter().map(|word| word.count_ones()).sum())
    }

    /// Waits until all these hosts know all these, and nobody else.
    pub async fn all_know(
        &self,
        hosts: impl Iterator<Item = usize> + Clone,
        peers: impl RangeBounds<usize> + Iterator<Item = usize> + Clone,
    ) -> Result<(), Error> {
        let wanted = u32::try_from(peers.clone().count())?;
        while !hosts.clone().all(|host| self.count(host) == wanted) {
            self.check()?;
            tokio::time::sleep(LOOK).await;
        }
        let wrong = hosts.clone().any(|host| peers.clone().any(|peer| !self.knows(host, peer)));
        if wrong { Err("a host knows others than it should".into()) } else { self.check() }
    }

    /// Waits until none of these hosts knows this one.
    pub async fn none_knows(
        &self,
        hosts: impl Iterator<Item = usize> + Clone,
        gone: usize,
    ) -> Result<(), Error> {
        while hosts.clone().any(|host| self.knows(host, gone)) {
            self.check()?;
            tokio::time::sleep(LOOK).await;
        }
        self.check()
    }
}
