//! The port between replicas.

use super::peer_tls::PeerTls;
use journal::Journal;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Connections whose other end has not proven yet that it is a replica. One more, and of the address with the most of them, in the network
/// with the most, the oldest is closed: whoever opens connections and says nothing keeps out nobody else.
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
            Ok((stream, from)) => {
                unproven.begin(from.ip(), |place| serve(journal.clone(), tls.clone(), stream, place));
            }
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
    tasks: BTreeMap<u64, (IpAddr, AbortHandle)>,
    next: u64,
}

impl UnprovenTasks {
    /// The oldest of the address with the most of them, in the network with the most.
    fn crowding(&self) -> Option<u64> {
        let (mut networks, mut addresses) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
        for (from, _) in self.tasks.values() {
            *networks.entry(network(*from)).or_insert(0) += 1;
            *addresses.entry(*from).or_insert(0) += 1;
        }
        let crowd = |from: &IpAddr| (networks.get(&network(*from)), addresses.get(from));
        // Of equals the last is taken: so from the newest to the oldest.
        let crowding = self.tasks.iter().rev().max_by_key(|(_, (from, _))| crowd(from));
        crowding.map(|(number, _)| *number)
    }
}

/// The /24 of an IPv4 address, the /56 of an IPv6 address.
fn network(address: IpAddr) -> [u8; 16] {
    let mut bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let kept = if address.to_canonical().is_ipv4() { 15 } else { 7 };
    bytes.iter_mut().skip(kept).for_each(|byte| *byte = 0);
    bytes
}

impl Unproven {
    fn lock(&self) -> MutexGuard<'_, UnprovenTasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection in a task of its own.
    fn begin<F: Future<Output = ()> + Send + 'static>(
        &self,
        from: IpAddr,
        serve: impl FnOnce(UnprovenPlace) -> F,
    ) {
        let mut unproven = self.lock();
        if unproven.tasks.len() >= UNPROVEN
            && let Some((_, crowding)) = unproven.crowding().and_then(|number| unproven.tasks.remove(&number))
        {
            crowding.abort();
        }
        let number = unproven.next;
        unproven.next += 1;
        let serving = serve(UnprovenPlace { number, unproven: self.clone() });
        // A task that ends at once waits for the lock until it stands here.
        unproven.tasks.insert(number, (from, tokio::spawn(serving).abort_handle()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_opens_most_gives_way() {
        let unproven = Unproven::default();
        let begin = |from: &str| {
            let waiting = |place| async move {
                std::future::pending::<()>().await;
                drop::<UnprovenPlace>(place);
            };
            unproven.begin(from.parse().expect("an address"), waiting);
        };
        let held = |from: &str| {
            let from: IpAddr = from.parse().expect("an address");
            unproven.lock().tasks.values().filter(|(other, _)| *other == from).count()
        };
        begin("192.0.2.7");
        for _ in 0..10 * UNPROVEN {
            begin("198.51.100.1");
        }
        assert_eq!((held("192.0.2.7"), held("198.51.100.1")), (1, UNPROVEN - 1));
        // From many addresses of one network as well.
        for number in 0..10 * UNPROVEN {
            begin(&format!("198.51.100.{}", number % 250 + 1));
        }
        assert_eq!(held("192.0.2.7"), 1);
        // Neighbours in the same network keep theirs before the one that has most.
        begin("198.51.100.254");
        for _ in 0..2 * UNPROVEN {
            begin("198.51.100.1");
        }
        assert_eq!(held("198.51.100.254"), 1);
    }
}
