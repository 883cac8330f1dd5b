//! What the daemon tells: the control plane on the standing connection, people and programs on this host.

use api::agent::{Attempt as WireAttempt, Evidence, RecoveryKept, live_up};
use client::Error;
use lifecycle::host::{self, Class, Trouble};

use super::daemon::Daemon;
use crate::diagnostics::Record;
use crate::failed_call::{Failed, trouble};
use crate::space;
use crate::status::{Attempt, Channel, Disk, Room, State, Status};
use crate::store::disk;
use crate::{clock, code};

/// What comes from outside has an end.
const SENTENCE: usize = 600;
const REMEDY: usize = 200;
/// Why a recovery is refused that a repair bundle would not bring about either.
const NOT_NEEDED: &str = "recovery_not_needed";

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
        if let (Ok(()), Some(token_id)) = (&said, self.kept.take()) {
            said = channel.say(live_up::Message::RecoveryKept(RecoveryKept { token_id }));
        }
        while let (Ok(()), Some(done)) = (&said, self.answers.last()) {
            said = channel.say(live_up::Message::OrderDone(done.clone()));
            if said.is_ok() {
                self.answers.pop();
            }
        }
        if let Err(error) = said {
            self.gone(trouble(&error).into(), &error.to_string());
        }
    }

    fn evidence(&self) -> Evidence {
        let attempt = |attempt: &Attempt| WireAttempt {
            at: attempt.at.clone(),
            ok: attempt.ok,
            code: attempt.class.clone().unwrap_or_default(),
            correlation_id: attempt.correlation_id.clone(),
        };
        let ill = self.host.ill();
        let told = |text: &str| if ill.is_some() { text.to_owned() } else { String::new() };
        Evidence {
            cert_serial: self.identity.facts.serial.to_string(),
            cert_not_after: self.identity.facts.not_after.to_string(),
            bundle_version: self.identity.bundle_version(),
            last_renewal: self.attempts.last_renewal.as_ref().map(attempt),
            clock_offset_ms: self.host.offset().unwrap_or_default(),
            disk_free_bytes: Disk::of(self.dir.path()).available_bytes.unwrap_or_default(),
            last_recovery: self.attempts.last_recovery.as_ref().map(attempt),
            class: ill.map(|ill| ill.class.to_string()).unwrap_or_default(),
            detail: told(&self.detail),
            correlation_id: told(self.host.undertaking()),
            endpoint_profile_id: self.care.profile_id().unwrap_or_default().to_owned(),
            diagnostic_writable: self.care.diagnostic_writable,
            free_space: self.care.free_space(),
            recovery_ready: self.recovery_ready,
            drift_count: self.figures.drifts(),
            observability_pressure: self.care.pressed,
        }
    }

    /// A call failed: said, and written down.
    pub(super) fn trouble(&mut self, act: &str, failed: &Failed) {
        let servers: Vec<String> = self.servers().iter().map(ToString::to_string).collect();
        // A refusal is one server's word, and a message about one server names it.
        let tried = match &failed.error {
            Error::Unreachable { .. } if servers.len() > 1 => format!(" (tried {})", servers.join(", ")),
            _ => String::new(),
        };
        let what = format!("{act}: {}{tried}", failed.error);
        let class = self.class(failed.trouble);
        let hint = match (class, failed.error.code()) {
            (Class::RecoveryEnrollmentBlocked, NOT_NEEDED) => failed.error.hint(),
            // It recovers, or needs what a recovery takes: nothing that is said of the call itself is a way out.
            (Class::CertExpired | Class::RecoveryEnrollmentBlocked, _) => "",
            _ => failed.error.hint(),
        };
        self.write_down(class, &what, hint);
        self.say_with(act, class.as_str(), failed.error.code(), &what, hint);
    }

    /// The same of anything else that has a word of its own.
    pub(super) fn trouble_of(&mut self, class: Class, what: &str) {
        self.write_down(class, what, "");
        self.say(class.as_str(), what);
    }

    /// The word for the whole, unless that is about something on this host that a call has nothing to do with.
    pub(super) fn class(&self, trouble: Trouble) -> Class {
        let expired = self.identity.is_expired(clock::now());
        let alone = host::classify(trouble, expired, self.host.is_skewed());
        match self.host.ill().map(|ill| ill.class) {
            None | Some(Class::DiskFull | Class::EndpointProfileDrift) => alone,
            Some(class) => class,
        }
    }

    /// For whoever stands before this host when nothing else can be reached.
    pub(super) fn write_down(&mut self, class: Class, what: &str, remedy: &str) {
        let Some(ill) = self.host.ill() else { return };
        if ill.class == class {
            self.detail = what.chars().take(SENTENCE).collect();
        }
        let now = self.now();
        let left = self.host.wake(now).secs().saturating_sub(now.steady.secs());
        let next = match class {
            Class::IdentityRevokedOrFenced => {
                "checks every few minutes whether it is still revoked".to_owned()
            }
            Class::ClockSkew => "requests no certificate until the clock is right".to_owned(),
            _ => format!("tries again within {} s", left.max(1)),
        };
        let id = self.host.undertaking();
        let record = Record::new(now.wall, class, id, what, &next).with_remedy(remedy);
        self.care.record(&record, &mut self.figures);
    }

    /// A line in the log, unless the same was said within the last minute.
    pub(super) fn say(&mut self, class: &str, what: &str) {
        self.say_with("", class, class, what, "");
    }

    /// `code` is the word of whoever refused, where that is another.
    fn say_with(&mut self, act: &str, class: &str, code: &str, what: &str, hint: &str) {
        // One word may stand for several matters: a renewal and a recovery may fail of the same.
        let kind = format!("{act} {class} {code}");
        if let Some(count) = self.notices.note(&kind, clock::now()) {
            let short = |text: &str, most| text.chars().take(most).collect::<String>();
            let usual = code::remedy(class).unwrap_or("see the page of this code in docs/errors");
            let remedy = if hint.is_empty() { usual } else { hint };
            let (what, remedy) = (short(what, SENTENCE), short(remedy, REMEDY));
            if code == class {
                tracing::warn!(class, count, "{what}; remedy: {remedy}");
            } else {
                tracing::warn!(class, code, count, "{what}; remedy: {remedy}");
            }
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
        self.figures.clock_offset_ms = self.host.offset();
        self.figures.cert_not_after_secs = self.identity.facts.not_after.secs();
        let text = self.figures.text(&self.config.daemon.metrics_prefix);
        let Ok(mut page) = self.page.lock() else { return };
        if *page == text {
            return;
        }
        page.clone_from(&text);
        drop(page);
        if self.care.pressed && self.config.daemon.metrics_textfile.is_some() {
            return self.figures.dropped("metrics", "disk_pressure");
        }
        if let Some(path) = &self.config.daemon.metrics_textfile
            && let Err(error) = disk::replace(path, text.as_bytes(), disk::PUBLIC)
        {
            let what = format!("metrics_textfile {}: {error}", path.display());
            if space::is_full(&error) {
                self.figures.dropped("metrics", "disk_full");
            }
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
        status.last_renewal.clone_from(&self.attempts.last_renewal);
        status.disk.paths = self.care.free.iter().map(Room::of).collect();
        status.last_recovery.clone_from(&self.attempts.last_recovery);
        status.recovery_ready = self.recovery_ready;
        status.endpoint_profile = self.care.profile_id().map(str::to_owned);
        status.clock_offset_ms = self.host.offset();
        let standing = self.standing.as_ref();
        let class = self.host.ill().map(|ill| ill.class);
        if class == Some(Class::ClockSkew) {
            status.forget_dates();
        }
        if self.host.is_revoked() {
            status.state = State::Revoked;
        } else if status.state == State::Enrolled {
            status.state = match standing.map(|standing| standing.state.as_str()) {
                Some("active") => State::Active,
                Some("inactive") => State::Inactive,
                _ => State::Enrolled,
            };
        }
        let revoked = self.host.is_revoked();
        let more = [
            ("revoked", revoked),
            ("channel_down", self.channel.is_none() && !revoked),
            ("draining", standing.is_some_and(|standing| standing.draining)),
            ("quarantined", standing.is_some_and(|standing| standing.quarantined)),
            ("disk_full", self.care.full),
            ("node_observability_disk_pressure", self.care.pressed),
        ];
        let more = more.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word);
        for word in more.chain(class.map(Class::as_str)) {
            // The disk may say so already.
            if !status.reasons.iter().any(|reason| reason == word) {
                status.reasons.push(word.to_owned());
            }
        }
        status.ready = status.reasons.is_empty();
        status
    }
}

/// What is worth a message of its own: not the clock and the room on the disks, which change all the time, nor the
/// sentence about them. A message is answered with the time, and must not lead to another by that.
fn news(evidence: &Evidence) -> Evidence {
    let mut news = Evidence { clock_offset_ms: 0, disk_free_bytes: 0, ..evidence.clone() };
    news.free_space.clear();
    news.detail.clear();
    news
}
