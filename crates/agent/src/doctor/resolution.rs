//! Whether every name that this host needs has an address.

use std::collections::{BTreeMap, BTreeSet};

use client::ServerUrl;
use lifecycle::host::Class;
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::check::Check;
use super::local::listed;
use super::network::PATIENCE;
use super::subject::DoctorSubject;

pub struct Names {
    pub check: Check,
    /// Those that have no address, or not the one that they should have.
    pub lost: BTreeSet<String>,
}

/// Every name that the daemon needs, and those that it keeps in the hosts file.
pub async fn examine(subject: &DoctorSubject, servers: &[ServerUrl]) -> Names {
    const NAME: &str = "resolution";
    let managed = subject.managed();
    let drift: Vec<_> = subject.look.drift.iter().filter(|finding| finding.kind == "name").collect();
    if !drift.is_empty() {
        let lost = drift.iter().map(|finding| finding.what.clone()).collect();
        let drift: Vec<String> = drift.iter().map(ToString::to_string).collect();
        let evidence = format!("{}, in {}", listed(&drift), subject.upkeep.hosts_file.display());
        return Names { check: Check::bad(NAME, Class::EndpointProfileDrift, evidence), lost };
    }
    let of_servers: Vec<String> = servers.iter().map(ServerUrl::host).collect();
    let mut hosts: Vec<String> = of_servers.clone();
    hosts.extend(managed.into_keys());
    hosts.extend(subject.terminal().map(|terminal| terminal.host()));
    let (mut found, mut not_found, mut lost) = (Vec::new(), Vec::new(), BTreeSet::new());
    // One server that is found is enough; of the other names each is needed.
    let (mut none, mut needed) = (!of_servers.is_empty(), false);
    for (host, came) in resolved(hosts).await {
        let of_server = of_servers.contains(&host);
        match came {
            Ok(address) => {
                found.push(format!("{host} is {address}"));
                none &= !of_server;
            }
            Err(reason) => {
                not_found.push(format!("{host} does not resolve: {reason}"));
                needed |= !of_server;
                lost.insert(host);
            }
        }
    }
    if needed || none {
        let remedy = "check this host's DNS, or map the name to its address under [hosts] in agent.toml and run `enlist-agent reconcile`";
        let check = Check::bad(NAME, Class::EndpointUnreachable, listed(&not_found)).with(remedy);
        return Names { check, lost };
    }
    let check = match found.as_slice() {
        [] => Check::moot(NAME, "there is no name to resolve"),
        found => Check::good(NAME, found.join("; ")),
    };
    let check = if not_found.is_empty() { check } else { check.warn(listed(&not_found)) };
    Names { check, lost }
}

/// All at once, each name once.
async fn resolved(hosts: Vec<String>) -> BTreeMap<String, Result<String, String>> {
    let mut asking = JoinSet::new();
    for host in hosts.into_iter().collect::<BTreeSet<String>>() {
        asking.spawn(async move {
            let came = address(&host).await;
            (host, came)
        });
    }
    let mut all = BTreeMap::new();
    while let Some(came) = asking.join_next().await {
        all.extend(came.ok());
    }
    all
}

/// The first, as it is shown.
async fn address(host: &str) -> Result<String, String> {
    match timeout(PATIENCE, lookup_host((host, 0))).await {
        Err(_) => Err("no answer in time".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(mut found)) => found.next().map(|at| at.ip().to_string()).ok_or("no addresses".to_owned()),
    }
}
