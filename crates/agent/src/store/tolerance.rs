//! `clock_tolerance`: how far this clock may be off, as the control plane last said, in milliseconds. Kept, because a
//! host whose clock is wrong at its start may not get to hear it.

use std::io;
use std::path::Path;

use lifecycle::names::Span;

use super::disk;

const NAME: &str = "clock_tolerance";

pub fn read(dir: &Path) -> Option<Span> {
    let bytes = disk::read(&dir.join(NAME)).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok().filter(|millis| *millis > 0).map(Span::from_millis)
}

/// Nothing is written if it is known already, which is the rule.
pub fn keep(dir: &Path, tolerance: Span) -> io::Result<()> {
    if read(dir) == Some(tolerance) {
        return Ok(());
    }
    disk::replace(&dir.join(NAME), format!("{}\n", tolerance.millis()).as_bytes(), disk::PUBLIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None);
        keep(dir.path(), Span::from_secs(7)).unwrap();
        assert_eq!(read(dir.path()), Some(Span::from_secs(7)));
        std::fs::write(dir.path().join(NAME), "soon").unwrap();
        assert_eq!(read(dir.path()), None);
    }
}
