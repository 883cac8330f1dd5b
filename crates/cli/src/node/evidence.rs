//! What a host last reported of itself, for people: a part of `enlist node show`.

use super::show::size;
use crate::fields::Fields;
use crate::screen::Screen;
use api::rest::nodes::{AttemptItem, EvidenceItem, FreeSpaceItem, NodeItem};

/// What `item` says already is left out.
pub fn text(report: &EvidenceItem, item: &NodeItem, screen: Screen) -> String {
    let other_serial = report.cert_serial.as_ref().filter(|serial| item.cert_serial.as_ref() != Some(serial));
    let attempt = |attempt: &Option<AttemptItem>| attempt.as_ref().map(|tried| outcome(tried, screen));
    let drift = (report.drift_count > 0).then(|| format!("found {} times", report.drift_count));
    let other_time = Some(&report.at).filter(|at| item.last_seen.as_ref() != Some(at));
    // Where each place is named, the agent's own is among them.
    // None is told of a host that keeps nothing on a disk.
    let is_told = report.free_space.is_empty() && report.disk_free_bytes > 0;
    let disk = is_told.then(|| size(report.disk_free_bytes));
    let mut fields = Fields::new()
        .with_some("reported", other_time.map(|at| screen.full(at)).as_deref())
        .with_some("problem", report.class.as_ref().map(|class| problem(class, report)).as_deref())
        .with_some("correlation id", report.correlation_id.as_deref())
        .with_some(
            "uses certificate",
            other_serial.map(|serial| certificate(serial, report, screen)).as_deref(),
        )
        .with_some("last renewal", attempt(&report.last_renewal).as_deref())
        .with_some("last recovery", attempt(&report.last_recovery).as_deref())
        .with("recovery", if report.recovery_ready { "ready" } else { "not ready" })
        .with_some("endpoint profile", report.endpoint_profile_id.as_deref())
        .with_some("terminal URL", report.terminal_url.as_deref())
        .with_some("profile drift", drift.as_deref())
        .with("clock offset", &format!("{} ms", report.clock_offset_ms))
        .with_some("diagnostics", diagnostics(report))
        .with_some(
            "disk pressure",
            report.observability_pressure.then_some("logs or diagnostics were deleted to free space"),
        )
        .with_some("disk free", disk.as_deref());
    for place in &report.free_space {
        fields = fields.with("free space", &free(place));
    }
    fields.text_on(screen)
}

fn problem(class: &str, report: &EvidenceItem) -> String {
    report.detail.as_ref().map_or_else(|| class.to_owned(), |detail| format!("{class}: {detail}"))
}

fn certificate(serial: &str, report: &EvidenceItem, screen: Screen) -> String {
    let until = report.cert_not_after.as_ref().map(|end| format!(" until {}", screen.full(end)));
    format!("{serial}{}", until.unwrap_or_default())
}

fn outcome(tried: &AttemptItem, screen: Screen) -> String {
    let at = tried.at.as_ref().map_or_else(|| "at an unknown time".to_owned(), |at| screen.full(at));
    let outcome = match (tried.ok, &tried.code) {
        (true, _) => "ok".to_owned(),
        (false, Some(code)) => format!("failed: {code}"),
        (false, None) => "failed".to_owned(),
    };
    let known_as = tried.correlation_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    format!("{at} {outcome}{known_as}")
}

fn diagnostics(report: &EvidenceItem) -> Option<&'static str> {
    report.diagnostic_writable.map(|writable| if writable { "can be written" } else { "cannot be written" })
}

fn free(place: &FreeSpaceItem) -> String {
    let path = place.path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default();
    format!("{} {}{path}", place.name, size(place.available_bytes))
}
