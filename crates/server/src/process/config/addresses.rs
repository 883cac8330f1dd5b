//! Where the control plane is reached, as far as its configuration says.

use super::keys::ControlPlaneConfig;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Between replicas.
pub const PEER_PORT: u16 = 8444;

impl ControlPlaneConfig {
    /// The names a host may call the control plane by.
    pub fn certificate_names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let addresses = self.listen.iter().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        names.extend(addresses.map(|ip| ip.to_string()));
        names.extend(self.names.iter().cloned());
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// Where nodes are told to go: as configured, else the first name, else the listen address.
    pub fn advertised(&self, bound: SocketAddr) -> Vec<String> {
        if !self.advertise.is_empty() {
            return self.advertise.clone();
        }
        let host = match self.names.first() {
            Some(_) => self.own_name(),
            None => self.host(bound),
        };
        vec![format!("https://{host}:{}", bound.port())]
    }

    /// Where this address is reached from this machine: by itself, or if it stands for every address by the first name.
    pub fn host(&self, bound: SocketAddr) -> String {
        match bound.ip() {
            ip if ip.is_unspecified() => self.own_name(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        }
    }

    fn own_name(&self) -> String {
        match self.names.first() {
            Some(name) if name.contains(':') => format!("[{name}]"),
            Some(name) => name.clone(),
            None => "localhost".to_owned(),
        }
    }

    /// Where connections between replicas are accepted.
    pub fn peer_address(&self) -> SocketAddr {
        let ip = self.listen.first().map_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), SocketAddr::ip);
        self.peer_listen.unwrap_or(SocketAddr::new(ip, PEER_PORT))
    }

    /// `HOST:PORT` that other replicas are told, before anything listens.
    pub fn peer_name(&self) -> String {
        let address = self.peer_address();
        format!("{}:{}", self.host(address), address.port())
    }

    /// The first of what others are told (the address between replicas, URLs for hosts) that leads each of them to its own machine.
    pub fn misleading_name(&self) -> Option<String> {
        let urls = self.server_url().into_iter().chain(self.advertise.iter().skip(1).cloned());
        std::iter::once(self.peer_name()).chain(urls).find(|told| is_own_machine(host_of(told)))
    }

    /// The URL before anything listens; none while the port is still to be chosen.
    pub fn server_url(&self) -> Option<String> {
        let first = self.listen.first()?;
        let known = !self.advertise.is_empty() || first.port() != 0;
        known.then(|| self.advertised(*first).into_iter().next()).flatten()
    }
}

/// The host of `HOST:PORT` or of a URL, without brackets.
pub fn host_of(address: &str) -> &str {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split([':', '/']).next().unwrap_or_default(),
    }
}

/// Whether whoever connects to this host connects to the machine it is on: `localhost`, loopback, and what stands for every address.
pub fn is_own_machine(host: &str) -> bool {
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback() || ip.to_canonical().is_unspecified();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_everybody_to_the_own_machine_is_known() {
        for own in [
            "localhost:8444",
            "https://LOCALHOST:8443",
            "127.0.0.2:1",
            "[::1]:8444",
            "[::]:8444",
            "https://0.0.0.0/",
        ] {
            assert!(is_own_machine(host_of(own)), "{own}");
        }
        for elsewhere in [
            "cp-2.example.org:8444",
            "https://192.0.2.7:8443",
            "[2001:db8::1]:8444",
            "https://localhost.example",
        ] {
            assert!(!is_own_machine(host_of(elsewhere)), "{elsewhere}");
        }
    }
}
