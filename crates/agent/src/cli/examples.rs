//! What stands below the help of each command: examples, and what else there is to know. No line is wider than 80
//! columns, so that none is broken at a usual terminal.

pub const PROGRAM: &str = "\
Exit codes: 0 done, 1 fault, 2 usage or configuration, 3 refused by the control
plane, 4 unreachable. ENLIST_LOG sets the level of the log on standard error:
error, warn, info, debug or trace.

Examples:
  enlist-agent doctor --server https://cp.example:8443 --ca-file ca.pem
      Check whether this host can enroll
  enlist-agent enroll --server https://cp.example --ca-file ca.pem --token -
      Enroll it, with the token on standard input
  enlist-agent run
      Keep its certificate valid";

pub const ENROLL: &str = "\
Settings that are not given as flags are taken from ENLIST_AGENT_SERVER,
ENLIST_AGENT_CA_FILE, ENLIST_AGENT_CA_PIN, ENLIST_AGENT_SYSTEM_ROOTS,
ENLIST_AGENT_TOKEN or ENLIST_AGENT_TOKEN_FILE, then from DIR/agent.toml.

Examples:
  enlist-agent enroll --server https://cp.example --ca-file ca.pem --token -
      Enroll with the token on standard input, and verify the control plane with
      its CA
  enlist-agent enroll --replace --token-file token
      Enroll again with the token in a file; server and CA are in agent.toml";

pub const RUN: &str = "\
Settings that are not given as flags are taken from ENLIST_AGENT_SERVER,
ENLIST_AGENT_CA_FILE, ENLIST_AGENT_CA_PIN, ENLIST_AGENT_SYSTEM_ROOTS,
ENLIST_AGENT_TOKEN or ENLIST_AGENT_TOKEN_FILE, then from DIR/agent.toml.

Examples:
  enlist-agent run
      Keep the identity in /var/lib/enlist-agent valid, until SIGTERM
  enlist-agent run --server https://cp.example:8443 --system-roots --token -
      Enroll first, if the directory holds no identity. With the attestor
      \"hardware\" in agent.toml that takes no token";

pub const STATUS: &str = "\
Examples:
  enlist-agent status
      Show the identity in /var/lib/enlist-agent, as the daemon reports it or
      else as it is on disk
  enlist-agent status --json
      The same as JSON: state, certificate, ready, and the reasons why not";

pub const DOCTOR: &str = "\
Examples:
  enlist-agent doctor
      Check an enrolled host: network, trust, clock, disk, permissions,
      certificate, recovery
  enlist-agent doctor --server https://cp.example:8443 --ca-file ca.pem
      Check before enrolling; writes nothing";

pub const RECONCILE: &str = "\
Examples:
  enlist-agent reconcile --dry-run
      Show what differs from agent.toml and the endpoint profile
  enlist-agent reconcile
      Restore it";

pub const RECOVER: &str = "\
The daemon recovers by itself, and only one process may use DIR: stop the
daemon, recover, start it again.

Examples:
  enlist-agent recover
      Recover with the recovery token in /var/lib/enlist-agent/recovery
  enlist-agent recover --bundle repair.json
      Recover with a repair bundle from an operator";

pub const SESSION: &str = "\
Examples:
  enlist-agent session --kind shell --user alice -- bash -l
      Give alice a shell that `enlist node show` lists
  enlist-agent session --kind exec --user root -- nvidia-smi -L
      Run one command as a session";

pub const COMPLETIONS: &str = "\
Example:
  enlist-agent completions bash > /etc/bash_completion.d/enlist-agent
      Complete commands and flags in bash";

pub const VERSION: &str = "\
Example:
  enlist-agent version
      Print the version";

pub const MAN: &str = "\
Examples:
  enlist-agent man --out /usr/local/share/man/man1
      Install one manual page per command
  enlist-agent man > enlist-agent.1
      Write all pages, one after the other, to one file";
