//! How many read the audit trail at once. Each reading keeps a thread and a disk busy, so there are few places, and these are shared
//! by credentials: whoever has many requests keeps another waiting for one of them at most.

use crate::edge::authenticate::CredentialHolder;
use crate::edge::sharer::{Sharer, sharers};
use crate::edge::shares::{PlaceUse, PoolPlace, SharedPool};
use crate::edge::turns::{PlacesInTurn, Turn};
use crate::http::failure::Failure;
use api::code;
use lifecycle::registry::{Actor, State};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Walks through a part of the trail for some lines.
const SEARCHES: usize = 2;
/// Walks over the whole trail, which take long: one for each credential.
const VERIFICATIONS: usize = 2;
/// Exports; each keeps a view of the registry until it is read to its end.
const EXPORTS: usize = 8;
/// How long to wait for a place among them.
const WAIT: Duration = Duration::from_secs(10);

pub struct AuditReaders {
    searches: Arc<PlacesInTurn<CredentialHolder>>,
    verifications: Arc<PlacesInTurn<CredentialHolder>>,
    exports: Arc<SharedPool<Sharer>>,
}

impl AuditReaders {
    /// A turn to look through the trail for some lines, or a refusal in time.
    pub async fn search(&self, actor: &Actor) -> Result<Turn<CredentialHolder>, Failure> {
        let turn = self.searches.wait(&holder(actor)?, WAIT).await;
        turn.ok_or_else(|| busy("too many requests for the audit trail"))
    }

    /// A turn to verify the whole of it, or a refusal in time.
    pub async fn verification(&self, actor: &Actor) -> Result<Turn<CredentialHolder>, Failure> {
        let turn = self.verifications.wait(&holder(actor)?, WAIT).await;
        turn.ok_or_else(|| busy("another verification of the audit trail is running"))
    }

    /// A place for an export. When all are taken, whoever has most of them loses one, or whoever does not read.
    pub fn export(&self, state: &State, actor: &Actor) -> Result<PoolPlace<Sharer>, Failure> {
        let path = sharers(state, &holder(actor)?);
        let place = self.exports.enter(&path, PlaceUse::Active, CancellationToken::new());
        place.ok_or_else(|| busy("too many exports of the audit trail"))
    }
}

/// Whoever may read the trail has a credential.
fn holder(actor: &Actor) -> Result<CredentialHolder, Failure> {
    let unknown = || Failure::new(code::FORBIDDEN, "the audit trail is read with a credential");
    CredentialHolder::of(actor).ok_or_else(unknown)
}

fn busy(message: &str) -> Failure {
    Failure::new(code::OVERLOADED, message).retry_after(2)
}

impl Default for AuditReaders {
    fn default() -> Self {
        Self {
            searches: PlacesInTurn::new(SEARCHES, usize::MAX),
            verifications: PlacesInTurn::new(VERIFICATIONS, 1),
            exports: SharedPool::new(EXPORTS, usize::MAX),
        }
    }
}
