//! All the machines, and what is known of them together.

use crate::arguments::{Api, Arguments};
use crate::control_plane::ControlPlane;
use crate::framing::Error;
use crate::machine;
use crate::transport::Dialer;
use bytes::Bytes;
use rustls::ClientConfig;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

pub struct Shared {
    pub api: Api,
    pub dialer: Dialer,
    pub stranger: Arc<ClientConfig>,
    pub tally: Tally,
    /// Machines on a stream.
    streaming: AtomicUsize,
    /// Streams that have ended.
    lost: AtomicUsize,
    document: Mutex<Awaited>,
    changed: Notify,
}

/// The newest document, which machines have it, and since when the last one does.
struct Awaited {
    document: Bytes,
    having: HashSet<usize>,
    last: Instant,
}

impl Awaited {
    fn new(document: Bytes) -> Self {
        Self { document, having: HashSet::new(), last: Instant::now() }
    }
}

/// What was tried, and what went wrong.
#[derive(Default)]
pub struct Tally {
    began: Mutex<Option<Instant>>,
    /// Attempts to open a stream, by the second.
    attempts: Mutex<BTreeMap<u64, usize>>,
    failures: Mutex<BTreeMap<String, usize>>,
}

impl Tally {
    fn begin(&self) {
        *lock(&self.began) = Some(Instant::now());
        lock(&self.attempts).clear();
        lock(&self.failures).clear();
    }

    pub fn attempted(&self) {
        let second = lock(&self.began).map_or(0, |began| began.elapsed().as_secs());
        *lock(&self.attempts).entry(second).or_default() += 1;
    }

    pub fn failed(&self, what: &str, error: &(dyn std::error::Error + Send + Sync)) {
        let mut text = format!("{what}: {error}");
        text.truncate(text.char_indices().nth(120).map_or(text.len(), |(at, _)| at));
        *lock(&self.failures).entry(text).or_default() += 1;
    }

    pub fn attempts(&self) -> BTreeMap<u64, usize> {
        lock(&self.attempts).clone()
    }

    pub fn failures(&self) -> BTreeMap<String, usize> {
        lock(&self.failures).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a machine as streaming for as long as it lives.
pub struct Streaming<'a>(&'a Shared);

impl Drop for Streaming<'_> {
    fn drop(&mut self) {
        self.0.streaming.fetch_sub(1, Ordering::SeqCst);
        self.0.lost.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl Shared {
    pub fn up(&self) -> Streaming<'_> {
        self.streaming.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
        Streaming(self)
    }

    /// A machine has a document.
    pub fn has(&self, number: usize, document: &Bytes) {
        let mut awaited = lock(&self.document);
        // It may come twice: as what is, and as what has changed.
        if awaited.document == *document && awaited.having.insert(number) {
            awaited.last = Instant::now();
            self.changed.notify_one();
        }
    }

    fn having(&self) -> usize {
        lock(&self.document).having.len()
    }

    async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        while !holds(self) {
            self.changed.notified().await;
        }
    }
}

pub struct Fleet {
    shared: Arc<Shared>,
    count: usize,
    documents: usize,
}

impl Fleet {
    pub fn new(plane: &ControlPlane, arguments: &Arguments) -> Result<Self, Error> {
        let dialer = plane.dialer()?;
        let document = plane.set_document(0, arguments.document)?;
        let shared = Shared {
            api: arguments.api,
            stranger: dialer.tls(None, b"h2")?,
            dialer,
            tally: Tally::default(),
            streaming: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            document: Mutex::new(Awaited::new(document)),
            changed: Notify::new(),
        };
        Ok(Self { shared: Arc::new(shared), count: arguments.machines, documents: 0 })
    }

    /// Until every machine is on a stream and has its configuration.
    pub async fn boot(&mut self) {
        self.shared.tally.begin();
        for number in 0..self.count {
            tokio::spawn(machine::live(self.shared.clone(), number));
        }
        let count = self.count;
        self.shared
            .until(|shared| shared.streaming.load(Ordering::SeqCst) == count && shared.having() == count)
            .await;
    }

    /// How long until a new document is on every machine.
    pub async fn configure(&mut self, plane: &ControlPlane, bytes: usize) -> Result<Duration, Error> {
        self.documents += 1;
        let document = control_document(self.documents, bytes);
        *lock(&self.shared.document) = Awaited::new(document);
        let began = Instant::now();
        plane.set_document(self.documents, bytes)?;
        let count = self.count;
        self.shared.until(|shared| shared.having() == count).await;
        Ok(lock(&self.shared.document).last.duration_since(began))
    }

    /// From here on streams end, and attempts are counted anew.
    pub fn expect_loss(&self) {
        self.shared.lost.store(0, Ordering::SeqCst);
        self.shared.tally.begin();
    }

    /// Until every machine has lost its stream and is on another.
    pub async fn all_back(&self) {
        let count = self.count;
        let back = |shared: &Shared| {
            shared.lost.load(Ordering::SeqCst) >= count && shared.streaming.load(Ordering::SeqCst) == count
        };
        self.shared.until(back).await;
    }

    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    pub fn streaming(&self) -> usize {
        self.shared.streaming.load(Ordering::SeqCst)
    }
}

/// A document of about so many bytes; each number is another.
pub fn control_document(number: usize, bytes: usize) -> Bytes {
    let filling = "x".repeat(bytes.saturating_sub(32));
    Bytes::from(format!("{{\"number\":{number},\"x\":\"{filling}\"}}"))
}
