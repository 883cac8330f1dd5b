//! Keys in a hardware security module, reached by PKCS#11.
//!
//! A module is a vendor's C library: it may take long, hang, crash, or lose its device at any call. So this process never loads one:
//! each session is a process of its own ([`become_session_if_asked`]), which is killed and started again when it fails. A few
//! threads have a session each ([`Hsm`]), and whoever asks waits for an answer until a deadline. What comes back is a signature
//! that was verified against the public key on record ([`HsmKey`]); the private key never leaves the module.
//!
//! - here: `pool` (queue and threads), `connector` (opens sessions, decides on the PIN), `process` (one session);
//! - in the session's process: `serve` (requests and its end), `module` (load, find the token, log in), `session` (keys);
//! - between them: `message`.

mod call;
mod connector;
mod error;
mod key;
mod message;
mod module;
mod pin;
mod pool;
mod process;
mod program;
mod reference;
mod serve;
mod session;
mod uri;

pub use error::HsmError;
pub use key::{FoundKey, HsmKey};
pub use pin::{PinMemory, PinSource, PinSourceError};
pub use pool::{DEADLINE, FoundOrMade, Hsm, SESSIONS};
pub use program::{SessionProgram, become_session_if_asked};
pub use reference::{KeyReference, rolled_label, server_label};
pub use serve::serve_session;
pub use uri::{KeyUri, KeyUriError};

use std::path::{Path, PathBuf};

/// Where a token is found, and what opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSettings {
    /// The PKCS#11 module: a shared library.
    pub module: PathBuf,
    /// The token by its label: slots are numbered anew when a token is initialized.
    pub token: String,
    pub pin: PinSource,
}

impl TokenSettings {
    /// The module's file without its directory, for messages.
    fn module_name(&self) -> String {
        file_name(&self.module)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
