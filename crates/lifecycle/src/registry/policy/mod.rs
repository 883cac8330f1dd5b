//! Policy: values that can change an outcome, so they are replicated and changed by command.

mod profile;
pub(super) mod set;

pub use profile::{Fraction, Profile};

use crate::names::{Label, ProfileName, Span};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// Tokens shorter than this would expire on the way.
pub const TOKEN_TTL_MIN: Span = Span::from_secs(10);
/// No policy can raise the maximum above this.
pub const TOKEN_TTL_CEILING: Span = Span::from_hours(24);
/// The shortest duration where no decision sets another.
const SECOND: Span = Span::from_secs(1);
/// How many profiles a domain may have.
const PROFILES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What proves that a stranger may enroll.
    pub attestors: Vec<String>,
    /// 0 means no limit.
    pub enroll_max_per_minute: u32,
    /// Failures per source network and replica; 0 means no limit.
    pub failures_per_minute: u32,
    pub token_default_ttl: Span,
    pub token_max_ttl: Span,
    /// How long a released overlay address rests.
    pub overlay_cooldown: Span,
    /// How often a node's live stream should say something.
    #[serde(default = "liveness_interval")]
    pub liveness_interval: Span,
    /// A node silent for this long is inactive.
    #[serde(default = "liveness_grace")]
    pub liveness_grace: Span,
    /// An enrollment unconfirmed for this long is stuck.
    #[serde(default = "stuck_after")]
    pub stuck_after: Span,
    /// For how long a certificate is good after its successor was seen.
    #[serde(default = "renew_drain")]
    pub renew_drain: Span,
    /// What follows when an identity seems to be in use twice.
    #[serde(default)]
    pub clone_rule: CloneRule,
    /// How far a host's clock may be off.
    #[serde(default = "clock_tolerance")]
    pub clock_tolerance: Span,
    /// What is done to find out whether a host can be reached where it says.
    #[serde(default)]
    pub underlay_probe: Probe,
    /// Whether addresses other than the caller's own may be probed.
    #[serde(default)]
    pub underlay_probe_any: bool,
    /// What hosts are told about updating their agents; `auto` when nothing is said.
    #[serde(default)]
    pub agent_version: Option<Label>,
    /// How long a recovery token is good.
    #[serde(default = "recovery_ttl")]
    pub recovery_ttl: Span,
    /// For how long a repaired node is looked at before its quarantine ends.
    #[serde(default = "quarantine_observe")]
    pub quarantine_observe: Span,
    /// The profile of enrollments whose token and door name none.
    pub default_profile: ProfileName,
    pub profiles: OrdMap<ProfileName, Profile>,
}

fn liveness_interval() -> Span {
    Span::from_secs(30)
}

fn liveness_grace() -> Span {
    Span::from_minutes(5)
}

fn stuck_after() -> Span {
    Span::from_minutes(10)
}

fn renew_drain() -> Span {
    Span::from_minutes(10)
}

fn recovery_ttl() -> Span {
    Span::from_days(90)
}

fn quarantine_observe() -> Span {
    Span::from_minutes(10)
}

fn clock_tolerance() -> Span {
    Span::from_minutes(5)
}

/// What follows when an identity seems to be in use twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloneRule {
    #[default]
    Alert,
    Quarantine,
}

/// What is done to find out whether a host can be reached where it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    Off,
    /// Looked at beside the enrollment; an operator is told.
    #[default]
    Warn,
    /// Looked at first; nobody enrolls without.
    Require,
}

impl Probe {
    pub const ALL: [Probe; 3] = [Probe::Off, Probe::Warn, Probe::Require];

    pub fn as_str(self) -> &'static str {
        match self {
            Probe::Off => "off",
            Probe::Warn => "warn",
            Probe::Require => "require",
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attestors: vec!["join-token".to_owned(), "recovery-token".to_owned()],
            enroll_max_per_minute: 0,
            failures_per_minute: 100,
            token_default_ttl: Span::from_hours(1),
            token_max_ttl: TOKEN_TTL_CEILING,
            overlay_cooldown: Span::from_days(30),
            liveness_interval: liveness_interval(),
            liveness_grace: liveness_grace(),
            stuck_after: stuck_after(),
            renew_drain: renew_drain(),
            clone_rule: CloneRule::default(),
            clock_tolerance: clock_tolerance(),
            underlay_probe: Probe::default(),
            underlay_probe_any: false,
            agent_version: None,
            recovery_ttl: recovery_ttl(),
            quarantine_observe: quarantine_observe(),
            default_profile: ProfileName::default_profile(),
            profiles: profile::presets(),
        }
    }
}

/// Why a value cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyError {
    Key,
    /// What was expected instead.
    Value(&'static str),
    /// It can only be lowered from what it is now.
    Raised(Span),
}

const KEYS: [&str; 17] = [
    "agent.version_policy",
    "attestors",
    "clock.tolerance",
    "clone",
    "enroll.max_per_minute",
    "enrolled.stuck_after",
    "failures.per_minute",
    "liveness.grace",
    "liveness.interval",
    "overlay.cooldown",
    "quarantine.observe",
    "recovery.ttl",
    "renew.drain",
    "token.default_ttl",
    "token.max_ttl",
    "underlay.probe",
    "underlay.probe_any",
];
const ATTESTORS: [&str; 3] = ["join-token", "hardware", "recovery-token"];

/// What hosts are told about updating their agents when nothing is set.
const AUTO: &str = "auto";

impl Policy {
    /// The word that hosts are given.
    pub fn agent_version_policy(&self) -> &str {
        self.agent_version.as_ref().map_or(AUTO, Label::as_str)
    }

    /// Every key with its value, in order.
    pub fn list(&self) -> Vec<(String, String)> {
        let plain = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), self.get(key)?)));
        let profiles = self.profiles.iter().flat_map(|(name, profile)| {
            profile::FIELDS
                .iter()
                .filter_map(move |field| Some((format!("profile.{name}.{field}"), profile.get(field)?)))
        });
        plain.chain(profiles).collect()
    }

    pub fn get(&self, key: &str) -> Option<String> {
        if let Some((name, field)) = profile_key(key) {
            return self.profiles.get(&name)?.get(field);
        }
        Some(match key {
            "agent.version_policy" => self.agent_version_policy().to_owned(),
            "attestors" => self.attestors.join(","),
            "clock.tolerance" => self.clock_tolerance.to_string(),
            "clone" => match self.clone_rule {
                CloneRule::Alert => "alert",
                CloneRule::Quarantine => "quarantine",
            }
            .to_owned(),
            "enroll.max_per_minute" => self.enroll_max_per_minute.to_string(),
            "enrolled.stuck_after" => self.stuck_after.to_string(),
            "liveness.grace" => self.liveness_grace.to_string(),
            "liveness.interval" => self.liveness_interval.to_string(),
            "renew.drain" => self.renew_drain.to_string(),
            "failures.per_minute" => self.failures_per_minute.to_string(),
            "overlay.cooldown" => self.overlay_cooldown.to_string(),
            "quarantine.observe" => self.quarantine_observe.to_string(),
            "recovery.ttl" => self.recovery_ttl.to_string(),
            "token.default_ttl" => self.token_default_ttl.to_string(),
            "token.max_ttl" => self.token_max_ttl.to_string(),
            "underlay.probe" => self.underlay_probe.as_str().to_owned(),
            "underlay.probe_any" => self.underlay_probe_any.to_string(),
            _ => return None,
        })
    }

    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PolicyError> {
        if let Some((name, field)) = profile_key(key) {
            return self.set_profile(name, field, value);
        }
        match key {
            "agent.version_policy" => {
                let word = Label::parse(value)
                    .map_err(|_| PolicyError::Value("1 to 128 visible ASCII characters"))?;
                self.agent_version = Some(word).filter(|word| word.as_str() != AUTO);
            }
            "attestors" => {
                let words: Vec<String> = value.split(',').map(|word| word.trim().to_owned()).collect();
                if !words.iter().all(|word| ATTESTORS.contains(&word.as_str())) {
                    return Err(PolicyError::Value("a list of join-token, hardware and recovery-token"));
                }
                self.attestors = words;
            }
            "clock.tolerance" => self.clock_tolerance = span(value, SECOND, Span::from_days(1))?,
            "clone" => {
                self.clone_rule = match value {
                    "alert" => CloneRule::Alert,
                    "quarantine" => CloneRule::Quarantine,
                    _ => return Err(PolicyError::Value("alert or quarantine")),
                };
            }
            "enroll.max_per_minute" => self.enroll_max_per_minute = count(value)?,
            "enrolled.stuck_after" => self.stuck_after = span(value, SECOND, Span::from_days(3650))?,
            "liveness.grace" => self.liveness_grace = span(value, SECOND, Span::from_days(3650))?,
            "liveness.interval" => self.liveness_interval = span(value, SECOND, Span::from_days(1))?,
            "renew.drain" => self.renew_drain = span(value, SECOND, Span::from_days(90))?,
            "failures.per_minute" => self.failures_per_minute = count(value)?,
            "overlay.cooldown" => self.overlay_cooldown = span(value, SECOND, Span::from_days(3650))?,
            "quarantine.observe" => self.quarantine_observe = span(value, SECOND, Span::from_days(90))?,
            "recovery.ttl" => self.recovery_ttl = span(value, SECOND, Span::from_days(3650))?,
            "token.default_ttl" => self.token_default_ttl = span(value, TOKEN_TTL_MIN, self.token_max_ttl)?,
            "token.max_ttl" => {
                let max = span(value, TOKEN_TTL_MIN, Span::from_days(3650))?;
                if max > self.token_max_ttl {
                    return Err(PolicyError::Raised(self.token_max_ttl));
                }
                self.token_max_ttl = max;
                self.token_default_ttl = self.token_default_ttl.min(max);
            }
            "underlay.probe" => {
                let found = Probe::ALL.into_iter().find(|probe| probe.as_str() == value);
                self.underlay_probe = found.ok_or(PolicyError::Value("off, warn or require"))?;
            }
            "underlay.probe_any" => {
                self.underlay_probe_any = value.parse().map_err(|_| PolicyError::Value("true or false"))?;
            }
            _ => return Err(PolicyError::Key),
        }
        Ok(())
    }

    /// Naming a profile that does not exist makes it, with the default's other values.
    fn set_profile(&mut self, name: ProfileName, field: &str, value: &str) -> Result<(), PolicyError> {
        let mut changed = match self.profiles.get(&name) {
            Some(profile) => profile.clone(),
            None if self.profiles.len() >= PROFILES_MAX => {
                return Err(PolicyError::Value("the name of an existing profile: there are 64 already"));
            }
            None => self.profiles.get(&ProfileName::default_profile()).cloned().ok_or(PolicyError::Key)?,
        };
        changed.set(field, value)?;
        if changed.renew_before.is_some_and(|before| before >= changed.lifetime) {
            return Err(PolicyError::Value("such that renew_before is shorter than lifetime"));
        }
        self.profiles.insert(name, changed);
        Ok(())
    }
}

/// `profile.NAME.FIELD`; a name may itself hold dots.
fn profile_key(key: &str) -> Option<(ProfileName, &str)> {
    let (name, field) = key.strip_prefix("profile.")?.rsplit_once('.')?;
    Some((ProfileName::parse(name).ok()?, field))
}

fn count(value: &str) -> Result<u32, PolicyError> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| value.parse().ok().filter(|n| *n <= 1_000_000))
        .flatten()
        .ok_or(PolicyError::Value("a whole number from 0 (off) to 1000000"))
}

fn span(value: &str, min: Span, max: Span) -> Result<Span, PolicyError> {
    let expected = PolicyError::Value("a duration such as 90s, 15m, 1h or 7d within its limits");
    Span::parse(value).ok().filter(|span| (min..=max).contains(span)).ok_or(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_value_can_be_set_to_itself() {
        let mut policy = Policy::default();
        let before = policy.clone();
        for (key, value) in policy.list() {
            assert_eq!(policy.set(&key, &value), Ok(()), "{key} = {value}");
        }
        assert_eq!(policy, before);
    }

    #[test]
    fn the_longest_token_life_can_only_be_lowered() {
        let mut policy = Policy::default();
        assert_eq!(policy.set("token.max_ttl", "48h"), Err(PolicyError::Raised(TOKEN_TTL_CEILING)));
        assert_eq!(policy.set("token.max_ttl", "30m"), Ok(()));
        assert_eq!(policy.token_default_ttl, Span::from_minutes(30));
        assert!(policy.set("token.max_ttl", "1h").is_err());
        assert!(policy.set("token.default_ttl", "1h").is_err());
    }

    #[test]
    fn nothing_can_be_due_for_renewal_when_it_is_signed() {
        let mut policy = Policy::default();
        assert_eq!(policy.set("profile.default.lifetime", "1h"), Ok(()));
        assert!(policy.set("profile.default.renew_before", "1h").is_err());
        assert_eq!(policy.set("profile.default.renew_before", "59m"), Ok(()));
        assert!(policy.set("profile.default.lifetime", "59m").is_err());
    }

    #[test]
    fn a_new_profile_starts_from_the_default() {
        let mut policy = Policy::default();
        assert_eq!(policy.set("profile.gpu.v2.lifetime", "60s"), Ok(()));
        assert_eq!(policy.get("profile.gpu.v2.lifetime"), Some("1m".to_owned()));
        assert_eq!(policy.get("profile.gpu.v2.renew_at"), Some("2/3".to_owned()));
        assert!(policy.set("profile.gpu.v2.lifetime", "59s").is_err());
        assert!(policy.set("profile.gpu.v2.lifetime", "91d").is_err());
        assert_eq!(policy.set("profile.gpu.v2.colour", "red"), Err(PolicyError::Key));
    }
}
