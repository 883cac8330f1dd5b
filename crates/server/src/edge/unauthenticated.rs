//! Limits on the unauthenticated: connections without a certificate and requests without a credential are few at a
//! time, so that neither one network nor all of them together can take the memory or the slots of the rest.
//! Beyond the limit they wait; a valid enrollment is late, not refused.

use lifecycle::names::Source;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unauthenticated connections, in all and from one network (/24, /56).
const CONNECTIONS: usize = 4096;
const FROM_ONE_NETWORK: usize = 1024;
/// Unauthenticated requests whose bodies may be held at once: 64 KiB each.
const BODIES: usize = 1024;
/// How long to wait for a permit.
const WAIT: Duration = Duration::from_secs(10);

pub struct UnauthenticatedLimits {
    connections: Arc<Semaphore>,
    networks: Mutex<HashMap<Source, Arc<Semaphore>>>,
    bodies: Arc<Semaphore>,
}

impl Default for UnauthenticatedLimits {
    fn default() -> Self {
        Self {
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            networks: Mutex::default(),
            bodies: Arc::new(Semaphore::new(BODIES)),
        }
    }
}

/// Held while an unauthenticated connection is open.
pub struct UnauthenticatedConnection {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

impl UnauthenticatedLimits {
    /// A permit for a connection, or none in time.
    pub async fn connection(&self, source: Source) -> Option<UnauthenticatedConnection> {
        let network = self.network(source.prefix());
        let both = async {
            let own = network.acquire_owned().await.ok()?;
            let shared = self.connections.clone().acquire_owned().await.ok()?;
            Some(UnauthenticatedConnection { _own: own, _shared: shared })
        };
        tokio::time::timeout(WAIT, both).await.ok().flatten()
    }

    /// A permit for a request's body, or none in time.
    pub async fn body(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(WAIT, self.bodies.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Networks nobody is connected from are forgotten: the table is never larger than the connections.
    fn network(&self, prefix: Source) -> Arc<Semaphore> {
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        if networks.len() >= CONNECTIONS {
            networks.retain(|_, places| Arc::strong_count(places) > 1);
        }
        networks.entry(prefix).or_insert_with(|| Arc::new(Semaphore::new(FROM_ONE_NETWORK))).clone()
    }
}
