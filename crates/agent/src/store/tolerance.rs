//! `clock_tolerance`: how far this clock may be off, as the control plane last said. Kept, because a host whose clock is
//! wrong at its start may not get to hear it.

use std::io;
use std::path::Path;

use lifecycle::names::Span;

use super::kept_span;

const NAME: &str = "clock_tolerance";
/// As much as the policy allows: by a larger one, no clock would be wrong any more.
pub const MOST: Span = Span::from_days(1);

pub fn read(dir: &Path) -> Option<Span> {
    kept_span::read(&dir.join(NAME)).map(|span| span.min(MOST))
}

pub fn keep(dir: &Path, tolerance: Span) -> io::Result<()> {
    kept_span::keep(&dir.join(NAME), tolerance)
}
