//! A few threads, each with a session, and a queue before them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::TokenSettings;
use super::call::{HsmAnswer, HsmCall, HsmRequest};
use super::connector::Connector;
use super::error::HsmError;
use super::key::{FoundKey, HsmKey};
use super::message::{SessionReply, SessionRequest};
use super::pin::PinMemory;
use super::process::SessionProcess;
use super::program::SessionProgram;
use super::session::SessionFault;

/// How many sessions there are at most.
pub const SESSIONS: usize = 4;
/// How long anybody waits for an answer, and how long a session may take for one.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// How many requests wait for a session; more are refused.
const WAITING: usize = 64;
/// The session may be lost; then another one is asked.
const TRIES: usize = 2;

/// A key that a label was asked for.
pub struct FoundOrMade {
    pub key: HsmKey,
    /// Made now; otherwise the token had it before.
    pub is_new: bool,
    pub is_extractable: bool,
}

/// A token, from where keys are used. Nothing is contacted until something is asked.
pub struct Hsm {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    queue: Mutex<CallQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct CallQueue {
    waiting: VecDeque<Arc<HsmCall>>,
    /// What workers are at.
    active: Vec<Arc<HsmCall>>,
    is_closed: bool,
}

impl Hsm {
    /// Forgets which PIN was refused when the process ends.
    pub fn new(settings: TokenSettings) -> Result<Arc<Self>, HsmError> {
        Self::with_program(settings, PinMemory::default(), SessionProgram::own()?)
    }

    /// With sessions that another program serves, or this one without some of its environment.
    pub fn with_program(
        settings: TokenSettings,
        pins: PinMemory,
        program: SessionProgram,
    ) -> Result<Arc<Self>, HsmError> {
        let shared = Arc::new(Shared {
            connector: Connector::new(settings, pins, program),
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let hsm = Arc::new(Self { shared: shared.clone() });
        for index in 0..SESSIONS {
            let shared = shared.clone();
            let worker = std::thread::Builder::new().name(format!("hsm-{index}"));
            // Never joined: it may wait for a session to end, which also ends with this process.
            worker
                .spawn(move || shared.work(index))
                .map_err(|error| HsmError::Unusable(format!("no thread for its sessions: {error}")))?;
        }
        Ok(hsm)
    }

    /// The key with this label and this public part, whether the HSM is there or not.
    pub fn key(self: &Arc<Self>, label: &str, spki: &[u8]) -> Result<HsmKey, HsmError> {
        HsmKey::new(self.clone(), label, spki)
    }

    /// The key with this label, as the token describes it.
    pub fn find(&self, label: &str) -> Result<FoundKey, HsmError> {
        found(self.ask(HsmRequest::Find { label: label.to_owned() })?)
    }

    /// A new P-256 key that cannot be extracted. Its label must be new.
    pub fn generate(self: &Arc<Self>, label: &str) -> Result<HsmKey, HsmError> {
        let made = found(self.ask(HsmRequest::Generate { label: label.to_owned() })?)?;
        let key = self.key(label, &made.spki)?;
        key.check()?;
        Ok(key)
    }

    /// The key with this label; a new one if there is none.
    pub fn find_or_generate(self: &Arc<Self>, label: &str) -> Result<FoundOrMade, HsmError> {
        match self.find(label) {
            Ok(found) => {
                let key = self.key(label, &found.spki)?;
                key.check()?;
                Ok(FoundOrMade { key, is_new: false, is_extractable: found.is_extractable })
            }
            Err(HsmError::KeyMissing { .. }) => {
                let key = self.generate(label)?;
                Ok(FoundOrMade { key, is_new: true, is_extractable: false })
            }
            Err(error) => Err(error),
        }
    }

    /// Ends every wait at once and takes no more. Sessions are told to end, and end within a second whatever they are at.
    pub fn close(&self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        let calls: Vec<Arc<HsmCall>> = queue.waiting.drain(..).collect();
        for call in calls.iter().chain(&queue.active) {
            call.answer(Err(HsmError::Closed));
        }
        drop(queue);
        self.shared.connector.exchanges.close();
        self.shared.changed.notify_all();
    }

    pub(super) fn ask(&self, request: HsmRequest) -> Result<HsmAnswer, HsmError> {
        let call = Arc::new(HsmCall::new(request, Instant::now()));
        let mut queue = self.shared.lock();
        if queue.is_closed {
            return Err(HsmError::Closed);
        }
        // Whose caller has gone makes room.
        queue.waiting.retain(|waiting| !waiting.is_late());
        if queue.waiting.len() >= WAITING {
            return Err(HsmError::Busy);
        }
        queue.waiting.push_back(call.clone());
        drop(queue);
        self.shared.changed.notify_all();
        call.wait()
    }
}

impl Drop for Hsm {
    fn drop(&mut self) {
        self.close();
    }
}

fn found(answer: HsmAnswer) -> Result<FoundKey, HsmError> {
    match answer {
        HsmAnswer::Key(found) => Ok(*found),
        HsmAnswer::Signature(_) => Err(HsmError::Unusable("a signature in place of a key".to_owned())),
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, CallQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, index: usize) {
        let mut session = None;
        while let Some(call) = self.next(index, &mut session) {
            if !call.is_late() {
                let answer = self.perform(&mut session, &call);
                let is_failed = answer.is_err();
                call.answer(answer);
                if is_failed {
                    // It may be in the middle of something, and a new one may see more.
                    session = None;
                }
            }
            self.lock().active.retain(|active| !Arc::ptr_eq(active, &call));
        }
    }

    /// The next call; none when it is over. A session whose process has ended is given up meanwhile.
    fn next(&self, index: usize, session: &mut Option<SessionProcess>) -> Option<Arc<HsmCall>> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if session.as_mut().is_some_and(SessionProcess::has_ended) {
                *session = None;
            }
            let may_work = index < self.connector.allowed.load(Ordering::Acquire);
            if let Some(call) = queue.waiting.pop_front_if(|_| may_work) {
                queue.active.push(call.clone());
                return Some(call);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn perform(&self, session: &mut Option<SessionProcess>, call: &HsmCall) -> Result<HsmAnswer, HsmError> {
        let mut last = HsmError::Late(DEADLINE.as_secs());
        for _ in 0..TRIES {
            if call.is_late() {
                break;
            }
            let held = match session {
                Some(held) => held,
                None => session.insert(self.connector.open()?),
            };
            let now = Instant::now();
            // From now, not from when it was asked: a session is not killed because others were before this call.
            let by = now.checked_add(DEADLINE).unwrap_or(now);
            let request = SessionRequest::Perform(call.request.clone());
            last = match held.ask(&request, by, &self.connector.exchanges) {
                Ok(SessionReply::Done(answer)) => return Ok(answer),
                Ok(reply @ SessionReply::Failed(SessionFault::Final(_) | SessionFault::Absent(_))) => {
                    return Err(self.connector.unexpected(reply));
                }
                Err(error @ (HsmError::Late(_) | HsmError::Closed)) => return Err(error),
                Ok(reply) => self.connector.unexpected(reply),
                Err(error) => error,
            };
            held.kill();
            *session = None;
        }
        Err(last)
    }
}
