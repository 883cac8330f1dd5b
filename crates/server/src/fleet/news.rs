//! What has changed of nodes and alerts, worked out and written once for all who follow `/v1/events`: a commit that changes
//! nothing they are told of wakes none of them.

use crate::fleet::alert_changes;
use crate::fleet::everywhere;
use crate::process::app::App;
use crate::process::views::Views;
use api::rest::alerts::AlertEvent;
use api::rest::nodes::{NodeEvent, NodeItem, NodeLiveness};
use bytes::Bytes;
use imbl::ordmap::DiffItem;
use journal::View;
use lifecycle::names::{NodeId, TenantId, VclusterId};
use lifecycle::registry::{Node, NodeReach, Tenants};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// One event as it is sent, and who may read it: those who see the tenant, or all of them where there is none. Those narrowed to
/// vClusters are told of nodes in these alone.
struct EventText {
    tenant: Option<TenantId>,
    vcluster: Option<VclusterId>,
    text: String,
}

/// What lies between two views.
pub struct News {
    /// Nothing was worth telling from here...
    since: u64,
    /// ...up to here, where these changes begin.
    before: u64,
    pub after: Arc<View>,
    items: Vec<EventText>,
    /// All items, for those who see all tenants.
    whole: Bytes,
}

impl News {
    async fn between(app: &App, since: u64, before: &View, after: Arc<View>) -> Self {
        let items = difference(app, before, &after).await;
        let whole = items.iter().map(|item| item.text.as_str()).collect::<String>().into();
        Self { since, before: before.applied_index, after, items, whole }
    }

    /// What to tell a reader who has seen this view. One that missed something in between has it worked out for itself.
    pub async fn text(&self, app: &App, seen: &View, reach: &NodeReach) -> Bytes {
        if self.since <= seen.applied_index && seen.applied_index <= self.before {
            return self.visible(reach);
        }
        Self::between(app, seen.applied_index, seen, self.after.clone()).await.visible(reach)
    }

    fn visible(&self, reach: &NodeReach) -> Bytes {
        let NodeReach { tenants, vclusters } = reach;
        if *tenants == Tenants::All && vclusters.is_all() {
            return self.whole.clone();
        }
        let within = |item: &EventText| {
            vclusters.is_all() || item.vcluster.as_ref().is_some_and(|vcluster| vclusters.include(vcluster))
        };
        let own = |item: &&EventText| {
            item.tenant.as_ref().is_some_and(|tenant| tenants.include(tenant)) && within(item)
        };
        self.items.iter().filter(own).map(|item| item.text.as_str()).collect::<String>().into()
    }
}

/// The latest news, and the view up to which there are none beyond them.
pub struct FleetNews {
    latest: watch::Sender<Option<Arc<News>>>,
    quiet: Mutex<Option<(u64, Arc<View>)>>,
}

impl Default for FleetNews {
    fn default() -> Self {
        Self { latest: watch::Sender::new(None), quiet: Mutex::default() }
    }
}

impl FleetNews {
    /// Told of whatever comes from now on.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<News>>> {
        self.latest.subscribe()
    }

    /// A newer view that says the same to whoever has seen this one, so that nobody keeps an old one for long.
    pub fn refreshed(&self, seen: &Arc<View>) -> Arc<View> {
        let quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        match &*quiet {
            Some((since, view))
                if *since <= seen.applied_index && seen.applied_index <= view.applied_index =>
            {
                view.clone()
            }
            _ => seen.clone(),
        }
    }
}

/// Works out what is new after every commit, until the process stops. With nobody to tell it looks at nothing.
pub async fn follow(app: Arc<App>) {
    let mut views = Views::new(&app);
    let mut since = views.seen().applied_index;
    while let Some((before, after)) = views.next().await {
        let news = &app.fleet.news;
        let followed = news.latest.receiver_count() > 0;
        let made = match followed {
            true => Some(News::between(&app, since, &before, after.clone()).await),
            false => None,
        };
        let told = made.filter(|made| !made.items.is_empty() || rights_changed(&before, &after));
        if told.is_some() || !followed {
            since = after.applied_index;
        }
        *news.quiet.lock().unwrap_or_else(PoisonError::into_inner) = Some((since, after));
        if let Some(told) = told {
            news.latest.send_replace(Some(Arc::new(told)));
        }
    }
}

/// Whether someone may have lost the right to be told: then everyone is asked.
fn rights_changed(before: &View, after: &View) -> bool {
    let (old, new) = (&before.state, &after.state);
    old.denials != new.denials
        || !old.operators.ptr_eq(&new.operators)
        || !old.operator_keys.ptr_eq(&new.operator_keys)
}

async fn difference(app: &App, before: &View, after: &View) -> Vec<EventText> {
    let mut items = Vec::new();
    let mut tell = |tenant: Option<&TenantId>,
                    vcluster: Option<&VclusterId>,
                    name: &str,
                    data: Result<String, serde_json::Error>| {
        if let Ok(json) = data {
            let text = format!("event: {name}\nid: {}\ndata: {json}\n\n", after.applied_index);
            items.push(EventText { tenant: tenant.cloned(), vcluster: vcluster.cloned(), text });
        }
    };
    let changed = changed(before, after);
    let known = everywhere::listed(app, changed.iter().map(|node| &node.id)).await;
    for node in changed {
        let item = NodeItem::of(&after.state, &node, &known.live(&node.id));
        let at = Some(after.state.at.to_string());
        let told = serde_json::to_string(&NodeEvent { at, item });
        tell(Some(&node.tenant), node.vcluster.as_ref(), "node", told);
    }
    for (change, alert) in alert_changes::changes(&before.state, &after.state) {
        let tenant = match &alert.node {
            // An alert about a node that is gone is nobody's any more.
            Some(node) => match after.state.nodes.get(node) {
                Some(node) => Some(&node.tenant),
                None => continue,
            },
            None => alert.tenant.as_ref(),
        };
        tell(tenant, None, "alert", serde_json::to_string(&AlertEvent::of(change, alert)));
    }
    items
}

/// Nodes that look different now.
fn changed(before: &View, after: &View) -> Vec<Arc<Node>> {
    // When it was last seen is no news: every node would be told of every few minutes.
    let shown = |view: &View, node: &Node| NodeItem {
        last_seen: None,
        ..NodeItem::of(&view.state, node, &NodeLiveness::default())
    };
    let known = |view: &View, id: &NodeId| view.state.nodes.get(id).cloned();
    let nodes = touched(before, after).into_iter().filter_map(|id| known(after, id));
    nodes
        .filter(|node| known(before, &node.id).is_none_or(|old| shown(before, &old) != shown(after, node)))
        .collect()
}

/// Nodes that may look different now: by themselves, or by an alert about them, which is their health.
fn touched<'a>(before: &'a View, after: &'a View) -> BTreeSet<&'a NodeId> {
    let changed = before.state.nodes.diff(&after.state.nodes).filter_map(|item| match item {
        DiffItem::Add(id, _) | DiffItem::Update { new: (id, _), .. } => Some(id),
        DiffItem::Remove(..) => None,
    });
    let alerts =
        alert_changes::changes(&before.state, &after.state).filter_map(|(_, alert)| alert.node.as_ref());
    changed.chain(alerts).collect()
}
