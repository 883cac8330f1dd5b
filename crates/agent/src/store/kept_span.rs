//! A span that the control plane has said, in milliseconds, in a file of its own: known after a restart, when nobody may
//! be there to say it again.

use std::io;
use std::path::Path;

use lifecycle::names::Span;

use super::disk;

pub fn read(file: &Path) -> Option<Span> {
    let bytes = disk::read(file).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok().filter(|millis| *millis > 0).map(Span::from_millis)
}

/// Nothing is written if it is known already, which is the rule.
pub fn keep(file: &Path, span: Span) -> io::Result<()> {
    if read(file) == Some(span) {
        return Ok(());
    }
    disk::replace(file, format!("{}\n", span.millis()).as_bytes(), disk::PUBLIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a_span");
        assert_eq!(read(&file), None);
        keep(&file, Span::from_secs(7)).unwrap();
        assert_eq!(read(&file), Some(Span::from_secs(7)));
        std::fs::write(&file, "soon").unwrap();
        assert_eq!(read(&file), None);
    }
}
