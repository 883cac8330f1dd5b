//! Who is there now: live streams, last signs of life, and what looks like a copied identity.
//!
//! This is memory of one process. What must outlive it is written down by the reconciler in bulk; what other replicas
//! remember is asked for in `everywhere.rs`.

pub mod at_replica;
mod latest_report;
pub mod suspicion;

use crate::edge::keepalive::Keepalive;
use crate::edge::node_peer::ShownIdentity;
use crate::fleet::overlays::claim::ClaimAllowance;
use crate::fleet::overlays::tap::OverlayTap;
use crate::fleet::sessions::SessionLines;
use api::rest::nodes::SvidInUse;
use at_replica::{HeldStream, NodeAtReplica, OwnStream, ReportWanted};
use latest_report::LatestReport;
use lifecycle::names::{Label, NodeId, Serial, Source, Span, Timestamp, TokenId};
use lifecycle::registry::{
    Node, NodeConnection, Owner, Report, Sighting, are_two_hosts, is_earlier_start, remember_start,
    remembered_starts,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use suspicion::{CopySign, Suspicion};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Live streams that one node may have.
const STREAMS: usize = 4;
/// One suspicion about a node in this time.
const SUSPICION: Span = Span::from_minutes(1);
/// Suspicions that wait for the reconciler.
const SUSPICIONS: usize = 256;

#[derive(Default)]
pub struct Presence {
    nodes: Mutex<HashMap<NodeId, NodePresence>>,
    suspicions: Mutex<Vec<Suspicion>>,
    /// Nodes that have said something new of themselves, until somebody looks.
    reporting: Mutex<BTreeSet<NodeId>>,
    /// How many streams were opened: they are numbered from one.
    opened: AtomicU64,
}

/// What is known of a node beyond the registry.
#[derive(Default)]
struct NodePresence {
    seen: Option<Timestamp>,
    /// What the registry knows of it.
    written: Option<Timestamp>,
    /// Something beside the time is new.
    news: bool,
    source: Option<Source>,
    /// Whether it showed an SVID when it authenticated last.
    by_svid: bool,
    /// The latest starts of its agent, the newest last.
    instances: Vec<Label>,
    bundle: Option<u64>,
    agent_version: Option<Label>,
    /// What it last said of itself.
    report: LatestReport,
    /// The recovery token that is on its disk.
    recovery_kept: Option<TokenId>,
    /// When it last said that something was wrong with it.
    unwell: Option<Timestamp>,
    /// How long it may be silent by what it has heard of the policy.
    grace: Option<Span>,
    streams: Vec<Arc<Stream>>,
    suspected: Option<Timestamp>,
    /// What its sessions may write into the audit trail, once it has reported any.
    session_lines: Option<SessionLines>,
    /// How often it may still change its place in the overlay, once it has.
    claims: Option<ClaimAllowance>,
    /// And only where it is reached.
    moves: Option<ClaimAllowance>,
}

/// One live stream.
pub struct Stream {
    id: u64,
    pub serial: Serial,
    /// What it shows, if that is an SVID.
    svid: Option<Arc<SvidInUse>>,
    source: Source,
    since: Timestamp,
    /// Of its connection: when something was last read from it.
    keepalive: Option<Arc<Keepalive>>,
    /// Only the control plane speaks on it: what is read from its connection is the host's sign of life.
    listens: bool,
    /// What it is told of its peers.
    tap: Option<Arc<OverlayTap>>,
    /// Something about the node has changed.
    pub wake: Notify,
}

impl Stream {
    /// Which certificate it shows, and since when.
    fn shown(&self) -> (&Serial, Timestamp) {
        (&self.serial, self.since)
    }

    /// Whether one host has opened both: they are on one connection.
    fn shares_connection(&self, other: &Stream) -> bool {
        let both = self.keepalive.as_ref().zip(other.keepalive.as_ref());
        both.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// That of its connection, if its host says nothing on it.
    fn listened(&self) -> Option<&Arc<Keepalive>> {
        self.keepalive.as_ref().filter(|_| self.listens)
    }

    /// How long nothing was read from its connection. A living host answers PINGs.
    fn silence(&self, now: Timestamp) -> Span {
        self.keepalive.as_ref().map_or(Span::from_secs(0), |keepalive| now.since(keepalive.last_read(now)))
    }
}

impl NodePresence {
    /// Takes over the signs of life of the streams on which the host does not speak.
    fn listen(&mut self, now: Timestamp) {
        let read = self.streams.iter().filter_map(|stream| stream.listened()?.last_read(now).into());
        self.seen = self.seen.max(read.max());
    }

    /// Whether the host is there by an SVID: one of its streams shows one or, without a stream, its latest request.
    fn lives_by_svid(&self) -> bool {
        match self.streams.is_empty() {
            true => self.by_svid,
            false => self.streams.iter().any(|stream| stream.svid.is_some()),
        }
    }

    /// How long a connected host may be silent by what it was told, or by the PINGs that it gets.
    fn may_be_silent(&self) -> Option<Span> {
        let told = self.grace.filter(|_| !self.streams.is_empty());
        let pinged = self.streams.iter().filter_map(|stream| stream.listened());
        told.max(pinged.map(|keepalive| keepalive.longest_silence()).max())
    }
}

#[derive(Debug)]
pub struct TooMany;

/// What a host says when it opens a stream.
pub struct StreamOpening<'a> {
    pub node: &'a NodeId,
    pub shown: &'a ShownIdentity,
    pub source: Source,
    pub instance: Label,
    pub agent_version: Option<Label>,
    /// The trust bundle that it has stored, if it says that.
    pub bundle: Option<u64>,
    pub recovery_kept: Option<TokenId>,
    /// The starts of its agent that the registry remembers.
    pub remembered: &'a [Label],
    /// That of its connection.
    pub keepalive: Option<Arc<Keepalive>>,
    /// The host says nothing on this stream: the signs of life of its connection count.
    pub listens: bool,
    /// By which its host is told of its peers, if it may be.
    pub tap: Option<Arc<OverlayTap>>,
}

impl Presence {
    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeId, NodePresence>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An authenticated request.
    pub fn seen(&self, node: &NodeId, source: Source, at: Timestamp) {
        let mut nodes = self.nodes();
        let known = nodes.entry(node.clone()).or_default();
        (known.seen, known.source) = (known.seen.max(Some(at)), Some(source));
    }

    /// What a node authenticated with.
    pub fn showed(&self, node: &NodeId, shown: &ShownIdentity) {
        if let Some(known) = self.nodes().get_mut(node) {
            known.by_svid = shown.svid().is_some();
        }
    }

    /// A new live stream; the newest of a node gets its orders.
    pub fn open(&self, opening: StreamOpening<'_>, at: Timestamp) -> Result<Arc<Stream>, TooMany> {
        let mut nodes = self.nodes();
        let known = nodes.entry(opening.node.clone()).or_default();
        if known.streams.len() >= STREAMS {
            return Err(TooMany);
        }
        // The node may have been connected to another replica since it was last heard here.
        known.instances = remembered_starts(opening.remembered, &known.instances);
        if is_earlier_start(&known.instances, &opening.instance) {
            let sign = CopySign::EarlierStart { from: opening.source, newest: known.source };
            self.suspect(opening.node, known, sign, at);
        } else {
            remember_start(&mut known.instances, &opening.instance);
        }
        (known.seen, known.source, known.news) = (known.seen.max(Some(at)), Some(opening.source), true);
        known.by_svid = opening.shown.svid().is_some();
        known.bundle = opening.bundle;
        known.recovery_kept = opening.recovery_kept;
        known.agent_version = opening.agent_version.or(known.agent_version.take());
        let stream = Arc::new(Stream {
            id: self.opened.fetch_add(1, Ordering::Relaxed) + 1,
            serial: opening.shown.serial().clone(),
            svid: opening.shown.svid().cloned(),
            source: opening.source,
            since: at,
            keepalive: opening.keepalive,
            listens: opening.listens,
            tap: opening.tap,
            wake: Notify::new(),
        });
        known.streams.push(stream.clone());
        Ok(stream)
    }

    pub fn close(&self, node: &NodeId, stream: &Stream) {
        if let Some(known) = self.nodes().get_mut(node) {
            known.streams.retain(|open| open.id != stream.id);
            // The one before may be the newest now.
            if let Some(newest) = known.streams.last() {
                newest.wake.notify_one();
            }
        }
    }

    pub fn is_newest(&self, node: &NodeId, stream: &Stream) -> bool {
        self.nodes()
            .get(node)
            .and_then(|known| known.streams.last())
            .is_some_and(|newest| newest.id == stream.id)
    }

    /// What a host said of itself on its live stream.
    pub fn reported(&self, node: &Node, report: Report, tolerance: Span) {
        let mut nodes = self.nodes();
        let Some(known) = nodes.get_mut(&node.id) else { return };
        known.seen = known.seen.max(Some(report.at));
        if report.class.is_some() {
            known.unwell = Some(report.at);
        }
        if known.report.hear(node, report, tolerance) {
            self.reporting().insert(node.id.clone());
        }
    }

    /// The newest trust bundle that a host is known to have stored; zero if it has stored something else.
    pub fn stored(&self, node: &NodeId, bundle: u64) {
        if let Some(known) = self.nodes().get_mut(node)
            && known.bundle != Some(bundle)
        {
            (known.bundle, known.news) = (Some(bundle), true);
        }
    }

    fn reporting(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some of those who have said something new and had their rest, each with its latest report.
    pub fn reports(&self, now: Timestamp, most: usize) -> Vec<(NodeId, Arc<Report>)> {
        let mut nodes = self.nodes();
        let mut due = Vec::new();
        self.reporting().retain(|id| {
            let Some(known) = nodes.get_mut(id) else { return false };
            if due.len() < most {
                due.extend(known.report.look(now).map(|report| (id.clone(), report)));
            }
            known.report.is_unlooked()
        });
        due
    }

    /// The latest report of a node, if this process has received one.
    pub fn report(&self, node: &NodeId) -> Option<Arc<Report>> {
        self.nodes().get(node)?.report.last().cloned()
    }

    /// A node reports that a recovery token is on its disk.
    pub fn kept(&self, node: &NodeId, token: TokenId) {
        if let Some(known) = self.nodes().get_mut(node)
            && known.recovery_kept != Some(token)
        {
            (known.recovery_kept, known.news) = (Some(token), true);
        }
    }

    /// Since when a node has been there on one stream and well: it has said so, and nothing else since. None when
    /// it has not, or has been silent for too long.
    pub fn well_since(&self, node: &NodeId, silence: Span, now: Timestamp) -> Option<Timestamp> {
        let nodes = self.nodes();
        let known = nodes.get(node)?;
        let newest = known.streams.last()?;
        let report = known.report.last()?;
        let well = report.at >= newest.since && report.class.is_none();
        let heard = known.seen.is_some_and(|seen| seen.plus(silence) > now);
        (well && heard).then(|| known.unwell.map_or(newest.since, |unwell| unwell.max(newest.since)))
    }

    /// A host has heard how long it may be silent.
    pub fn follows(&self, node: &NodeId, grace: Span) {
        if let Some(known) = self.nodes().get_mut(node) {
            known.grace = Some(grace);
        }
    }

    /// The last sign of life that this process knows of, and how long a connected host may be silent for all it knows.
    pub fn silence(&self, node: &NodeId) -> (Option<Timestamp>, Option<Span>) {
        self.nodes().get(node).map_or((None, None), |known| (known.seen, known.may_be_silent()))
    }

    /// The last sign of life that this process knows of.
    pub fn last_seen(&self, node: &NodeId) -> Option<Timestamp> {
        self.nodes().get(node)?.seen
    }

    /// All that this process knows of a node, for those who ask; none if it knows nothing.
    pub fn at_replica(&self, node: &NodeId, wanted: ReportWanted) -> Option<NodeAtReplica> {
        let nodes = self.nodes();
        let known = nodes.get(node)?;
        let oldest = known.streams.first();
        let report = known.report.last().filter(|_| match wanted {
            ReportWanted::Latest => true,
            ReportWanted::Unwritten => known.report.is_unwritten(),
            ReportWanted::None => false,
        });
        Some(NodeAtReplica {
            node: node.clone(),
            last_seen: known.seen,
            source: known.source,
            connection: oldest.map(|stream| NodeConnection { since: stream.since, from: stream.source }),
            may_be_silent: known.may_be_silent(),
            report: report.cloned(),
            overlay_told: known.streams.iter().filter_map(|stream| stream.tap.as_ref()?.told()).max(),
            svid: known.streams.last().and_then(|stream| stream.svid.clone()),
        })
    }

    /// Streams that were opened after this one (by its number), and that long ago: the first of them.
    pub fn streams_after(&self, number: u64, open_for: Span, now: Timestamp, most: usize) -> Vec<OwnStream> {
        if self.opened.load(Ordering::Relaxed) == number {
            return Vec::new();
        }
        let nodes = self.nodes();
        let streams =
            nodes.iter().flat_map(|(node, known)| known.streams.iter().map(move |open| (node, open)));
        let due = streams.filter(|(_, stream)| stream.id > number && stream.since.plus(open_for) <= now);
        let mut due: Vec<(&NodeId, &Arc<Stream>)> = due.collect();
        due.sort_unstable_by_key(|(_, stream)| stream.id);
        due.into_iter().take(most).map(|(node, stream)| OwnStream::of(node, stream, now)).collect()
    }

    /// One stream as it is now; none once it is closed.
    pub fn own_stream(&self, node: &NodeId, number: u64, now: Timestamp) -> Option<OwnStream> {
        let nodes = self.nodes();
        let stream = nodes.get(node)?.streams.iter().find(|stream| stream.id == number)?;
        Some(OwnStream::of(node, stream, now))
    }

    /// The streams of a node on which this certificate is shown.
    pub fn held(&self, node: &NodeId, serial: &Serial, now: Timestamp) -> Vec<HeldStream> {
        let nodes = self.nodes();
        let streams = nodes.get(node).into_iter().flat_map(|known| &known.streams);
        streams
            .filter(|stream| stream.serial == *serial)
            .map(|open| HeldStream::of(node, open, now))
            .collect()
    }

    pub fn connected(&self) -> usize {
        self.nodes().values().filter(|known| !known.streams.is_empty()).count()
    }

    /// How many lines of the audit trail the sessions of a node may make now.
    pub fn session_lines(&self, node: &NodeId, now: Timestamp) -> u32 {
        let mut nodes = self.nodes();
        let known = nodes.entry(node.clone()).or_default();
        known.session_lines.get_or_insert_with(|| SessionLines::new(now)).left(now)
    }

    pub fn spend_session_lines(&self, node: &NodeId, lines: u32) {
        let mut nodes = self.nodes();
        if let Some(known) = nodes.get_mut(node).and_then(|known| known.session_lines.as_mut()) {
            known.spend(lines);
        }
    }

    /// Whether a node may change its place in the overlay now; else when it may.
    pub fn spend_claim(&self, node: &NodeId, now: Instant) -> Result<(), Instant> {
        let mut nodes = self.nodes();
        let known = nodes.entry(node.clone()).or_default();
        known.claims.get_or_insert_with(|| ClaimAllowance::new(now)).spend(now)
    }

    /// The same for a change of its endpoint alone: each makes all its peers send there.
    pub fn spend_move(&self, node: &NodeId, now: Instant) -> Result<(), Instant> {
        let mut nodes = self.nodes();
        let known = nodes.entry(node.clone()).or_default();
        known.moves.get_or_insert_with(|| ClaimAllowance::of_moves(now)).spend(now)
    }

    pub fn wake(&self, node: &NodeId) {
        for stream in self.nodes().get(node).into_iter().flat_map(|known| &known.streams) {
            stream.wake.notify_one();
        }
    }

    pub fn wake_all(&self) {
        self.wake_those(|_| true);
    }

    pub fn wake_those(&self, concerned: impl Fn(&NodeId) -> bool) {
        let nodes = self.nodes();
        let connected = nodes.iter().filter(|(_, known)| !known.streams.is_empty());
        for stream in connected.filter(|(id, _)| concerned(id)).flat_map(|(_, known)| &known.streams) {
            stream.wake.notify_one();
        }
    }

    /// What should be written down now: news at once, mere signs of life every so often. What is written and
    /// gone is forgotten.
    pub fn sightings(&self, now: Timestamp, every: Span) -> Vec<Sighting> {
        let mut due = Vec::new();
        self.nodes().retain(|node, known| {
            let rested = |at: Option<Timestamp>| at.is_none_or(|at| at.plus(every) <= now);
            known.listen(now);
            let report = known.report.write(now);
            let overdue = known.seen > known.written && rested(known.written);
            if let Some(seen) = known.seen
                && (known.news || report.is_some() || overdue)
            {
                let streamed = !known.streams.is_empty() || known.news;
                due.push(Sighting {
                    node: node.clone(),
                    seen,
                    instance: known.instances.last().filter(|_| streamed).cloned(),
                    bundle: known.bundle,
                    agent_version: known.agent_version.clone(),
                    recovery_kept: known.recovery_kept,
                    report,
                    by_svid: known.lives_by_svid(),
                });
                (known.written, known.news) = (known.seen, false);
            }
            !known.streams.is_empty()
                || known.report.is_pending()
                || known.written < known.seen
                || !rested(known.seen.max(known.suspected))
                || known.session_lines.as_mut().is_some_and(|lines| !lines.is_full(now))
                || known.claims.as_mut().is_some_and(|claims| !claims.is_full(Instant::now()))
                || known.moves.as_mut().is_some_and(|moves| !moves.is_full(Instant::now()))
        });
        due
    }

    /// These could not be written down: they are due again.
    pub fn not_written(&self, sightings: &[Sighting]) {
        let mut nodes = self.nodes();
        for sighting in sightings {
            let known = nodes.entry(sighting.node.clone()).or_default();
            known.seen = known.seen.max(Some(sighting.seen));
            known.news = true;
            if sighting.report.is_some() {
                known.report.not_written();
            }
        }
    }

    /// What follows from the latest report of a node could not be recorded: it is looked at again.
    pub fn not_looked(&self, node: &NodeId) {
        if let Some(known) = self.nodes().get_mut(node) {
            known.report.not_looked();
            self.reporting().insert(node.clone());
        }
    }

    /// Two streams with one certificate that have been open together for too long.
    pub fn find_doubles(&self, now: Timestamp) {
        for (node, known) in self.nodes().iter_mut() {
            let double = known.streams.iter().enumerate().find_map(|(at, one)| {
                let mut later = known.streams.iter().skip(at + 1);
                let other = later.find(|other| {
                    !one.shares_connection(other) && are_two_hosts(one.shown(), other.shown(), now)
                })?;
                Some((one.source, other.source))
            });
            if let Some((one, other)) = double {
                self.suspect(node, known, CopySign::TwoStreams { one, other, replicas: None }, now);
            }
        }
    }

    /// A certificate came back whose successor has long taken over.
    pub fn suspect_superseded(&self, owner: &Owner, serial: &Serial, source: Option<Source>, at: Timestamp) {
        let Owner::Node(node) = owner else { return };
        let mut nodes = self.nodes();
        let known = nodes.entry(node.clone()).or_default();
        let sign = CopySign::Superseded { serial: serial.clone(), from: source, spoke_from: known.source };
        self.suspect(node, known, sign, at);
    }

    /// A stream here and one at another replica show one certificate, and are of two hosts.
    pub fn suspect_two_streams(&self, node: &NodeId, sign: CopySign, at: Timestamp) {
        let mut nodes = self.nodes();
        let known = nodes.entry(node.clone()).or_default();
        self.suspect(node, known, sign, at);
    }

    fn suspect(&self, node: &NodeId, known: &mut NodePresence, sign: CopySign, at: Timestamp) {
        if known.suspected.is_some_and(|last| last.plus(SUSPICION) > at) {
            return;
        }
        if self.wait_for_reconciler(Suspicion { node: node.clone(), sign, heard: known.seen }) {
            known.suspected = Some(at);
        }
    }

    /// Whether there was room for it.
    fn wait_for_reconciler(&self, suspicion: Suspicion) -> bool {
        let mut suspicions = self.suspicions.lock().unwrap_or_else(PoisonError::into_inner);
        let room = suspicions.len() < SUSPICIONS;
        if room {
            suspicions.push(suspicion);
        }
        room
    }

    pub fn suspicions(&self) -> Vec<Suspicion> {
        std::mem::take(&mut *self.suspicions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One that could not be raised is raised later.
    pub fn not_raised(&self, suspicion: Suspicion) {
        self.wait_for_reconciler(suspicion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::host::Class;
    use lifecycle::names::{ProfileName, TenantId};
    use lifecycle::registry::Policy;

    const START: Timestamp = Timestamp::from_secs(1_000_000);

    fn node() -> NodeId {
        NodeId::parse("n1").expect("a name")
    }

    fn on_record() -> Node {
        let (tenant, profile) = (TenantId::default_tenant(), ProfileName::default_profile());
        Node::registered(node(), tenant, profile, START)
    }

    fn source(last: u8) -> Source {
        Source::Address(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn open(presence: &Presence, serial: &str, instance: &str, from: u8, at: Timestamp) -> Arc<Stream> {
        opened(presence, (serial, instance), from, at, None)
    }

    fn opened(
        presence: &Presence,
        (serial, instance): (&str, &str),
        from: u8,
        at: Timestamp,
        keepalive: Option<Arc<Keepalive>>,
    ) -> Arc<Stream> {
        let opening = StreamOpening {
            node: &node(),
            shown: &ShownIdentity::Certificate(Serial::parse(serial).expect("a serial")),
            source: source(from),
            instance: Label::parse(instance).expect("a label"),
            agent_version: None,
            bundle: Some(1),
            recovery_kept: None,
            remembered: &[],
            listens: keepalive.is_some(),
            tap: None,
            keepalive,
        };
        presence.open(opening, at).expect("there is a place")
    }

    fn later(seconds: u64) -> Timestamp {
        START.plus(Span::from_secs(seconds))
    }

    #[test]
    fn two_streams_with_one_certificate_look_like_a_copy_after_a_minute() {
        let presence = Presence::default();
        open(&presence, "a1", "one", 1, START);
        open(&presence, "b2", "one", 2, START);
        presence.find_doubles(later(600));
        assert!(presence.suspicions().is_empty(), "two certificates: a change from one to the next");
        let second = open(&presence, "a1", "one", 3, later(600));
        presence.find_doubles(later(659));
        assert!(presence.suspicions().is_empty(), "a dead connection is not noticed at once");
        presence.find_doubles(later(660));
        presence.find_doubles(later(661));
        let found = presence.suspicions();
        assert_eq!(found.len(), 1, "said once");
        let detail = found[0].sign.to_string();
        assert!(detail.contains("192.0.2.1") && detail.contains("192.0.2.3"), "{detail}");
        presence.close(&node(), &second);
        presence.find_doubles(later(9000));
        assert!(presence.suspicions().is_empty());
    }

    #[test]
    fn a_node_is_well_on_its_newest_stream_since_it_said_nothing_else() {
        let presence = Presence::default();
        let silence = Span::from_secs(60);
        let say = |class: &str, at| {
            let class = Class::parse(class);
            presence.reported(&on_record(), Report { class, ..Report::blank(at) }, silence);
        };
        let well = |now| presence.well_since(&node(), silence, now);
        assert_eq!(well(START), None, "never heard of");
        open(&presence, "a1", "one", 1, START);
        assert_eq!(well(START), None, "it has said nothing");
        say("", later(1));
        assert_eq!(well(later(2)), Some(START));
        say("disk_full", later(3));
        assert_eq!(well(later(3)), None);
        say("", later(4));
        assert_eq!(well(later(5)), Some(later(3)), "what was wrong begins it anew");
        open(&presence, "a1", "one", 1, later(6));
        assert_eq!(well(later(6)), None, "not a word on the new stream");
        say("", later(7));
        assert_eq!(well(later(7)), Some(later(6)));
        assert_eq!(well(later(67)), None, "silent");
    }

    #[test]
    fn a_host_that_only_listens_is_there_as_long_as_its_connection_is() {
        let presence = Presence::default();
        let policy = Policy { liveness_grace: Span::from_secs(4), ..Policy::default() };
        let keepalive = Keepalive::new(&policy);
        let one = opened(&presence, ("a1", "one"), 1, START, Some(keepalive.clone()));
        let other = opened(&presence, ("a1", "one"), 1, START, Some(keepalive));
        // The test itself takes less than a second: nothing was read for that long, and for no longer.
        presence.sightings(later(300), Span::from_secs(60));
        let (seen, may) = presence.silence(&node());
        assert!(seen.is_some_and(|seen| seen > later(299)), "{seen:?}");
        assert_eq!(may, Some(Span::from_secs(4)), "two PINGs");
        presence.find_doubles(later(300));
        assert!(presence.suspicions().is_empty(), "one connection is one host");
        presence.close(&node(), &one);
        presence.close(&node(), &other);
        presence.sightings(later(310), Span::from_secs(60));
        assert_eq!(presence.silence(&node()), (seen, None));
    }

    #[test]
    fn signs_of_life_are_written_now_and_then_and_news_at_once() {
        let presence = Presence::default();
        let every = Span::from_secs(60);
        let stream = open(&presence, "a1", "one", 1, START);
        let first = presence.sightings(START, every);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].instance.as_ref().map(Label::as_str), Some("one"));
        presence.seen(&node(), source(1), later(30));
        assert!(presence.sightings(later(30), every).is_empty());
        let written = presence.sightings(later(60), every);
        assert_eq!(written.first().map(|sighting| sighting.seen), Some(later(30)));
        presence.reported(&on_record(), Report::blank(later(61)), every);
        presence.stored(&node(), 2);
        assert_eq!(presence.sightings(later(61), every).first().and_then(|s| s.bundle), Some(2));
        presence.close(&node(), &stream);
        assert_eq!(presence.reports(later(62), 10).len(), 1);
        assert!(presence.sightings(later(9000), every).is_empty());
        assert_eq!(presence.last_seen(&node()), None, "forgotten once it is written and gone");
    }
}
