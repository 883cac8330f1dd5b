//! What a host last said of itself, for people: a part of `enlist node show`.

use super::show::size;
use crate::fields::Fields;
use api::rest::nodes::{AttemptItem, EvidenceItem, FreeSpaceItem};

pub fn text(said: &EvidenceItem) -> String {
    let mut fields = Fields::new()
        .with("last report", &said.at)
        .with_some("failure", said.class.as_ref().map(|class| trouble(class, said)).as_deref())
        .with_some("correlation", said.correlation_id.as_deref())
        .with_some(
            "certificate",
            said.cert_serial.as_ref().map(|serial| certificate(serial, said)).as_deref(),
        )
        .with("last renewal", &attempt(said.last_renewal.as_ref()))
        .with("last recovery", &attempt(said.last_recovery.as_ref()))
        .with("recovery", if said.recovery_ready { "ready" } else { "not ready" })
        .with("profile", said.endpoint_profile_id.as_deref().unwrap_or("-"))
        .with_some("terminal", said.terminal_url.as_deref())
        .with("drift", &format!("found {} times", said.drift_count))
        .with("clock offset", &format!("{} ms", said.clock_offset_ms))
        .with("diagnostics", diagnostics(said))
        .with_some(
            "pressure",
            said.observability_pressure.then_some("logs or diagnostics were deleted to free space"),
        )
        .with("disk free", &size(said.disk_free_bytes));
    for place in &said.free_space {
        fields = fields.with("free space", &free(place));
    }
    fields.text()
}

fn trouble(class: &str, said: &EvidenceItem) -> String {
    said.detail.as_ref().map_or_else(|| class.to_owned(), |detail| format!("{class}: {detail}"))
}

fn certificate(serial: &str, said: &EvidenceItem) -> String {
    said.cert_not_after.as_ref().map_or_else(|| serial.to_owned(), |end| format!("{serial} until {end}"))
}

fn attempt(attempt: Option<&AttemptItem>) -> String {
    let Some(attempt) = attempt else { return "-".to_owned() };
    let at = attempt.at.as_deref().unwrap_or("at an unknown time");
    let came_of_it = match (attempt.ok, &attempt.code) {
        (true, _) => "ok".to_owned(),
        (false, Some(code)) => format!("failed: {code}"),
        (false, None) => "failed".to_owned(),
    };
    let known_as = attempt.correlation_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    format!("{at} {came_of_it}{known_as}")
}

fn diagnostics(said: &EvidenceItem) -> &'static str {
    match said.diagnostic_writable {
        Some(true) => "can be written",
        Some(false) => "cannot be written",
        None => "-",
    }
}

fn free(place: &FreeSpaceItem) -> String {
    let path = place.path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default();
    format!("{} {}{path}", place.name, size(place.available_bytes))
}
