//! What `enlist dev --replicas` prints: where each replica is, and how to see that one may die.

use super::Demo;
use super::directory::{DevDirectory, RootKeyFile};
use super::processes::{ReplicaEnded, ReplicaProcess};
use super::summary::{active_root_key, ending, root_key_place};
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use crate::shell::{self, quoted};
use api::rest::cluster::Cluster;
use api::rest::nodes::NodeItem;
use api::rest::tokens::MintedToken;
use serde::Serialize;
use std::path::Path;

pub struct ClusterSession<'a> {
    pub directory: &'a DevDirectory,
    /// This program, as another terminal finds it.
    pub enlist: &'a Path,
    /// The agent's program.
    pub agent: &'a Path,
    pub replicas: Vec<ReplicaLine>,
    pub root_key: RootKeyFile,
    /// For a node of the user's own.
    pub token: &'a MintedToken,
    pub demo: Option<&'a Demo>,
    pub once: bool,
}

/// One replica, as it is when everything is up.
#[derive(Serialize)]
pub struct ReplicaLine {
    replica_id: String,
    role: &'static str,
    server_url: String,
    peer: String,
    dir: String,
    pid: i32,
}

impl ReplicaLine {
    /// `seen` is what the replica itself says.
    pub fn new(process: &ReplicaProcess, server_url: String, seen: &Cluster) -> Self {
        let own = seen.replicas.iter().find(|item| item.replica_id == seen.replica_id);
        Self {
            replica_id: seen.replica_id.clone(),
            role: own.map_or("learner", |item| item.role.as_str()),
            server_url,
            peer: own.map(|item| item.peer.clone()).unwrap_or_default(),
            dir: process.dir.path().display().to_string(),
            pid: process.pid.as_raw_nonzero().get(),
        }
    }

    fn leads(&self) -> bool {
        self.role == "leader"
    }
}

#[derive(Serialize)]
struct ClusterSummary<'a> {
    dir: String,
    server_url: &'a str,
    ca_pin: &'a str,
    token: &'a MintedToken,
    demo_node: Option<&'a NodeItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_key: Option<String>,
    replicas: &'a [ReplicaLine],
}

pub fn print(session: &ClusterSession<'_>, output: Output) -> Result<(), CommandError> {
    let summary = ClusterSummary {
        dir: session.directory.path(),
        server_url: session.replicas.first().map(|replica| replica.server_url.as_str()).unwrap_or_default(),
        ca_pin: &session.token.ca_pin,
        token: session.token,
        demo_node: session.demo.map(|demo| &demo.node),
        root_key: active_root_key(session.directory, session.root_key),
        replicas: &session.replicas,
    };
    output.document(&summary, |summary| text(session, summary, output.screen()))
}

const LABELS: [&str; 5] = ["replica 1", "replica 2", "replica 3", "replica 4", "replica 5"];

fn text(session: &ClusterSession<'_>, summary: &ClusterSummary<'_>, screen: Screen) -> String {
    let mut fields = Fields::new()
        .with("data directory", &summary.dir)
        .with_some("root key", root_key_place(session.directory, session.root_key).as_deref())
        .with("logs", &session.directory.replica_log(None).display().to_string());
    for (label, replica) in LABELS.into_iter().zip(summary.replicas) {
        let ReplicaLine { role, server_url, dir, pid, .. } = replica;
        fields = fields.with(label, &format!("{role}, process {pid}, {server_url}, {dir}"));
    }
    let fields = fields.with_some("demo node", session.demo.map(|demo| demo.story.as_str()));
    format!(
        "{} replicas of a control plane are running.\n\
         Not for production: all its keys, also the root key, lie in one directory.\n\n\
         {}\n{}",
        summary.replicas.len(),
        fields.text_on(screen),
        if session.once { ending(session.directory, screen) } else { steps(session, summary, screen) }
    )
}

/// What to do in another terminal. These lines are pasted into a shell.
fn steps(session: &ClusterSession<'_>, summary: &ClusterSummary<'_>, screen: Screen) -> String {
    let ClusterSummary { ca_pin, token, replicas, .. } = summary;
    let (enlist, agent) = (quoted(session.enlist), quoted(session.agent));
    let (base, demo) = (quoted(session.directory.base()), quoted(&session.directory.demo_agent()));
    let mine = quoted(&session.directory.base().join("my-agent"));
    let shown = |line: String| shell::paragraph(&line, screen);
    let place = |replica: Option<&ReplicaLine>| {
        replica.map(|replica| quoted(Path::new(&replica.dir))).unwrap_or_default()
    };
    let leader = replicas.iter().find(|replica| replica.leads());
    let follower = replicas.iter().find(|replica| !replica.leads());
    // Not that of the leader, which is about to be killed.
    let server_url = follower.map_or(summary.server_url, |follower| follower.server_url.as_str());
    let follower = place(follower);
    let keep = match session.demo {
        Some(_) => format!(
            "Keep the demo node connected; it goes to another replica when its own dies:\n{}",
            shown(format!("{agent} run --dir {demo}"))
        ),
        None => String::new(),
    };
    format!(
        "In another terminal, watch them:\n{watch}\
         Kill the leader; some seconds later another one leads:\n{kill}\
         Start it again; it catches up and follows:\n{again}\n\
         {keep}\
         Enroll a node of your own.\n\
         The token works once, until {expires}:\n{enroll}\n\
         Ctrl-C stops the replicas.\n\
         To undo everything, stop them and their agents first, then:\n{undo}",
        watch = shown(format!("{enlist} --dir {follower} cluster status --watch")),
        kill = shown(format!("kill -9 {}", leader.map(|leader| leader.pid).unwrap_or_default())),
        again = shown(start_again(&enlist, &place(leader))),
        expires = screen.full(&token.expires_at),
        enroll = shown(format!(
            "echo {} | {agent} enroll --server {server_url} --ca-pin {ca_pin} --token - --dir {mine}",
            token.token.reveal()
        )),
        undo = shown(format!("rm -rf {base}")),
    )
}

fn start_again(enlist: &str, dir: &str) -> String {
    format!("{enlist} server run --dir {dir}")
}

#[derive(Serialize)]
struct EndedReplica {
    event: &'static str,
    replica: u8,
    pid: i32,
    how: String,
    start_again: String,
}

/// That a replica is not running any more; the others go on.
pub fn print_ended(
    directory: &DevDirectory,
    enlist: &Path,
    ended: &ReplicaEnded,
    output: Output,
) -> Result<(), CommandError> {
    let dir = directory.replica(ended.number);
    let told = EndedReplica {
        event: "replica_ended",
        replica: ended.number,
        pid: ended.pid.as_raw_nonzero().get(),
        how: ended.how.clone(),
        start_again: start_again(&quoted(enlist), &quoted(dir.path())),
    };
    output.document(&told, |told| {
        let EndedReplica { replica, pid, how, start_again, .. } = told;
        let line = shell::paragraph(start_again, output.screen());
        format!("Replica {replica}, process {pid}, {how}. To start it again, in another terminal:\n{line}")
    })
}

/// How to go on, or to be rid of it. With --json everything has been said.
pub fn print_stopped(
    directory: &DevDirectory,
    enlist: &Path,
    started_by_hand: &[u8],
    output: Output,
) -> Result<(), CommandError> {
    if output.is_json() {
        return Ok(());
    }
    let names: Vec<String> = started_by_hand.iter().map(ToString::to_string).collect();
    let left = match names.is_empty() {
        true => String::new(),
        false => {
            let text = format!(
                "Replica {} was started from another terminal and still runs: stop it there.",
                names.join(" and ")
            );
            format!("{}\n", output.screen().hang(0, 0, &text))
        }
    };
    let (enlist, dir) = (quoted(enlist), quoted(directory.base()));
    output.verbatim(&format!(
        "\nStopped.\n{left}All data is kept; start the replicas again with\n  {enlist} dev --dir {dir}\n\
         or stop the agents that you started, and remove the data:\n  rm -rf {dir}\n"
    ))
}
