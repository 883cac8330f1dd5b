//! Every connection with a client certificate, so that it can be cut the moment the certificate is refused: a connection is registered first and checked then, so that no revocation falls in between.

use crate::process::app::App;
use crate::process::views::Views;
use lifecycle::names::{Serial, Timestamp};
use lifecycle::registry::State;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often connections are looked at for reasons of time alone: a certificate whose successor took over.
const TICK: Duration = Duration::from_secs(1);
/// Connections that one certificate may have; one more closes the oldest.
const PER_CERTIFICATE: usize = 64;

#[derive(Default)]
pub struct Connections {
    /// By serial, the oldest first.
    open: Mutex<HashMap<Serial, Vec<OpenConnection>>>,
    next: AtomicU64,
}

struct OpenConnection {
    id: u64,
    cut: CancellationToken,
}

/// A registered connection; dropping it takes it off the list.
pub struct RegisteredConnection {
    app: Arc<App>,
    serial: Serial,
    id: u64,
    pub cut: CancellationToken,
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        let mut open = self.app.edge.connections.open();
        if let Some(of_serial) = open.get_mut(&self.serial) {
            of_serial.retain(|open| open.id != self.id);
            if of_serial.is_empty() {
                open.remove(&self.serial);
            }
        }
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<Serial, Vec<OpenConnection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the connections whose certificate is refused now. One on no record may only have not arrived yet.
    fn sweep(&self, state: &State, now: Timestamp) {
        let open = self.open();
        for (_, of_serial) in open.iter().filter(|(serial, _)| state.verdict(serial, now).is_refused()) {
            of_serial.iter().for_each(|open| open.cut.cancel());
        }
    }
}

pub fn register(app: &Arc<App>, serial: &Serial) -> RegisteredConnection {
    let id = app.edge.connections.next.fetch_add(1, Ordering::Relaxed);
    let cut = CancellationToken::new();
    let mut open = app.edge.connections.open();
    let of_serial = open.entry(serial.clone()).or_default();
    if of_serial.len() >= PER_CERTIFICATE {
        of_serial.remove(0).cut.cancel();
    }
    of_serial.push(OpenConnection { id, cut: cut.clone() });
    RegisteredConnection { app: app.clone(), serial: serial.clone(), id, cut }
}

/// Looks at the open connections whenever something was denied, until the process stops.
pub async fn watch(app: Arc<App>) {
    let mut views = Views::new(&app);
    // Outside of the loop: one that began anew with every commit would never end on a busy control plane.
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut denials = None;
    loop {
        let state = &views.seen().state;
        if denials != Some(state.denials) {
            denials = Some(state.denials);
            app.edge.connections.sweep(state, app.now());
        }
        tokio::select! {
            next = views.next() => if next.is_none() { return },
            _ = ticks.tick() => denials = None,
        }
    }
}
