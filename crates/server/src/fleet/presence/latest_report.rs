//! What a node last said of itself, and what has been done about it.

use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::{Node, Report};
use std::sync::Arc;

/// It is written down, and looked at, no more often than this: a host that says something else every second fills
/// neither the log nor the trail.
const REST: Span = Span::from_secs(10);

#[derive(Default)]
pub struct LatestReport {
    last: Option<Arc<Report>>,
    /// Something new in it is not written down yet, or nobody has looked at it.
    unwritten: bool,
    unlooked: bool,
    written_at: Option<Timestamp>,
    looked_at: Option<Timestamp>,
}

impl LatestReport {
    pub fn last(&self) -> Option<&Arc<Report>> {
        self.last.as_ref()
    }

    /// Whether something about it is still to be done.
    pub fn is_pending(&self) -> bool {
        self.unwritten || self.unlooked
    }

    /// Whether something new in it is not in the registry yet.
    pub fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// It could not be written down.
    pub fn not_written(&mut self) {
        self.unwritten = self.last.is_some();
    }

    /// What follows from it could not be recorded.
    pub fn not_looked(&mut self) {
        self.unlooked = self.last.is_some();
    }

    pub fn is_unlooked(&self) -> bool {
        self.unlooked
    }

    /// Takes what the host says now, and tells whether it is new. The first report after its enrollment, and after a
    /// start of this process, always is.
    pub fn hear(&mut self, node: &Node, report: Report, tolerance: Span) -> bool {
        self.last.take_if(|before| node.enrolled_at.is_some_and(|since| before.at < since));
        let before = node.newest_report(self.last.as_ref());
        let report = report.after(before.map(AsRef::as_ref));
        let news = self.last.as_ref().is_none_or(|before| report.is_news(before, tolerance));
        self.unwritten |= news;
        self.unlooked |= news;
        self.last = Some(Arc::new(report));
        news
    }

    /// What is to be written down now, if anything.
    pub fn write(&mut self, now: Timestamp) -> Option<Arc<Report>> {
        let due = self.unwritten && rested(self.written_at, now);
        due.then(|| (self.unwritten, self.written_at) = (false, Some(now)))?;
        self.last.clone()
    }

    /// What is to be looked at now, if anything.
    pub fn look(&mut self, now: Timestamp) -> Option<Arc<Report>> {
        let due = self.unlooked && rested(self.looked_at, now);
        due.then(|| (self.unlooked, self.looked_at) = (false, Some(now)))?;
        self.last.clone()
    }
}

fn rested(last: Option<Timestamp>, now: Timestamp) -> bool {
    last.is_none_or(|last| last.plus(REST) <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::host::Class;
    use lifecycle::names::{NodeId, ProfileName, TenantId};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    fn node() -> Node {
        let id = NodeId::parse("n1").expect("a name");
        Node::registered(id, TenantId::default_tenant(), ProfileName::default_profile(), at(0))
    }

    fn says(latest: &mut LatestReport, node: &Node, class: Option<Class>, when: Timestamp) -> (bool, bool) {
        latest.hear(node, Report { class, ..Report::blank(when) }, Span::from_minutes(5));
        (latest.write(when).is_some(), latest.look(when).is_some())
    }

    #[test]
    fn what_is_new_is_written_and_looked_at_and_not_too_often() {
        let (mut latest, node, full) = (LatestReport::default(), node(), Some(Class::DiskFull));
        assert_eq!(says(&mut latest, &node, full, at(1)), (true, true));
        assert_eq!(says(&mut latest, &node, full, at(20)), (false, false), "the same again");
        assert_eq!(says(&mut latest, &node, None, at(21)), (true, true));
        assert_eq!(says(&mut latest, &node, full, at(22)), (false, false), "too early");
        assert_eq!(says(&mut latest, &node, None, at(23)), (false, false));
        assert!(latest.is_pending());
        assert_eq!(says(&mut latest, &node, full, at(31)), (true, true), "the last report");
        assert!(!latest.is_pending());
        says(&mut latest, &node, full, at(40));
        assert_eq!(latest.last().map(|report| (report.at, report.since)), Some((at(40), at(31))));
    }

    #[test]
    fn the_word_of_an_earlier_life_is_forgotten() {
        let (mut latest, full) = (LatestReport::default(), Some(Class::DiskFull));
        says(&mut latest, &node(), full, at(1));
        let anew = Node { enrolled_at: Some(at(50)), ..node() };
        assert_eq!(says(&mut latest, &anew, full, at(51)), (true, true));
        assert_eq!(latest.last().map(|report| report.since), Some(at(51)));
    }
}
