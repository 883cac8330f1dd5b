//! The words with which this program itself names a trouble, each with one line of remedy and a section in
//! docs/errors/agent.md. What the control plane says has codes of its own, one page each beside that one.

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

/// Every one there is; a test compares them with the source and with the page.
pub const CODES: &[Code] = &[
    code("answer_invalid", "update the older of agent and control plane; nothing was kept"),
    code(
        "bundle_invalid",
        "ask an operator for another repair bundle: `enlist node repair-bundle ID --out FILE`",
    ),
    code(
        "bundle_not_kept",
        "see \"Whom it trusts next\" in docs/agent.md; a host left behind is enrolled again",
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
    code("config_invalid", "correct what is named"),
    code("config_is_link", "put agent.toml itself there instead of a symbolic link"),
    code("config_unreadable", "make agent.toml a UTF-8 text file that this user may read"),
    code("dir_in_use", "stop the daemon that works in the directory, or wait for the other command"),
    code("dir_not_ours", "run as the directory's owner, or change the owner with chown"),
    code("dir_not_private", "choose a directory for the agent alone, or close this one: chmod 0700"),
    code("dir_unusable", "name a directory with --dir that this user may make or owns"),
    code("disk_full", "make room where the agent's directory is"),
    code(
        "endpoint_profile_drift",
        "run `enlist-agent reconcile`, and check that the address is the control plane's own",
    ),
    code("endpoint_unreachable", "check the network between here and the control plane, and that it runs"),
    code("fault", "run it again with ENLIST_LOG=debug to see more"),
    code("file_in_the_way", "move away what is named, or name another place under [files] in agent.toml"),
    code("files_not_linked", "see that this user may write where the identity is wanted, then run it again"),
    code("identity_changed", "run it again"),
    code("identity_damaged", "put back what is missing, or enroll anew: `enlist-agent enroll --replace`"),
    code(
        "identity_revoked_or_fenced",
        "ask an operator why; `enlist-agent enroll` with a new token gives another identity",
    ),
    code("internal", "tell the makers what the log says around it; the agent goes on"),
    code("key_exposed", "close the key with chmod 0600, or have the node revoked and enroll with --replace"),
    code("key_unusable", "remove the directory `pending`, then run it again"),
    code("metrics_listen_unusable", "choose another port for metrics_listen in agent.toml"),
    code("metrics_not_written", "see that this user may write where metrics_textfile points"),
    code("not_enrolled", "give a token: an operator makes one with `enlist token create`"),
    code("not_persisted", "make room in the directory, and see that this user may write there"),
    code("plain_http_refused", "use https://"),
    code(
        "recovery_enrollment_blocked",
        "give it a repair bundle: `enlist node repair-bundle ID --out FILE`, then `enlist-agent recover --bundle FILE`",
    ),
    code("runtime_failed", "see that the process may open files and start threads"),
    code(
        "server_missing",
        "name the control plane with --server, ENLIST_AGENT_SERVER or `server` in agent.toml",
    ),
    code(
        "server_tls_untrusted",
        "check CA file or pin, and this host's clock: `enlist ca show` prints the right pin",
    ),
    code("storage_memory", "set storage to \"disk\" to enroll by hand"),
    code("token_missing", "pass it with `--token -`, `--token-file F` or ENLIST_AGENT_TOKEN"),
    code("token_unreadable", "name a file that this user may read and that holds only the token"),
    code(
        "trust_missing",
        "say by what the control plane is recognised: --ca-file, --ca-pin or --system-roots",
    ),
    code("usage", "see `enlist-agent --help`"),
];

/// The usual remedy for a trouble of this name, if it is one of ours.
pub fn remedy(word: &str) -> Option<&'static str> {
    CODES.iter().find(|code| code.word == word).map(|code| code.remedy)
}
