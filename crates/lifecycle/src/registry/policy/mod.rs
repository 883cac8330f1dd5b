//! Policy: values that can change an outcome, so they are replicated and changed by command. A key is declared once, in
//! `keys.rs` or `profile.rs`; reading, setting, help and the reference page follow from the declaration.

mod accepts;
mod fraction;
mod key;
mod keys;
mod profile;
pub(super) mod set;

pub use fraction::Fraction;
pub use key::PolicyKeyReference;
pub use keys::{Policy, TOKEN_TTL_MIN};
pub use profile::CertificateProfile;

use crate::names::{ProfileName, Span};
use key::PolicyKey;
use serde::{Deserialize, Serialize};

/// How many profiles a domain may have.
const PROFILES_MAX: usize = 64;

/// What follows when an identity seems to be in use twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloneRule {
    Alert,
    Quarantine,
}

impl CloneRule {
    const ALL: [CloneRule; 2] = [CloneRule::Alert, CloneRule::Quarantine];

    fn as_str(self) -> &'static str {
        match self {
            CloneRule::Alert => "alert",
            CloneRule::Quarantine => "quarantine",
        }
    }
}

/// Which hosts of a tenant are peers of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlayScope {
    /// All of them.
    Tenant,
    /// Those of the same vCluster; one in none has no peers.
    Vcluster,
}

impl OverlayScope {
    const ALL: [OverlayScope; 2] = [OverlayScope::Tenant, OverlayScope::Vcluster];

    pub fn as_str(self) -> &'static str {
        match self {
            OverlayScope::Tenant => "tenant",
            OverlayScope::Vcluster => "vcluster",
        }
    }
}

/// What is done to find out whether a host can be reached where it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnderlayProbe {
    Off,
    /// Looked at beside the enrollment; an operator is told.
    Warn,
    /// Looked at first; nobody enrolls without.
    Require,
}

impl UnderlayProbe {
    const ALL: [UnderlayProbe; 3] = [UnderlayProbe::Off, UnderlayProbe::Warn, UnderlayProbe::Require];

    fn as_str(self) -> &'static str {
        match self {
            UnderlayProbe::Off => "off",
            UnderlayProbe::Warn => "warn",
            UnderlayProbe::Require => "require",
        }
    }
}

/// What the holder of a bootstrap identity may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootstrapRead {
    None,
    Defaults,
    Vclusters,
}

impl BootstrapRead {
    const ALL: [BootstrapRead; 3] = [BootstrapRead::None, BootstrapRead::Defaults, BootstrapRead::Vclusters];

    pub fn as_str(self) -> &'static str {
        match self {
            BootstrapRead::None => "none",
            BootstrapRead::Defaults => "defaults",
            BootstrapRead::Vclusters => "vclusters",
        }
    }
}

/// Why a value cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyError {
    /// There is no such key.
    Key,
    /// What was expected instead.
    Value(String),
}

/// The least number of signs of life in a grace period.
const PER_GRACE: u64 = 2;

impl Policy {
    /// The word that hosts are given.
    pub fn agent_version_policy(&self) -> &str {
        self.agent_version.as_ref().map_or(keys::AUTO, |label| label.as_str())
    }

    /// How often a host must show that it is there. A grace period that is shorter than the interval would make every
    /// host inactive between two signs of life.
    pub fn heartbeat_interval(&self) -> Span {
        self.liveness_interval.min(Span::from_millis(self.liveness_grace.millis() / PER_GRACE))
    }

    /// No profile's certificates live longer than this.
    pub(super) fn shorten_lifetimes(&mut self, longest: Span) {
        for name in self.profiles.keys().cloned().collect::<Vec<_>>() {
            if let Some(profile) = self.profiles.get_mut(&name) {
                profile.lifetime = profile.lifetime.min(longest);
            }
        }
    }

    /// Every key with its value, in order.
    pub fn list(&self) -> Vec<(String, String)> {
        let mut items: Vec<_> = Self::KEYS.iter().map(|key| (key.name.to_owned(), (key.get)(self))).collect();
        items.sort();
        for (name, profile) in &self.profiles {
            let fields = CertificateProfile::KEYS.iter();
            items.extend(fields.map(|key| (format!("profile.{name}.{}", key.name), (key.get)(profile))));
        }
        items
    }

    /// Every key as operators read of it, in the order of `list`. `NAME` stands for that of a profile, whose defaults are
    /// those of the profile `default`.
    pub fn reference() -> Vec<PolicyKeyReference> {
        let mut keys: Vec<_> = Self::KEYS.iter().map(|key| key.reference("")).collect();
        keys.sort_by(|one, other| one.key.cmp(&other.key));
        keys.extend(CertificateProfile::KEYS.iter().map(|key| key.reference("profile.NAME.")));
        keys
    }

    pub fn get(&self, key: &str) -> Option<String> {
        match profile_key(key) {
            Some((name, field)) => {
                let profile = self.profiles.get(&name)?;
                PolicyKey::find(CertificateProfile::KEYS, field).map(|key| (key.get)(profile))
            }
            None => PolicyKey::find(Self::KEYS, key).map(|key| (key.get)(self)),
        }
    }

    /// Changes one value, or nothing at all.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PolicyError> {
        let mut changed = self.clone();
        match profile_key(key) {
            Some((name, field)) => changed.set_profile(name, field, value)?,
            None => {
                let key = PolicyKey::find(Self::KEYS, key).ok_or(PolicyError::Key)?;
                (key.set)(&mut changed, value)?;
                changed.bound_token_lifetimes(self)?;
            }
        }
        *self = changed;
        Ok(())
    }

    /// The longest lifetime is never raised, and the one that is used without `--expires` is no longer than it.
    fn bound_token_lifetimes(&mut self, before: &Self) -> Result<(), PolicyError> {
        let max = self.token_max_ttl;
        if max > before.token_max_ttl {
            let expected = format!("at most {}, as it is now: it can only be lowered", before.token_max_ttl);
            return Err(PolicyError::Value(expected));
        }
        if self.token_default_ttl > max && max == before.token_max_ttl {
            let expected =
                format!("a duration such as 15m, from {TOKEN_TTL_MIN} to {max}, the value of token.max_ttl");
            return Err(PolicyError::Value(expected));
        }
        self.token_default_ttl = self.token_default_ttl.min(max);
        Ok(())
    }

    /// Naming a profile that does not exist makes it, with the default's other values.
    fn set_profile(&mut self, name: ProfileName, field: &str, value: &str) -> Result<(), PolicyError> {
        let mut changed = match self.profiles.get(&name) {
            Some(profile) => profile.clone(),
            None if self.profiles.len() >= PROFILES_MAX => {
                let expected = format!("the name of an existing profile: there are {PROFILES_MAX} already");
                return Err(PolicyError::Value(expected));
            }
            None => self.profiles.get(&ProfileName::default_profile()).cloned().ok_or(PolicyError::Key)?,
        };
        let key = PolicyKey::find(CertificateProfile::KEYS, field).ok_or(PolicyError::Key)?;
        (key.set)(&mut changed, value)?;
        if changed.renew_before.is_some_and(|before| before >= changed.lifetime) {
            let expected = "such that renew_before is shorter than lifetime".to_owned();
            return Err(PolicyError::Value(expected));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Span;

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
        let lowered = "at most 1d, as it is now: it can only be lowered".to_owned();
        assert_eq!(policy.set("token.max_ttl", "48h"), Err(PolicyError::Value(lowered)));
        assert_eq!(policy.set("token.max_ttl", "30m"), Ok(()));
        assert_eq!(policy.token_default_ttl, Span::from_minutes(30));
        let lowered = "at most 30m, as it is now: it can only be lowered".to_owned();
        assert_eq!(policy.set("token.max_ttl", "1h"), Err(PolicyError::Value(lowered)));
        let below = "a duration such as 15m, from 10s to 30m, the value of token.max_ttl".to_owned();
        assert_eq!(policy.set("token.default_ttl", "1h"), Err(PolicyError::Value(below)));
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

    #[test]
    fn a_refused_value_changes_nothing() {
        let (mut policy, before) = (Policy::default(), Policy::default());
        for (key, value) in [("token.default_ttl", "25h"), ("profile.new.lifetime", "1s"), ("colour", "red")]
        {
            assert!(policy.set(key, value).is_err());
        }
        assert_eq!(policy, before);
    }

    #[test]
    fn state_from_before_a_key_existed_has_its_default() {
        let old = r#"{"failures_per_minute": 7, "profiles": {"default": {"lifetime": 3600000}}}"#;
        let policy: Policy = serde_json::from_str(old).unwrap();
        assert_eq!((policy.failures_per_minute, policy.renew_drain), (7, Span::from_minutes(10)));
        assert_eq!(policy.get("profile.default.lifetime").as_deref(), Some("1h"));
        assert_eq!(policy.get("profile.default.renew_at").as_deref(), Some("2/3"));
    }
}
