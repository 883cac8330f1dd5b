//! Opens sessions, one at a time, and decides which PIN is tried.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::HsmError;
use super::message::{SecretText, SessionReply, SessionRequest, TokenStatus};
use super::pin::PinMemory;
use super::pool::{DEADLINE, SESSIONS};
use super::process::{Exchanges, SessionProcess};
use super::program::SessionProgram;
use super::{PinSource, TokenSettings};

/// After a failure, the HSM is left alone for so long: whoever asks meanwhile is given the same answer.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Connector {
    pub settings: TokenSettings,
    program: SessionProgram,
    /// How many sessions the token allows, as far as there are workers for them.
    pub allowed: AtomicUsize,
    pub exchanges: Exchanges,
    state: Mutex<ConnectorState>,
}

struct ConnectorState {
    failed: Option<(Instant, HsmError)>,
    pins: PinMemory,
}

impl Connector {
    pub fn new(settings: TokenSettings, pins: PinMemory, program: SessionProgram) -> Self {
        let program = match &settings.pin {
            PinSource::Env(name) => program.without(name),
            PinSource::File(_) => program,
        };
        Self {
            settings,
            program,
            allowed: AtomicUsize::new(SESSIONS),
            exchanges: Exchanges::default(),
            state: Mutex::new(ConnectorState { failed: None, pins }),
        }
    }

    /// A session that is logged in.
    pub fn open(&self) -> Result<SessionProcess, HsmError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.exchanges.is_closed() {
            return Err(HsmError::Closed);
        }
        if let Some((at, error)) = &state.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let opened = self.open_now(&mut state.pins);
        state.failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    fn open_now(&self, pins: &mut PinMemory) -> Result<SessionProcess, HsmError> {
        let now = Instant::now();
        let by = now.checked_add(DEADLINE).unwrap_or(now);
        let mut session = SessionProcess::start(&self.program, &self.settings)?;
        let TokenSettings { module, token, .. } = &self.settings;
        let request = SessionRequest::Open { module: module.clone(), token: token.clone() };
        let status = match session.ask(&request, by, &self.exchanges)? {
            SessionReply::Opened(status) => status,
            other => return Err(self.unexpected(other)),
        };
        let most = status.max_sessions.and_then(|most| usize::try_from(most).ok());
        self.allowed.store(most.unwrap_or(SESSIONS).clamp(1, SESSIONS), Ordering::Release);
        if status.needs_login {
            self.log_in(&mut session, &status, pins, by)?;
        }
        Ok(session)
    }

    /// With a PIN that was not refused before.
    fn log_in(
        &self,
        session: &mut SessionProcess,
        status: &TokenStatus,
        pins: &mut PinMemory,
        by: Instant,
    ) -> Result<(), HsmError> {
        let (token, source) = (self.settings.token.clone(), &self.settings.pin);
        let loaded = source.load();
        let pin = loaded.map_err(|why| HsmError::PinUnreadable { token: token.clone(), why })?;
        let refused =
            |why: String| HsmError::PinRefused { token: token.clone(), pin: source.to_string(), why };
        if let Some(why) = pins.refusal(&pin) {
            return Err(refused(why));
        }
        if status.is_pin_locked {
            return Err(HsmError::PinLocked { token });
        }
        if status.is_final_try {
            return Err(HsmError::PinFinalTry { token, pin: source.to_string() });
        }
        let request = SessionRequest::Login { pin: SecretText(pin.text.clone()) };
        match session.ask(&request, by, &self.exchanges)? {
            SessionReply::LoggedIn => {
                pins.accept();
                Ok(())
            }
            SessionReply::PinRefused(why) => {
                pins.refuse(&pin, &why);
                Err(refused(why))
            }
            other => Err(self.unexpected(other)),
        }
    }

    /// The error of an answer that is not the one that was asked for.
    pub fn unexpected(&self, reply: SessionReply) -> HsmError {
        match reply {
            SessionReply::Failed(fault) => fault.into_cause().into_error(&self.settings),
            _ => {
                let why = "gave another answer than was asked for".to_owned();
                HsmError::Session { module: self.settings.module_name(), why }
            }
        }
    }
}
