//! The feeds of this replica: made when the first host of a group claims its place, advanced after every commit, forgotten with
//! the last host.

use super::feed::Feed;
use super::tap::{OverlayTap, OverlayTraffic};
use crate::process::app::App;
use lifecycle::names::TenantId;
use lifecycle::registry::{OverlayGroup, State};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long whoever ends a node's place waits until the others have been told.
const SPREAD: Duration = Duration::from_millis(250);
/// How often it is looked whether they have.
const GLANCE: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct Feeds {
    feeds: Mutex<HashMap<OverlayGroup, Weak<Feed>>>,
    pub traffic: Arc<OverlayTraffic>,
}

impl Feeds {
    fn lock(&self) -> MutexGuard<'_, HashMap<OverlayGroup, Weak<Feed>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The feed of a group. The registry is looked at while the feeds are locked: a commit that is not seen here finds the
    /// feed when it is followed.
    pub fn feed(&self, app: &App, group: &OverlayGroup) -> Arc<Feed> {
        let mut feeds = self.lock();
        if let Some(feed) = feeds.get(group).and_then(Weak::upgrade) {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed::new(group.clone(), &app.view().state));
        feeds.insert(group.clone(), Arc::downgrade(&feed));
        feed
    }

    fn open(&self) -> Vec<Arc<Feed>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Tells what has changed. Answers with when to look again, if something was held back.
    pub fn advance(&self, state: &State, now: Instant) -> Option<Instant> {
        self.open().iter().filter_map(|feed| feed.advance(state, now)).min()
    }

    /// Ends the streams of hosts that do not read.
    pub fn look(&self, now: Instant) {
        for tap in self.open().iter().flat_map(|feed| feed.streams()) {
            tap.look(now);
        }
    }

    /// Waits until the connections of this replica have taken what the registry said of a tenant's overlay at this revision. Not
    /// for long: a host that does not read keeps nobody waiting.
    pub async fn spread(&self, tenant: &TenantId, revision: u64) {
        let deadline = Instant::now() + SPREAD;
        let told = |feed: &Arc<Feed>| feed.now().seen() >= revision;
        loop {
            let feeds: Vec<_> = self.open().into_iter().filter(|feed| feed.group.tenant == *tenant).collect();
            let current =
                |feed: &Arc<Feed>| feed.streams().iter().all(|tap: &Arc<OverlayTap>| tap.is_current());
            if feeds.iter().all(|feed| told(feed) && current(feed)) || Instant::now() >= deadline {
                return;
            }
            sleep(GLANCE).await;
        }
    }

    /// How many streams follow the feeds.
    pub fn followers(&self) -> usize {
        self.open().iter().map(|feed| feed.streams().len()).sum()
    }
}
