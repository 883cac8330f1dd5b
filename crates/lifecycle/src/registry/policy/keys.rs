//! Every key of policy but those of profiles. To add one, add its line here and use its field.

use super::accepts::{
    Accepts, CountOrOff, KeepaliveOrOff, LabelOr, Networks, OneOf, SpanOrZero, TenantNames, TrueOrFalse,
    UpTo, Within, Words, WordsOrNone,
};
use super::key::policy_keys;
use super::profile::{self, CertificateProfile};
use super::{BootstrapRead, CloneRule, OverlayScope, UnderlayProbe};
use crate::names::{Label, Network, ProfileName, Span, TenantId};
use imbl::OrdMap;

/// Tokens shorter than this would expire on the way.
pub const TOKEN_TTL_MIN: Span = Span::from_secs(10);
/// What hosts are told about updating their agents when nothing is set.
pub(super) const AUTO: &str = "auto";

/// The bounds where no decision sets others.
const SECOND: Span = Span::from_secs(1);
const TEN_YEARS: Span = Span::from_days(3650);

policy_keys! {
    /// Values that can change an outcome.
    pub struct Policy {
        /// Kinds of credential that allow a host to enroll or recover
        "attestors" attestors: Vec<String> = vec!["join-token".to_owned(), "recovery-token".to_owned()],
            Words(&["join-token", "hardware", "recovery-token"]);
        /// Enrollments granted per minute; 0 is no limit
        "enroll.max_per_minute" enroll_max_per_minute: u32 = 0, CountOrOff;
        /// Failures per source network (/24, /48) and replica before answers become 429; 0 is no limit
        "failures.per_minute" failures_per_minute: u32 = 100, CountOrOff;
        /// Refused claims of hardware from one source (an IPv4 address, or a /64 of IPv6) per minute and replica, before every claim of
        /// hardware from there is answered 429 for the rest of that minute; 0 is no limit
        "failures.hardware_per_minute" failures_hardware_per_minute: u32 = 100, CountOrOff;
        /// Networks to which `failures.hardware_per_minute` does not apply, such as a site behind one address
        "failures.hardware_exempt" failures_hardware_exempt: Vec<Network> = Vec::new(), Networks;
        /// Lifetime of a token created without `--expires`
        "token.default_ttl" token_default_ttl: Span = Span::from_hours(1), UpTo(TOKEN_TTL_MIN, "token.max_ttl");
        /// Longest lifetime of a token; can only be lowered
        "token.max_ttl" token_max_ttl: Span = Span::from_hours(24), UpTo(TOKEN_TTL_MIN, "its present value");
        /// How long a released overlay address is not used again
        "overlay.cooldown" overlay_cooldown: Span = Span::from_days(30), Within(SECOND, TEN_YEARS);
        /// How often an agent sends a heartbeat when it sends nothing else; at most half of `liveness.grace`
        "liveness.interval" liveness_interval: Span = Span::from_secs(30), Within(SECOND, Span::from_days(1));
        /// A node that had a live stream and was silent for this long is `inactive`
        "liveness.grace" liveness_grace: Span = Span::from_minutes(5), Within(SECOND, TEN_YEARS);
        /// An enrollment that is unconfirmed for this long raises `enrollment_stuck`
        "enrolled.stuck_after" stuck_after: Span = Span::from_minutes(10), Within(SECOND, TEN_YEARS);
        /// How long a certificate stays valid after its successor was first used
        "renew.drain" renew_drain: Span = Span::from_minutes(10), Within(SECOND, Span::from_days(90));
        /// How long a replica without contact to a majority of its cluster still serves nodes; then it closes their streams and
        /// refuses them, so that they go to another
        "stale_after" stale_after: Span = Span::from_secs(30), Within(SECOND, Span::from_days(1));
        /// What a suspected copy of an identity leads to: an alert, or quarantine of the node as well
        "clone" clone_rule: CloneRule = CloneRule::Alert, OneOf(&CloneRule::ALL, CloneRule::as_str);
        /// How far a host's clock may be from the control plane's; beyond it `clock_skew`
        "clock.tolerance" clock_tolerance: Span = Span::from_minutes(5), Within(SECOND, Span::from_days(1));
        /// Whether the control plane probes the underlay endpoint that a host names
        "underlay.probe" underlay_probe: UnderlayProbe = UnderlayProbe::Warn,
            OneOf(&UnderlayProbe::ALL, UnderlayProbe::as_str);
        /// Whether addresses other than the one that the request came from may be probed
        "underlay.probe_any" underlay_probe_any: bool = false, TrueOrFalse;
        /// Value of `agent_version_policy` in the plfm API
        "agent.version_policy" agent_version: Option<Label> = None, LabelOr(AUTO);
        /// Lifetime of a recovery token
        "recovery.ttl" recovery_ttl: Span = Span::from_days(90), Within(SECOND, TEN_YEARS);
        /// How long a repaired node must be healthy before its quarantine ends by itself
        "quarantine.observe" quarantine_observe: Span = Span::from_minutes(10), Within(SECOND, Span::from_days(90));
        /// A node that was silent for this long raises `node_silent`; 0 is off
        "liveness.silent_after" liveness_silent_after: Option<Span> = Some(Span::from_hours(24)), SpanOrZero;
        /// Kinds of credential that every enrollment must bring, all of them, besides one of `attestors`; empty is none
        "attestors.require" attestors_require: Vec<String> = Vec::new(), WordsOrNone(&["join-token", "hardware"]);
        /// Networks from which a machine may enroll by its hardware; empty is any
        "hardware.source_cidrs" hardware_source_cidrs: Vec<Network> = Vec::new(), Networks;
        /// Tenants whose platform-admins may register machines by their hardware; empty is none, so that only operators of all tenants may
        "hardware.tenants" hardware_tenants: Vec<TenantId> = Vec::new(), TenantNames;
        /// Machines known by their hardware that the platform-admins of a tenant may bring it to; 0 is no limit. It does not bind operators of
        /// all tenants
        "hardware.max_per_tenant" hardware_max_per_tenant: u32 = 20_000, CountOrOff;
        /// Which hosts of a tenant are peers of each other in the overlay: all, or those of the same vCluster
        "overlay.scope" overlay_scope: OverlayScope = OverlayScope::Tenant,
            OneOf(&OverlayScope::ALL, OverlayScope::as_str);
        /// How often a host sends a keepalive to each of its peers, for hosts behind NAT or a firewall; off is never
        "overlay.keepalive" overlay_keepalive: Option<Span> = None, KeepaliveOrOff;
        /// What a bootstrap identity may read: nothing, the domain's default configuration, or that of vClusters too
        "bootstrap.read" bootstrap_read: BootstrapRead = BootstrapRead::Defaults,
            OneOf(&BootstrapRead::ALL, BootstrapRead::as_str);
        /// Whether a host that comes by an SVID of SPIRE may have a certificate of this domain issued by that
        "spire.renew" spire_renew: bool = true, TrueOrFalse;
    }
    and {
        /// The profile of enrollments whose token and door name none.
        default_profile: ProfileName = ProfileName::default_profile();
        profiles: OrdMap<ProfileName, CertificateProfile> = profile::presets();
    }
}
