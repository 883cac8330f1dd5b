//! The way to a token, in the process of a session: the module loaded and initialized, the token found by its label, logged in.

use std::path::Path;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::session::SessionState::{RoPublic, RwPublic};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Limit, Slot};
use cryptoki::types::AuthPin;

use super::error::HsmError;
use super::file_name;
use super::message::{SessionReply, TokenStatus};
use super::session::{SessionFault, constant};

/// An open session, whose user is not logged in unless the token needs none.
pub(super) struct OpenedToken {
    pub session: Session,
    pub token: String,
    module: Pkcs11,
    slot: Slot,
}

impl OpenedToken {
    pub fn open(path: &Path, token: String) -> Result<(Self, TokenStatus), SessionFault> {
        let module = Pkcs11::new(path).map_err(|error| unloadable(path, &error))?;
        module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))?;
        let slot = slot(&module, path, &token)?;
        let about = module.get_token_info(slot)?;
        let session = module.open_ro_session(slot)?;
        let is_public = matches!(session.get_session_info()?.session_state(), RoPublic | RwPublic);
        let status = TokenStatus {
            needs_login: about.login_required() && is_public,
            is_pin_locked: about.user_pin_locked(),
            is_final_try: about.user_pin_final_try(),
            max_sessions: match about.max_session_count() {
                Limit::Max(most) => Some(most),
                Limit::Unavailable | Limit::Infinite => None,
            },
        };
        Ok((Self { session, token, module, slot }, status))
    }

    pub fn log_in(&self, pin: &str) -> SessionReply {
        match self.session.login(UserType::User, Some(&AuthPin::from(pin))) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => SessionReply::LoggedIn,
            Err(Error::Pkcs11(
                answer @ (RvError::PinIncorrect
                | RvError::PinInvalid
                | RvError::PinLenRange
                | RvError::PinExpired
                | RvError::PinLocked
                | RvError::UserPinNotInitialized),
                _,
            )) => SessionReply::PinRefused(constant(answer)),
            Err(error) => SessionReply::Failed(error.into()),
        }
    }

    /// Another session, which shares the login.
    pub fn open_to_write(&self) -> Result<Session, Error> {
        self.module.open_rw_session(self.slot)
    }

    pub fn close(self) {
        drop(self.session);
        // What it says of that does not matter: the process ends.
        let _ = self.module.finalize();
    }
}

fn unloadable(path: &Path, error: &Error) -> SessionFault {
    let why = match error {
        Error::LibraryLoading(error) => error.to_string(),
        other => other.to_string(),
    };
    SessionFault::final_error(HsmError::Module { module: path.to_owned(), why })
}

/// By label: numbers change.
fn slot(library: &Pkcs11, path: &Path, token: &str) -> Result<Slot, SessionFault> {
    let mut found = Vec::new();
    for slot in library.get_slots_with_token()? {
        // Of another token that fails, nothing is wanted.
        if library.get_token_info(slot).is_ok_and(|info| info.label() == token) {
            found.push(slot);
        }
    }
    let (module, token) = (file_name(path), token.to_owned());
    let error = match found.as_slice() {
        [slot] => return Ok(*slot),
        [] => HsmError::TokenAbsent { module, token },
        more => HsmError::TokenAmbiguous { module, token, count: more.len() },
    };
    Err(SessionFault::final_error(error))
}
