//! The alert about the clocks of replicas: one for all of them, raised by the leader, which is never one of those that are off. It
//! names them, and is raised again only if others are. A new leader goes on with the one that is open.

use super::propose;
use crate::cluster::clock::{ReplicaClocks, replica_clocks};
use crate::process::app::App;
use journal::Leadership;
use lifecycle::registry::{AlertKind, Command, RaiseAlert};
use std::collections::BTreeSet;

pub async fn tick(app: &App, leadership: &Leadership) {
    let open =
        app.view().state.open_alert(AlertKind::ClockSkew, None).map(|open| (open.id, open.detail.clone()));
    let named = open.as_ref().map(|(_, detail)| named(detail)).unwrap_or_default();
    let off = still_off(replica_clocks(app), &named);
    match open {
        Some((alert, _)) if off.is_empty() => {
            propose(app, leadership, Command::ClearAlert { alert }).await;
        }
        None if off.is_empty() => {}
        Some(_) if named == off => {}
        Some(_) | None => {
            let detail = detail(&off);
            tracing::error!("{detail}");
            let alert = RaiseAlert { kind: AlertKind::ClockSkew, node: None, detail };
            propose(app, leadership, Command::RaiseAlert(alert)).await;
        }
    }
}

/// One that was named and has not been heard of since this replica leads is taken to be as it was.
fn still_off(clocks: ReplicaClocks, named: &BTreeSet<u64>) -> BTreeSet<u64> {
    let kept = named.intersection(&clocks.unheard).copied();
    clocks.off.iter().copied().chain(kept).collect()
}

fn detail(off: &BTreeSet<u64>) -> String {
    let names: Vec<String> = off.iter().map(ToString::to_string).collect();
    let whose = match names.as_slice() {
        [one] => format!("the clock of replica {one} is"),
        _ => format!("the clocks of replicas {} are", names.join(", ")),
    };
    format!(
        "{whose} more than a minute from the median of the voters' clocks, or jumped; a replica with such a clock does not lead and is not \
         ready until it is corrected"
    )
}

/// The replicas that such a text names.
fn named(detail: &str) -> BTreeSet<u64> {
    let words = detail.split([' ', ',']).take_while(|word| !matches!(*word, "is" | "are"));
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_is_read_again() {
        for off in [BTreeSet::from([2]), BTreeSet::from([1, 2, 12])] {
            assert_eq!(named(&detail(&off)), off);
        }
        let alone = "the control plane's clock says 2026-01-01T00:00:00Z and is 60m ahead of the time that has passed";
        assert_eq!(named(alone), BTreeSet::new());
    }

    #[test]
    fn one_that_is_not_heard_of_is_as_it_was() {
        let clocks = |off: &[u64], unheard: &[u64]| ReplicaClocks {
            off: off.iter().copied().collect(),
            unheard: unheard.iter().copied().collect(),
        };
        let two = BTreeSet::from([2]);
        assert_eq!(still_off(clocks(&[], &[2, 3]), &two), two, "a new leader has not heard of it yet");
        assert_eq!(still_off(clocks(&[], &[3]), &two), BTreeSet::new());
        assert_eq!(still_off(clocks(&[3], &[]), &two), BTreeSet::from([3]));
    }
}
