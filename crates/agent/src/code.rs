//! The words with which this program itself names a trouble, each with one line of remedy and a section in
//! docs/errors/agent.md. What the control plane says has codes of its own, one page each beside that one.

use lifecycle::host::Class;

pub struct Code {
    pub word: &'static str,
    /// What to do, for the log; a command that fails knows more and says more.
    pub remedy: &'static str,
}

const fn code(word: &'static str, remedy: &'static str) -> Code {
    Code { word, remedy }
}

/// What says that this clock is wrong may itself be wrong, where its certificate is not good by this clock.
pub const CLOCK: &str = "compare this host's clock with a source that you trust, and set it if it is wrong; if it is right, what answers may be an impostor with an old certificate";

/// What to do about a revoked identity: the same in the log, in `status` and in `doctor`.
pub const REVOKED: &str = Class::IdentityRevokedOrFenced.remedy();

/// Every one there is; a test compares them with the source and with the page.
pub const CODES: &[Code] = &[
    code("answer_invalid", "update the older of agent and control plane; nothing was kept"),
    code(
        "bundle_invalid",
        "ask an operator for another repair bundle: `enlist node repair-bundle ID --out FILE`",
    ),
    code(
        "bundle_not_kept",
        "see \"Trust bundle updates\" in docs/agent.md; enroll the host again if it has missed a step",
    ),
    code("bundle_of_another", "use the repair bundle on the host that it was made for"),
    code(
        "ca_file_unusable",
        "name a PEM file with the control plane's CA: `enlist ca export --server` writes it",
    ),
    code(
        "cert_expired",
        "nothing if recovery is ready; otherwise give it a repair bundle: `enlist node repair-bundle ID --out FILE`",
    ),
    code("clock_skew", CLOCK),
    code("config_invalid", "correct the settings that are named"),
    code("config_is_link", "replace the symbolic link with the file agent.toml itself"),
    code("config_unreadable", "make agent.toml a UTF-8 text file that this user may read"),
    code("dir_in_use", "stop the daemon that uses the directory, or wait until the other command has ended"),
    code("dir_not_ours", "run the command as the owner of the directory, or change the owner with chown"),
    code("dir_not_private", "choose a directory that only the agent uses, or close this one: chmod 0700"),
    code("dir_unusable", "name a directory with --dir that this user owns or may create"),
    code("disk_full", "make room where the agent's directory is"),
    code(
        "endpoint_profile_drift",
        "run `enlist-agent reconcile`, and check that the address is the control plane's own",
    ),
    code("endpoint_unreachable", "check the network between here and the control plane, and that it runs"),
    code("fault", "run the command again with ENLIST_LOG=debug to see more"),
    code("file_in_the_way", "move the named files away, or set other paths under [files] in agent.toml"),
    code(
        "files_not_linked",
        "let this user write where the links to the identity belong, then run the command again",
    ),
    code("identity_changed", "run the command again"),
    code("identity_damaged", "restore the missing files, or enroll again: `enlist-agent enroll --replace`"),
    code("identity_revoked_or_fenced", REVOKED),
    code("internal", "report a bug with the log lines around it; the agent keeps running"),
    code(
        "key_exposed",
        "if no other user has read the key, close it with chmod 0600; otherwise have an operator revoke the node, and enroll with --replace",
    ),
    code("key_unusable", "remove the directory `pending`, then run the command again"),
    code("metrics_listen_unusable", "choose another port for metrics_listen in agent.toml"),
    code("metrics_not_written", "let this user write the file that metrics_textfile names"),
    code("not_enrolled", "enroll with a token: an operator creates one with `enlist token create`"),
    code("not_persisted", "make room in the directory, and let this user write there"),
    code("plain_http_refused", "use https://"),
    code(
        "recovery_enrollment_blocked",
        "give it a repair bundle: `enlist node repair-bundle ID --out FILE`, then `enlist-agent recover --bundle FILE`",
    ),
    code("runtime_failed", "check that the process may open files and start threads"),
    code(
        "server_missing",
        "set the control plane with --server, ENLIST_AGENT_SERVER or `server` in agent.toml",
    ),
    code(
        "server_tls_untrusted",
        "check CA file or pin, and this host's clock: `enlist ca show` prints the right pin",
    ),
    code("storage_memory", "set storage = \"disk\" to use `enroll`"),
    code("token_missing", "pass a token with `--token -`, `--token-file F` or ENLIST_AGENT_TOKEN"),
    code("token_unreadable", "name a file that this user may read and that holds only the token"),
    code("trust_missing", "say how to verify the control plane: --ca-file, --ca-pin or --system-roots"),
    code("usage", "see `enlist-agent --help`"),
];

/// The usual remedy for a trouble of this name, if it is one of ours.
pub fn remedy(word: &str) -> Option<&'static str> {
    CODES.iter().find(|code| code.word == word).map(|code| code.remedy)
}
