//! How far long work has come: one line on standard error that is drawn over itself and goes away at the end. Only at a
//! terminal, never with `--json`, and not for work that is done within a moment.

use crate::output::Output;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::time::Instant;

/// Work that takes no longer shows nothing; later, the line changes no more often than this.
const MOMENT: Duration = Duration::from_millis(300);

pub struct Progress {
    what: &'static str,
    shown: bool,
    began: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    /// `what` says what is being done, such as "exporting".
    pub fn new(what: &'static str, output: Output) -> Self {
        let shown = !output.is_json() && std::io::stderr().is_terminal();
        Self { what, shown, began: Instant::now(), drawn: None }
    }

    /// How far it is, in words.
    pub fn at(&mut self, far: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.shown && now - self.drawn.unwrap_or(self.began) >= MOMENT {
            self.drawn = Some(now);
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{}: {}", self.what, far());
        }
    }

    /// Takes the line away, so that something else can be printed; it comes back in time.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
            self.began = Instant::now();
        }
    }

    /// For work that says nothing of how far it is: how long it has taken.
    pub async fn during<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut ticks = tokio::time::interval(MOMENT);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => {
                    let seconds = self.began.elapsed().as_secs();
                    self.at(|| format!("{seconds} s"));
                }
            }
        }
    }
}

/// The line goes away: what follows begins at the left.
impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
