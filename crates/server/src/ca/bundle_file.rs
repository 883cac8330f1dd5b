//! `DIR/ca/bundle.pem`: what a host must trust to reach the control plane, for whoever copies it from this machine.

use crate::process::app::App;
use crate::process::datadir::{DirError, replace};
use std::sync::{Mutex, PoisonError};

/// The newest view is read and written by one at a time, so that an older one never comes last.
static WRITING: Mutex<()> = Mutex::new(());

/// Follows what the registry says that hosts trust.
pub fn write(app: &App) -> Result<(), DirError> {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let view = app.view();
    let pem = pki::pem::chain_pem(view.state.server_trust());
    let path = app.ca.dir.ca("bundle.pem");
    let same = std::fs::read(&path).is_ok_and(|found| found == pem.as_bytes());
    if same || pem.is_empty() { Ok(()) } else { replace(&path, pem.as_bytes(), 0o644) }
}

/// The same where nothing depends on it: what could not be written is logged, and other replicas follow by themselves.
pub fn follow(app: &App) {
    if let Err(error) = write(app) {
        tracing::error!(%error, "the trust bundle's file was not written");
    }
}
