//! `liveness_grace`: how long this host may be silent, as the control plane last said. Kept, because a host that reaches
//! no server after its start turns to its recovery endpoint when this has passed.

use std::io;
use std::path::Path;

use lifecycle::names::Span;

use super::kept_span;

const NAME: &str = "liveness_grace";

pub fn read(dir: &Path) -> Option<Span> {
    kept_span::read(&dir.join(NAME))
}

pub fn keep(dir: &Path, grace: Span) -> io::Result<()> {
    kept_span::keep(&dir.join(NAME), grace)
}
