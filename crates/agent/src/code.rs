//! The words with which this program itself names a fault, each with one line of remedy and a section in
//! docs/errors/agent.md. What the control plane says has codes of its own, one page each beside that one.

use std::path::Path;

use lifecycle::host::Class;

use crate::config::KeyStorage;

/// What says that this clock is wrong may itself be wrong, where its certificate is not good by this clock.
pub const CLOCK: &str = "compare this host's clock with a source that you trust, and set it if it is wrong; if it is right, what answers may be an impostor with an old certificate";

/// What to do about a revoked identity: the same in the log, in `status` and in `doctor`.
pub const REVOKED: &str = Class::IdentityRevokedOrFenced.remedy();

/// What to do about a quarantine, likewise.
pub const QUARANTINED: &str = "ask an operator why; `enlist node release ID` ends the quarantine";

/// What to do about a revoked identity that is in memory alone: `enroll --replace` is not for such a host.
pub const REVOKED_IN_MEMORY: &str = "ask an operator what happened to this node (`enlist node show ID --timeline`), and to reinstate it if it was revoked or decommissioned, `enlist node reinstate ID`: a host that enrolls by its hardware then comes back by itself. Another needs a token from `enlist token create --node ID` as well: start `enlist-agent run` again with it";

/// What to do about a daemon that does not run.
pub const STOPPED: &str = "start `enlist-agent run`, which keeps the identity valid";

/// The same where storage is memory.
pub const STOPPED_IN_MEMORY: &str = "start `enlist-agent run`: it goes on with what the service manager has kept, or enrolls this host by its hardware or with a token";

/// What to do about a token that was used, where the identity that it gave was in memory.
pub const TOKEN_USED_IN_MEMORY: &str = "the identity that the token gave was lost with the memory of an earlier daemon: have an operator create another token for this node, `enlist token create --node ID`, and start `enlist-agent run` with it";

/// What to do about a daemon that this user may not ask.
pub const ASK_AS_ROOT: &str = "run the command as root, or as the user that the daemon runs as";

/// What to do about a session that this user may not register.
pub const SOCKET_DENIED: &str = "run it as root, or as the user that the agent runs as; \"Sessions\" in docs/agent.md says how to open the socket to other users";

/// What to do where the control plane does not know the issuer of this host's certificate.
pub const UNKNOWN_ISSUER: &str = "as a rule the issuer of this host's certificate was retired: it recovers by itself after `liveness.grace`, with its recovery token; or run `enlist-agent recover` with the daemon stopped";

pub fn revoked(storage: KeyStorage) -> &'static str {
    match storage {
        KeyStorage::Disk => REVOKED,
        KeyStorage::Memory => REVOKED_IN_MEMORY,
    }
}

pub fn stopped(storage: KeyStorage) -> &'static str {
    match storage {
        KeyStorage::Disk => STOPPED,
        KeyStorage::Memory => STOPPED_IN_MEMORY,
    }
}

pub fn not_asked(socket: &Path) -> String {
    format!("the daemon may not be asked: {}: permission denied", socket.display())
}

/// What to do about a channel that is down for a reason not known yet.
pub const UNCONNECTED: &str = "if it stays so, `enlist-agent doctor` finds out why";

/// What to do about an enrollment that was begun and has not ended: with the same token, what was lost is asked for again.
pub const PENDING: &str = "run the same `enlist-agent enroll` command again, with the same token";

/// Why `enroll` and `recover` refuse `storage = "memory"`.
pub const MEMORY_ONLY: &str = "storage is \"memory\": the identity is kept in the memory of `enlist-agent run`, and this command has nowhere to leave one";

/// `Name "word" remedy` makes a variant, its stable word, and what to do, for the log; a command that fails knows more
/// and says more.
macro_rules! codes {
    ($($name:ident $word:literal $remedy:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum AgentCode {
            $($name),*
        }

        impl AgentCode {
            /// Every one there is; a test compares them with the page.
            pub const ALL: &[AgentCode] = &[$(AgentCode::$name),*];

            pub const fn word(self) -> &'static str {
                match self {
                    $(AgentCode::$name => $word),*
                }
            }

            pub const fn remedy(self) -> &'static str {
                match self {
                    $(AgentCode::$name => $remedy),*
                }
            }
        }
    };
}

codes! {
    AgentUnavailable "agent_unavailable"
        "start the agent (`enlist-agent run`), or name its directory with --dir: a session is registered before it begins";
    AnswerInvalid "answer_invalid" "update the older of agent and control plane; nothing was kept";
    BootstrapUnusable "bootstrap_unusable"
        "restore the directory from the image, or have an operator issue another: `enlist ca bootstrap NAME --expires 90d --out DIR`";
    BundleInvalid "bundle_invalid"
        "ask an operator for another repair bundle: `enlist node repair-bundle ID --out FILE`";
    BundleNotKept "bundle_not_kept"
        "see \"Trust bundle updates\" in docs/agent.md; enroll the host again if it has missed a step";
    BundleOfAnother "bundle_of_another" "use the repair bundle on the host that it was made for";
    CaFileUnusable "ca_file_unusable"
        "name a PEM file with the control plane's CA: `enlist ca export --server` writes it";
    CertExpired "cert_expired"
        "nothing if recovery is ready; otherwise give it a repair bundle: `enlist node repair-bundle ID --out FILE`";
    ClockSkew "clock_skew" CLOCK;
    CommandNotStarted "command_not_started" "check the name of the command and that the user may run it";
    ConfigInvalid "config_invalid" "correct the settings that are named";
    ConfigIsLink "config_is_link" "replace the symbolic link with the file agent.toml itself";
    ConfigUnreadable "config_unreadable" "make agent.toml a UTF-8 text file that this user may read";
    DirInUse "dir_in_use" "stop the daemon that uses the directory, or wait until the other command has ended";
    DirNotOurs "dir_not_ours" "run the command as the owner of the directory, or change the owner with chown";
    DirNotPrivate "dir_not_private"
        "choose a directory that only the agent uses, or close this one: chmod 0700";
    DirUnusable "dir_unusable" "name a directory with --dir that this user owns or may create";
    DiskFull "disk_full" "make room where the agent's directory is";
    EndpointProfileDrift "endpoint_profile_drift"
        "run `enlist-agent reconcile`, and check that the address is the control plane's own";
    EndpointUnreachable "endpoint_unreachable"
        "check the network between here and the control plane, and that it runs";
    Fault "fault" "run the command again with ENLIST_LOG=debug to see more";
    FileInTheWay "file_in_the_way" "move the named files away, or set other paths under [files] in agent.toml";
    FilesNotLinked "files_not_linked"
        "let this user write where the links to the identity belong, then run the command again";
    HardwareMissing "hardware_missing"
        "let this user read the named files (serial numbers are for root alone), name another sysfs_root in agent.toml, or enroll with a token";
    IdentityChanged "identity_changed" "run the command again";
    IdentityDamaged "identity_damaged"
        "restore the missing files, or enroll again: `enlist-agent enroll --replace`";
    IdentityRevokedOrFenced "identity_revoked_or_fenced" REVOKED;
    Internal "internal" "report a bug with the log lines around it; the agent keeps running";
    KeyExposed "key_exposed"
        "if no other user has read the key, close it with chmod 0600; otherwise have an operator revoke the node, and enroll with --replace";
    KeyUnusable "key_unusable" "remove the directory `pending`, then run the command again";
    MemoryNotLocked "memory_not_locked"
        "let the service lock its memory (LimitMEMLOCK=infinity, CAP_IPC_LOCK), or turn swap off: `swapoff -a`";
    MemoryUnavailable "memory_unavailable"
        "run the daemon as root with CAP_SYS_ADMIN, as the drop-in docs/deploy/enlist-agent-memory.conf does, and with /proc; or set storage = \"disk\"";
    MetricsListenUnusable "metrics_listen_unusable" "choose another port for metrics_listen in agent.toml";
    MetricsNotWritten "metrics_not_written" "let this user write the file that metrics_textfile names";
    NotEnrolled "not_enrolled" "enroll with a token: an operator creates one with `enlist token create`";
    NotPersisted "not_persisted" "make room in the directory, and let this user write there";
    OverlayUnavailable "overlay_unavailable"
        "see `enlist-agent doctor`, which says for each reason what helps; it is tried again every 10 seconds";
    PlainHttpRefused "plain_http_refused" "use https://";
    RecoveryEnrollmentBlocked "recovery_enrollment_blocked"
        "give it a repair bundle: `enlist node repair-bundle ID --out FILE`, then `enlist-agent recover --bundle FILE`";
    RuntimeFailed "runtime_failed" "check that the process may open files and start threads";
    ServerMissing "server_missing"
        "set the control plane with --server, ENLIST_AGENT_SERVER or `server` in agent.toml";
    ServerTlsUntrusted "server_tls_untrusted"
        "check CA file or pin, and this host's clock: `enlist ca show` prints the right pin";
    SessionInUse "session_in_use" "register the session without an id";
    SessionInvalid "session_invalid" "see \"Sessions\" in docs/agent.md for what a registration says";
    SessionNotAllowed "session_not_allowed" "run it as root, or as the user whose session it is";
    SessionUserUnknown "session_user_unknown" "name a user that this host knows: `getent passwd` lists them";
    StorageMemory "storage_memory" "start `enlist-agent run`: it enrolls by itself, with a token or by hardware, and enrolls again where the identity is lost";
    SvidMissing "svid_missing"
        "see that SPIRE's agent runs, that [spire] socket in agent.toml names its socket, and that an entry in SPIRE is for the user of enlist-agent; the agent asks again";
    TenantMismatch "tenant_mismatch"
        "have an operator see where this machine is registered or for which tenant its token is; correct that, or `tenant` in agent.toml; have the node that was made revoked, and use another token";
    TokenMissing "token_missing" "pass a token with `--token -`, `--token-file F` or ENLIST_AGENT_TOKEN";
    TokenUnreadable "token_unreadable" "name a file that this user may read and that holds only the token";
    TooManySessions "too_many_sessions"
        "wait until others have ended; root may register 60 sessions at once, then one every 2 seconds, every other user 20, then one every 4 seconds";
    TrustMissing "trust_missing" "say how to verify the control plane: --ca-file, --ca-pin or --system-roots";
    Usage "usage" "see `enlist-agent --help`";
}

/// Each of the eight classes is a code as well.
impl From<Class> for AgentCode {
    fn from(class: Class) -> Self {
        match class {
            Class::EndpointUnreachable => AgentCode::EndpointUnreachable,
            Class::ServerTlsUntrusted => AgentCode::ServerTlsUntrusted,
            Class::CertExpired => AgentCode::CertExpired,
            Class::IdentityRevokedOrFenced => AgentCode::IdentityRevokedOrFenced,
            Class::EndpointProfileDrift => AgentCode::EndpointProfileDrift,
            Class::RecoveryEnrollmentBlocked => AgentCode::RecoveryEnrollmentBlocked,
            Class::DiskFull => AgentCode::DiskFull,
            Class::ClockSkew => AgentCode::ClockSkew,
        }
    }
}

impl AgentCode {
    /// The class that the code is, if it is one.
    pub fn class(self) -> Option<Class> {
        Class::ALL.iter().copied().find(|class| AgentCode::from(*class) == self)
    }
}
