//! `liveness_grace`: how long this host may be silent, as the control plane last said. Kept, because a host that reaches
//! no server after its start turns to its recovery endpoint when this has passed.

use std::io;
use std::path::Path;

use lifecycle::names::Span;

use super::kept_span;

const NAME: &str = "liveness_grace";
/// By a longer one, a host that lost its control plane would never turn to its recovery endpoint. One that turns there early learns that
/// it needs no recovery.
pub const MOST: Span = Span::from_days(1);

pub fn read(dir: &Path) -> Option<Span> {
    kept_span::read(&dir.join(NAME)).map(|span| span.min(MOST))
}

pub fn keep(dir: &Path, grace: Span) -> io::Result<()> {
    kept_span::keep(&dir.join(NAME), grace)
}
