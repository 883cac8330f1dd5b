//! The eight words for what can be wrong with a host, the same everywhere they appear: log, diagnostics, metrics,
//! control plane, command line, alerts.

use serde::{Deserialize, Serialize};

/// `NAME "word" "remedy"` makes a variant, its stable word and one line of what to do.
macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident $word:literal $remedy:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Class {
            $($(#[$doc])* $name),*
        }

        impl Class {
            pub const ALL: &[Class] = &[$(Class::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Class::$name => $word),*
                }
            }

            /// What to do about it.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Class::$name => $remedy),*
                }
            }
        }
    };
}

classes! {
    /// The name does not resolve, nobody answers, or only with a 5xx.
    EndpointUnreachable "endpoint_unreachable"
        "check the network between here and the control plane, and that it runs";
    /// The control plane's chain leads to nothing that is trusted here.
    ServerTlsUntrusted "server_tls_untrusted"
        "check what this host trusts, and whether somebody stands between it and the control plane";
    /// This host's own certificate has ended.
    CertExpired "cert_expired"
        "nothing if recovery is ready; otherwise give it a repair bundle: `enlist node repair-bundle ID --out FILE`";
    /// The control plane, having proven who it is, has said that this identity is no more.
    IdentityRevokedOrFenced "identity_revoked_or_fenced"
        "ask an operator what happened to this node (`enlist node show ID --timeline`). If another host was enrolled in its place, enroll this one as a new node with a token from `enlist token create`; if the node was revoked, `enlist node reinstate ID` and a token from `enlist token create --node ID`; if its issuer was revoked, such a token alone. Then run `enlist-agent enroll --replace` with it";
    /// What answers is not the control plane by the name that was asked for, or a managed mapping is gone.
    EndpointProfileDrift "endpoint_profile_drift"
        "run `enlist-agent reconcile`, and check that the address is the control plane's own";
    /// Recovery was refused, or there is nothing safe to recover with.
    RecoveryEnrollmentBlocked "recovery_enrollment_blocked"
        "give it a repair bundle: `enlist node repair-bundle ID --out FILE`, then `enlist-agent recover --bundle FILE`";
    /// Nothing more can be written.
    DiskFull "disk_full"
        "make room where the agent's directory is";
    /// This clock and the control plane's are further apart than they may be.
    ClockSkew "clock_skew"
        "compare this host's clock with a source that you trust, and set it";
}

impl Class {
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.as_str() == word)
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
