//! What a host last said of itself. Kept, so that it can still be read when the host no longer speaks and the
//! control plane has been started again.

use crate::host::Class;
use crate::names::{Label, Serial, Span, Timestamp, WireguardKey};
use crate::registry::{AlertKind, Certificate, Node, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A host's own word; nobody has checked it. Whoever makes one keeps its texts short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// When it was heard.
    pub at: Timestamp,
    /// Since when it has been as well or as ill as it is.
    pub since: Timestamp,
    /// What is wrong with the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What shows it, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The undertaking that began with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_serial: Option<Serial>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_not_after: Option<Timestamp>,
    /// The trust bundle on its disk.
    #[serde(default)]
    pub bundle_version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_renewal: Option<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_recovery: Option<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_profile_id: Option<Label>,
    /// Whether it can write down what it has to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic_writable: Option<bool>,
    /// At most one for each place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free_space: Vec<FreeSpace>,
    /// Its clock less the control plane's.
    #[serde(default)]
    pub clock_offset_ms: i64,
    #[serde(default)]
    pub disk_free_bytes: u64,
    /// Whether it holds what a recovery takes.
    #[serde(default)]
    pub recovery_ready: bool,
    /// How often it has found its endpoint profile changed.
    #[serde(default)]
    pub drift_count: u64,
    /// Whether what it tells, or its logs, had to make room for what it needs.
    #[serde(default)]
    pub observability_pressure: bool,
    /// The overlay as it is on the host; none of a host without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Box<OverlayReport>>,
}

/// The overlay as it is on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayReport {
    pub state: OverlayState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OverlayReason>,
    /// What shows it, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Label>,
    /// The key in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<WireguardKey>,
    /// The revision that is applied.
    #[serde(default)]
    pub revision: u64,
    /// How many peers the interface has.
    #[serde(default)]
    pub peers: u32,
    /// How many of them are not as the registry says.
    #[serde(default)]
    pub differences: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_handshake_s: Option<u64>,
    #[serde(default)]
    pub recent_handshakes: u32,
    #[serde(default)]
    pub received_bytes: u64,
    #[serde(default)]
    pub sent_bytes: u64,
}

/// `Variant "word"` makes a closed set of words that a host may say.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $word:literal)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($variant),*
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word),*
                }
            }

            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }
    };
}

words! {
    /// Whether the overlay works on a host.
    OverlayState {
        Up "up"
        Unavailable "unavailable"
        Off "off"
    }
}

words! {
    /// Why it does not.
    OverlayReason {
        NoTunDevice "no_tun_device"
        NoPermission "no_permission"
        InterfaceInUse "interface_in_use"
        PortInUse "port_in_use"
        NoKernelSupport "no_kernel_support"
        Failed "failed"
    }
}

/// Something a host tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// By its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeSpace {
    pub place: Place,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    pub available_bytes: u64,
}

/// What a host keeps room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Cert,
    Diagnostic,
    TaskRetry,
    Runtime,
}

impl Place {
    pub const ALL: [Place; 4] = [Place::Cert, Place::Diagnostic, Place::TaskRetry, Place::Runtime];

    pub fn as_str(self) -> &'static str {
        match self {
            Place::Cert => "cert",
            Place::Diagnostic => "diagnostic",
            Place::TaskRetry => "task_retry",
            Place::Runtime => "runtime",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.as_str() == word)
    }
}

impl Report {
    /// One that says nothing.
    pub fn blank(at: Timestamp) -> Self {
        Self {
            at,
            since: at,
            class: None,
            detail: String::new(),
            correlation_id: None,
            cert_serial: None,
            cert_not_after: None,
            bundle_version: 0,
            last_renewal: None,
            last_recovery: None,
            endpoint_profile_id: None,
            diagnostic_writable: None,
            free_space: Vec::new(),
            clock_offset_ms: 0,
            disk_free_bytes: 0,
            recovery_ready: false,
            drift_count: 0,
            observability_pressure: false,
            overlay: None,
        }
    }

    /// The same, as what follows an earlier one: what was wrong then and is still wrong began then.
    pub fn after(self, before: Option<&Report>) -> Self {
        let ill = |report: &Report| (report.class, report.observability_pressure);
        match before {
            Some(before) if ill(before) == ill(&self) => Self { since: before.since.min(self.at), ..self },
            _ => self,
        }
    }

    /// Whether it says anything of weight that another did not. Bytes that come and go are none.
    pub fn is_news(&self, before: &Report, tolerance: Span) -> bool {
        self.weight(tolerance) != before.weight(tolerance)
    }

    fn weight(&self, tolerance: Span) -> impl PartialEq + '_ {
        let trouble = (self.class, &self.correlation_id, self.is_skewed(tolerance));
        let tried = (&self.last_renewal, &self.last_recovery, &self.cert_serial, self.recovery_ready);
        let place = (&self.endpoint_profile_id, self.drift_count);
        // Revisions, counters and handshakes come and go with every change of a peer.
        let overlay = self.overlay.as_ref();
        let overlay = overlay.map(|said| (said.state, said.reason, said.key, said.differences > 0));
        (trouble, tried, place, self.diagnostic_writable, self.observability_pressure, overlay)
    }

    /// Whether its clock is further off than it may be, by its own word or by what it measured.
    pub fn is_skewed(&self, tolerance: Span) -> bool {
        self.class == Some(Class::ClockSkew) || self.is_off(tolerance)
    }

    fn is_off(&self, tolerance: Span) -> bool {
        self.clock_offset_ms.unsigned_abs() > tolerance.millis()
    }
}

impl Node {
    /// The newest of what is on record and what has just been heard. What was said before the node enrolled is the
    /// word of an earlier life.
    pub fn newest_report<'a>(&'a self, heard: Option<&'a Arc<Report>>) -> Option<&'a Arc<Report>> {
        let own = |report: &&Arc<Report>| self.enrolled_at.is_none_or(|since| since <= report.at);
        heard.into_iter().chain(&self.report).filter(own).max_by_key(|report| report.at)
    }
}

impl Node {
    /// What is wrong with the overlay on the host of a node that has a place in it.
    fn overlay_trouble(&self, report: &Report) -> Option<(AlertKind, String)> {
        let (said, held) = (report.overlay.as_ref()?, self.wireguard?);
        match said.state {
            OverlayState::Off => None,
            OverlayState::Unavailable => {
                let why = said.reason.map_or("see its evidence", OverlayReason::as_str);
                Some((AlertKind::OverlayUnavailable, format!("the overlay is not up on the host: {why}")))
            }
            // Between an order and its end the two may differ.
            OverlayState::Up if self.rekey.is_none() && said.key.is_some_and(|key| key != held.key) => {
                let detail = "the host uses another WireGuard key than the one on record".to_owned();
                Some((AlertKind::OverlayDrift, detail))
            }
            OverlayState::Up if said.differences > 0 => {
                let detail = "peers of the interface are not as the registry says, and that cannot be mended";
                Some((AlertKind::OverlayDrift, detail.to_owned()))
            }
            OverlayState::Up => None,
        }
    }
}

impl State {
    /// What a host's own word wants an operator to look at, by kind. The same words while it is the same matter, and
    /// none of the host's own, so that a host cannot fill the trail by saying it in other ways.
    pub fn reported(&self, node: &Node, report: &Report) -> Vec<(AlertKind, String)> {
        let mut found = Vec::new();
        // One that a wrong clock prevented is the clock's matter: once that is right, nothing may be due for long.
        let failed = |attempt: &&Attempt| {
            let code = attempt.code.as_ref().map(Label::as_str);
            !attempt.ok && code != Some(Class::ClockSkew.as_str())
        };
        if let Some(attempt) = report.last_renewal.as_ref().filter(failed) {
            // It may have succeeded since, and not have said so yet.
            let tried = attempt.at.unwrap_or(report.at).min(report.at);
            let over = |(_, held): (_, &Certificate)| tried < held.issued_at;
            if !self.current_certificate(node).is_some_and(over) {
                let class = attempt.code.as_ref().and_then(|code| Class::parse(code.as_str()));
                let why = class.map_or("see its evidence", Class::as_str);
                found.push((AlertKind::RenewalFailing, format!("it could not renew its certificate: {why}")));
            }
        }
        let tolerance = self.policy.clock_tolerance;
        if report.is_skewed(tolerance) {
            let detail = match report.clock_offset_ms.is_positive() {
                _ if !report.is_off(tolerance) => "it says that its clock is wrong".to_owned(),
                true => format!("its clock is ahead of the control plane's by more than {tolerance}"),
                false => format!("its clock is behind the control plane's by more than {tolerance}"),
            };
            found.push((AlertKind::ClockSkew, detail));
        }
        match report.class {
            Some(Class::EndpointProfileDrift) => {
                let detail = "what it finds is not what its endpoint profile says".to_owned();
                found.push((AlertKind::EndpointProfileDrift, detail));
            }
            Some(Class::DiskFull) => {
                found.push((AlertKind::DiskFull, "nothing more can be written on the host".to_owned()));
            }
            None
            | Some(
                Class::EndpointUnreachable
                | Class::ServerTlsUntrusted
                | Class::CertExpired
                | Class::IdentityRevokedOrFenced
                | Class::RecoveryEnrollmentBlocked
                | Class::ClockSkew,
            ) => {}
        }
        found.extend(node.overlay_trouble(report));
        found
    }
}
