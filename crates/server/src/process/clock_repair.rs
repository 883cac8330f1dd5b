//! Bringing back a stopped domain whose time was carried far ahead by a wrong clock: the registry settles what has ended
//! and sets its time back, in one entry.

use crate::process::chance::{self, NoChance};
use crate::process::clock;
use crate::process::datadir::{DataDir, DirLock, StoreVersion};
use crate::process::run::{self, RunError};
use journal::{Journal, Options, ProposeError, ShutdownError};
use lifecycle::names::{RequestId, Source, Timestamp};
use lifecycle::registry::event::ClockRepaired;
use lifecycle::registry::{Actor, Command, Envelope, Event, Rejection, RepairClock, apply};
use std::sync::Arc;
use std::time::Duration;

/// How long the snapshot at the end may take.
const SNAPSHOT_BY: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ClockRepairError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot draw random numbers: {0}")]
    Chance(#[from] NoChance),
    #[error("the repair was not written: {0}")]
    Propose(#[from] ProposeError),
    #[error(transparent)]
    Refused(#[from] Rejection),
    #[error(transparent)]
    Close(#[from] ShutdownError),
}

/// A stopped domain that is held open until it is repaired or left as it is.
pub struct ClockRepair {
    journal: Journal,
    user: String,
    to: Timestamp,
    /// The last entry is of a time that is far ahead, though the time of the registry is not: a repair was interrupted.
    stamped_ahead: bool,
    _lock: DirLock,
}

/// Whether a directory is of the version before, and would be taken in on the way; and, as far as that can be told without
/// taking it in, whether its time is ahead.
pub struct OlderDirectory {
    pub is_ahead: bool,
}

/// None for a directory of this version.
pub fn older(dir: &DataDir) -> Result<Option<OlderDirectory>, ClockRepairError> {
    run::check(dir)?;
    match dir.check_version().map_err(RunError::from)? {
        StoreVersion::Current => Ok(None),
        StoreVersion::Older => {
            let last = journal::probe(dir.path(), None).map_err(RunError::from)?.last_at;
            let is_ahead = last.is_some_and(|last| lifecycle::clock::is_behind(clock::now(), last));
            Ok(Some(OlderDirectory { is_ahead }))
        }
    }
}

impl ClockRepair {
    /// Takes the lock and opens the log; changes nothing in the registry.
    pub async fn open(dir: &DataDir, user: String) -> Result<Self, ClockRepairError> {
        let config = run::check(dir)?;
        let (kek, begun) = run::load_keks(dir, &config)?;
        let _lock = dir.lock().map_err(RunError::from)?;
        let key = run::unlock(dir, &kek, begun.as_ref()).await?;
        let to = clock::now();
        let last = journal::probe(dir.path(), Some(&key)).map_err(RunError::from)?.last_at;
        let stamped_ahead = last.is_some_and(|last| lifecycle::clock::is_behind(to, last));
        let options = Options::new(dir.path(), Arc::new(clock::now), key.clone());
        let journal = Journal::open(options).await.map_err(RunError::from)?;
        run::unseal(dir, &journal.view().state, &key, kek, begun, &config)?;
        Ok(Self { journal, user, to, stamped_ahead, _lock })
    }

    /// What a repair would do; nothing where the time is not ahead.
    pub fn plan(&self) -> Result<Option<ClockRepaired>, ClockRepairError> {
        let mut state = self.journal.view().state.clone();
        let applied = apply(&mut state, &self.envelope()?, self.to);
        applied.answer?;
        let repaired = |event| if let Event::ClockRepaired(repaired) = event { Some(repaired) } else { None };
        Ok(applied.events.into_iter().find_map(repaired))
    }

    /// Whether there is something to do at all.
    pub fn is_needed(&self) -> Result<bool, ClockRepairError> {
        Ok(self.stamped_ahead || self.plan()?.is_some())
    }

    /// Does it, and closes the log. The entry that follows has the right time: a start looks at the last one.
    pub async fn perform(self) -> Result<(), ClockRepairError> {
        self.journal.propose(self.envelope()?).await?.answer?;
        if self.stamped_ahead {
            let id = RequestId(chance::ulid(clock::now())?);
            let tidy = Envelope { id, actor: Actor::Reconciler, command: Command::Tidy, ..self.envelope()? };
            self.journal.propose(tidy).await?.answer?;
        }
        self.journal.shutdown_with_snapshot(SNAPSHOT_BY).await?;
        Ok(())
    }

    /// Closes the log and leaves everything as it is.
    pub async fn abandon(self) -> Result<(), ClockRepairError> {
        Ok(self.journal.shutdown().await?)
    }

    /// Its id is of the registry's time: an older one would be refused.
    fn envelope(&self) -> Result<Envelope, ClockRepairError> {
        Ok(Envelope {
            id: RequestId(chance::ulid(self.journal.view().state.at.max(self.to))?),
            actor: Actor::Local { user: self.user.clone() },
            source: Source::Internal,
            request_id: None,
            correlation_id: None,
            command: Command::RepairClock(RepairClock { to: self.to }),
        })
    }
}
