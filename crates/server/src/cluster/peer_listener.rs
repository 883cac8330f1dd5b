//! The port between replicas.

use super::peer_tls::PeerTls;
use journal::Journal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Connections whose other end has not proven yet that it is a replica. One more, and the oldest of them is closed: whoever opens
/// connections and says nothing keeps nobody out who speaks at once.
const UNPROVEN: usize = 256;
const PAUSE: Duration = Duration::from_millis(100);

/// Answers other replicas until the process stops.
pub async fn accept(
    journal: Arc<Journal>,
    tls: Arc<PeerTls>,
    listener: TcpListener,
    mut stopping: watch::Receiver<bool>,
) {
    let unproven = Unproven::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, _)) => unproven.begin(|place| serve(journal.clone(), tls.clone(), stream, place)),
            Err(error) => {
                tracing::warn!(%error, "a connection of another replica could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(journal: Arc<Journal>, tls: Arc<PeerTls>, stream: TcpStream, place: UnprovenPlace) {
    let _ = stream.set_nodelay(true);
    match tls.accept(stream).await {
        // A certificate alone is no proof: the place is given back after the greeting.
        Ok(connection) => journal.serve_peer(connection, place).await,
        Err(error) => tracing::debug!(%error, "a connection to the port between replicas was refused"),
    }
}

/// The connections that are not proven yet, the oldest first.
#[derive(Clone, Default)]
struct Unproven(Arc<Mutex<UnprovenTasks>>);

#[derive(Default)]
struct UnprovenTasks {
    tasks: BTreeMap<u64, AbortHandle>,
    next: u64,
}

impl Unproven {
    fn lock(&self) -> MutexGuard<'_, UnprovenTasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection in a task of its own.
    fn begin<F: Future<Output = ()> + Send + 'static>(&self, serve: impl FnOnce(UnprovenPlace) -> F) {
        let mut unproven = self.lock();
        if unproven.tasks.len() >= UNPROVEN
            && let Some((_, oldest)) = unproven.tasks.pop_first()
        {
            oldest.abort();
        }
        let number = unproven.next;
        unproven.next += 1;
        let serving = serve(UnprovenPlace { number, unproven: self.clone() });
        // A task that ends at once waits for the lock until it stands here.
        unproven.tasks.insert(number, tokio::spawn(serving).abort_handle());
    }
}

/// Of one connection among them, until it is dropped.
struct UnprovenPlace {
    number: u64,
    unproven: Unproven,
}

impl Drop for UnprovenPlace {
    fn drop(&mut self) {
        self.unproven.lock().tasks.remove(&self.number);
    }
}
