//! `enlist cluster`: the replicas of the control plane.

use crate::clock;
use crate::command_line::duration;
use crate::confirm::ConfirmFlag;
use crate::error::{CommandError, not_the_secret};
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::shell;
use crate::table::{Table, Tone, harmless, or_dash};
use api::code::{self, Code};
use api::rest::cluster::{
    Cluster, CreateReplicaTokenRequest, MintedReplicaToken, REPLICA_TOKEN_PREFIX, RemoveReplicaRequest,
    ReplicaHealth,
};
use client::OperatorApi;
use client::rest::Path;
use std::io::IsTerminal;
use std::time::Duration;

/// Between two looks.
const WATCH: Duration = Duration::from_secs(1);
/// To the upper left corner; erase to the end of the line and go to the next; erase what is below.
const HOME: &str = "\x1b[H";
const OVER: &str = "\x1b[K\n";
const BELOW: &str = "\x1b[J";
const AGAIN: &str = "It is asked again every second. To watch from another replica, name that one with `--dir` or `--server`.";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the replicas: which one leads, how far each has come, whether it can be reached
    Status {
        /// Show it again every second, until interrupted
        #[arg(long)]
        watch: bool,
    },
    /// Create a token that lets one replica join; its value is shown only once
    Token {
        /// Lifetime of the token, such as 90s, 15m or 1h [default: policy token.default_ttl]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires: Option<String>,
    },
    /// Remove a replica for good: its certificate is denied, and it can only join again as a new one
    Remove {
        /// Id of the replica (ID in `enlist cluster status`)
        id: String,
        /// Remove it even if the replicas that are left and can be reached are no majority
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: ConfirmFlag,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    match command {
        Command::Status { watch: false } => {
            let cluster: Cluster = operator.get(&Path::new("/v1/cluster")).await?;
            output.document(&cluster, |cluster| status(cluster, output.screen()))
        }
        Command::Status { watch: true } => follow(&operator, reach, output).await,
        Command::Token { expires } => {
            let request = CreateReplicaTokenRequest { expires };
            let minted: MintedReplicaToken =
                operator.post(&Path::new("/v1/cluster/tokens"), &request).await?;
            output.document(&minted, |minted| created(minted, reach, output.screen()))
        }
        Command::Remove { id, force, confirm } => {
            not_the_secret(&id, REPLICA_TOKEN_PREFIX)?;
            let shown = harmless(&id);
            let consequence = format!(
                "replica {shown} is removed for good: it can only join again as a new one, with a new token and an empty directory"
            );
            // What goes through only by force is asked about by the control plane.
            if !force {
                confirm.at_terminal(&consequence, output)?;
            }
            let path = Path::new("/v1/cluster/replicas").segment(&id).segment("remove");
            let request = RemoveReplicaRequest { force, confirm: None };
            let removed: Result<Cluster, client::Error> = operator.post(&path, &request).await;
            let cluster = match removed {
                Ok(cluster) => cluster,
                Err(refused) => {
                    confirm.or_ask(refused, output)?;
                    operator.post(&path, &RemoveReplicaRequest { force, confirm: Some(id.clone()) }).await?
                }
            };
            let screen = output.screen();
            output.document(&cluster, |cluster| {
                if cluster.replica_id == id {
                    return removed_itself(cluster, screen);
                }
                let counts = cluster.replicas.iter().any(|item| item.replica_id == id);
                let next = if !cluster.quorum {
                    "The replicas that are left are no majority, and nothing can be changed until one more of them is back. Keep the removed \
                     one and its directory until `enlist cluster status` no longer lists it."
                } else if counts {
                    "It still counts for the majority: keep it running until `enlist cluster status` no longer lists it."
                } else {
                    "Its process can be stopped and its directory deleted."
                };
                let next = screen.hang(0, 0, next);
                format!("replica {} is removed\n{next}\n\n{}", harmless(&id), status(cluster, screen))
            })
        }
    }
}

/// What the removed replica itself knows of the others is not so any more: they do not talk to it.
fn removed_itself(cluster: &Cluster, screen: Screen) -> String {
    let id = &cluster.replica_id;
    let counts = cluster.replicas.iter().any(|item| item.replica_id == *id);
    let next = if counts {
        "It may still count for the majority: keep it running until another replica no longer lists it."
    } else {
        "The others do without it: its process can be stopped and its directory deleted."
    };
    let others = cluster.replicas.iter().filter(|item| item.replica_id != *id);
    let url = others.filter_map(|item| item.url.as_deref()).next().unwrap_or("URL");
    format!(
        "replica {} is removed\n{}\n{}\n{}",
        harmless(id),
        screen.hang(0, 0, next),
        screen.hang(0, 0, "It was asked itself, and cannot see the cluster any more. Ask another replica:"),
        shell::paragraph(&format!("enlist --server {} cluster status", harmless(url)), screen),
    )
}

/// At a terminal in one place, elsewhere one after the other. A replica that cannot be asked for a moment is asked again.
async fn follow(operator: &OperatorApi, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let in_place = !output.is_json() && std::io::stdout().is_terminal();
    let mut first = true;
    loop {
        let looked: Result<Cluster, client::Error> = operator.get(&Path::new("/v1/cluster")).await;
        // Asked each time: a window may have been resized.
        let screen = if in_place { Screen::of_stdout() } else { output.screen() };
        // From the top, each line over the one before, and what is below it erased: nothing goes to the scrollback.
        let place = |text: &str| match in_place {
            true => format!("{}{}{}", HOME, text.replace('\n', OVER), BELOW),
            false => text.to_owned(),
        };
        let now = harmless(&screen.stamp(&clock::now().to_string()));
        match looked {
            Ok(cluster) => {
                output.document(&cluster, |cluster| place(&format!("{now}\n{}", status(cluster, screen))))?;
            }
            Err(error) if first => return Err(error.into()),
            // In the place of what was seen before, which is no longer so.
            Err(error) if in_place => {
                let why = screen.hang(0, 0, &harmless(&without_watch(reach, &error)));
                output.verbatim(&place(&format!("{now}\n{why}\n\n{}\n", screen.hang(0, 0, AGAIN))))?;
            }
            Err(error) => eprintln!("{now} {}", harmless(&without_watch(reach, &error))),
        }
        first = false;
        tokio::time::sleep(WATCH).await;
    }
}

/// What the command would say that begins now: it looks whether the socket is there, and whether the certificate has expired.
fn without_watch(reach: &Reach, error: &client::Error) -> String {
    let begun = reach.operator().err().and_then(|failure| failure.message().map(ToOwned::to_owned));
    begun.unwrap_or_else(|| error.to_string())
}

fn status(cluster: &Cluster, screen: Screen) -> String {
    let leader = cluster.leader.as_deref().map_or_else(|| "none".to_owned(), |id| format!("replica {id}"));
    let mut exclusions =
        cluster.reasons.iter().filter_map(|word| Code::of(word)).filter(|code| is_exclusion(code));
    let quorum = match (cluster.quorum, cluster.state_age_ms) {
        _ if exclusions.clone().next().is_some() => {
            "not known: the other replicas do not talk to this one".to_owned()
        }
        (true, _) => "yes".to_owned(),
        (false, age) => format!("no: nothing was heard of a majority for {} s", age / 1000),
    };
    let fields = Fields::new()
        .with("domain", &cluster.domain)
        .with("cluster", &cluster.cluster_id)
        .with("asked", &format!("replica {}", cluster.replica_id))
        .with("leader", &leader)
        .with("majority", &quorum)
        .with("term", &cluster.term.to_string())
        .with("epoch", &cluster.epoch.to_string());
    // Of a replica that the others do not talk to, what it says of them means nothing.
    let notice = exclusions.next().map(|code| {
        let text = format!(
            "The other replicas do not talk to replica {} ({}), so what it says of them is not so. {}.",
            cluster.replica_id,
            code.word,
            sentence(code.hint)
        );
        format!("\n{}\n", screen.hang(0, 0, &harmless(&text)))
    });
    let notice = notice.unwrap_or_default();
    let waiting = waiting(cluster).map(|text| format!("\n{}\n", screen.hang(0, 0, &harmless(&text))));
    format!(
        "{}{notice}\n{}{}",
        fields.text_on(screen),
        table(cluster).text(screen),
        waiting.unwrap_or_default()
    )
}

/// Of one that has caught up and does not vote: it is not forgotten.
fn waiting(cluster: &Cluster) -> Option<String> {
    let voters = cluster.replicas.iter().filter(|item| item.voter).count();
    let mut learners = cluster.replicas.iter().filter(|item| !item.voter);
    let (learner, None) = (learners.next()?, learners.next()) else { return None };
    (voters % 2 == 1 && learner.health == ReplicaHealth::Ok && cluster.reasons.is_empty()).then(|| {
        format!(
            "Replica {} does not vote yet: an even number of voters survives no more losses than one voter less. It votes once one more \
             replica has joined.",
            learner.replica_id
        )
    })
}

fn is_exclusion(found: &Code) -> bool {
    [code::REPLICA_REMOVED, code::REPLICA_DUPLICATE, code::REPLICA_ROLLED_BACK].contains(&found)
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn table(cluster: &Cluster) -> Table {
    let head =
        ["ID", "ROLE", "HEALTH", "LAG", "VOTES", "URL", "PEER", "CLOCK", "APPLIED", "AUDIT", "VERSION"];
    let mut table = Table::new(head, "no replicas")
        .painting("HEALTH")
        .dropping(["VERSION", "AUDIT", "APPLIED", "CLOCK", "PEER", "VOTES"]);
    for item in &cluster.replicas {
        let tone = if item.health == ReplicaHealth::Ok { Tone::Plain } else { Tone::Attention };
        let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let clock = item.clock_offset_ms.map_or_else(|| "-".to_owned(), |offset| format!("{offset:+} ms"));
        table.row(
            tone,
            [
                &item.replica_id,
                item.role.as_str(),
                item.health.as_str(),
                &number(item.lag),
                if item.voter { "yes" } else { "no" },
                or_dash(item.url.as_deref()),
                or_dash(Some(item.peer.as_str()).filter(|peer| !peer.is_empty())),
                &clock,
                &number(item.applied),
                &number(item.audit_seq),
                or_dash(item.version.as_deref()),
            ],
        );
    }
    table
}

fn created(minted: &MintedReplicaToken, reach: &Reach, screen: Screen) -> String {
    let fields = Fields::new()
        .with("token", minted.token.reveal())
        .with("id", &minted.token_id)
        .with("expires", &screen.full(&minted.expires_at))
        .with("CA pin", &minted.ca_pin)
        .with("peer", &minted.peer_url);
    let shown = |line: &str| shell::paragraph(line, screen);
    format!(
        "{}\nOn the machine of the new replica, with the domain's key-encryption key at PATH; others reach it by the name HOST:\n{}\
         Then run it; it becomes a voter once there is an odd number of them:\n{}\
         Here, see it arrive:\n{}",
        fields.text_on(screen),
        shown(&harmless(minted.join_command.reveal())),
        shown("enlist server run --dir DIR"),
        shown(&shell::same_target(reach, "cluster status --watch")),
    )
}
