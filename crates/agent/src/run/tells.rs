//! What the daemon tells: the control plane on the standing connection, people and programs on this host.

use api::agent::{Attempt as WireAttempt, Evidence, live_up};

use super::daemon::Daemon;
use crate::clock;
use crate::status::{Attempt, Channel, Disk, State, Status};
use crate::store::disk;

impl Daemon {
    /// Answers to orders, and what has changed about this host since it was last said.
    pub(super) fn say_what_is_new(&mut self) {
        let evidence = self.evidence();
        let Some(channel) = &mut self.channel else { return };
        let mut said = Ok(());
        if channel.said.as_ref().is_none_or(|before| news(before) != news(&evidence)) {
            said = channel.say(live_up::Message::Evidence(evidence.clone()));
            channel.said = Some(evidence);
        }
        while let (Ok(()), Some(done)) = (&said, self.answers.last()) {
            said = channel.say(live_up::Message::OrderDone(done.clone()));
            if said.is_ok() {
                self.answers.pop();
            }
        }
        if let Err(error) = said {
            self.gone(error.code(), &error.to_string());
        }
    }

    fn evidence(&self) -> Evidence {
        let attempt = |attempt: &Attempt| WireAttempt {
            at: attempt.at.clone(),
            ok: attempt.ok,
            code: attempt.class.clone().unwrap_or_default(),
            correlation_id: attempt.correlation_id.clone(),
        };
        Evidence {
            cert_serial: self.identity.facts.serial.to_string(),
            cert_not_after: self.identity.facts.not_after.to_string(),
            bundle_version: self.identity.bundle_version(),
            last_renewal: self.last_renewal.as_ref().map(attempt),
            clock_offset_ms: self.figures.clock_offset_ms.unwrap_or_default(),
            disk_free_bytes: Disk::of(self.dir.path()).available_bytes.unwrap_or_default(),
            ..Evidence::default()
        }
    }

    /// For `status` and for collectors of figures.
    pub(super) fn publish(&mut self) {
        let status = self.report();
        self.status.send_if_modified(|before| {
            let changed = *before != status;
            *before = status;
            changed
        });
        self.figures.connected = self.channel.is_some();
        self.figures.cert_not_after_secs = self.identity.facts.not_after.secs();
        let text = self.figures.text(&self.settings.metrics_prefix);
        let Ok(mut page) = self.page.lock() else { return };
        if *page == text {
            return;
        }
        page.clone_from(&text);
        drop(page);
        if let Some(path) = &self.settings.metrics_textfile
            && let Err(error) = disk::replace(path, text.as_bytes(), disk::PUBLIC)
        {
            let what = format!("metrics_textfile {}: {error}", path.display());
            self.say("metrics_not_written", &what);
        }
    }

    fn report(&self) -> Status {
        let mut status = Status::of(self.dir.path(), &self.identity, clock::now());
        status.channel = match (&self.channel, &self.candidate) {
            (None, _) => Channel::Down,
            (Some(_), Some(_)) => Channel::Switching,
            (Some(_), None) => Channel::Up,
        };
        status.last_renewal.clone_from(&self.last_renewal);
        status.clock_offset_ms = self.figures.clock_offset_ms;
        let standing = self.standing.as_ref();
        if self.revoked {
            status.state = State::Revoked;
        } else if status.state == State::Enrolled {
            status.state = match standing.map(|standing| standing.state.as_str()) {
                Some("active") => State::Active,
                Some("inactive") => State::Inactive,
                _ => State::Enrolled,
            };
        }
        let more = [
            // The disk may say so already.
            ("revoked", self.revoked && !status.reasons.iter().any(|reason| reason == "revoked")),
            ("channel_down", self.channel.is_none() && !self.revoked),
            ("draining", standing.is_some_and(|standing| standing.draining)),
            ("quarantined", standing.is_some_and(|standing| standing.quarantined)),
        ];
        status.reasons.extend(more.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word.to_owned()));
        status.ready = status.reasons.is_empty();
        status
    }
}

/// What is worth a message of its own: not the clock, not the space on the disk, which change all the time.
fn news(evidence: &Evidence) -> (&str, u64, &Option<WireAttempt>) {
    (&evidence.cert_serial, evidence.bundle_version, &evidence.last_renewal)
}
