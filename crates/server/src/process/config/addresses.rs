//! Where the control plane is reached, as far as its configuration says.

use super::keys::ControlPlaneConfig;
use std::collections::BTreeSet;
use std::net::SocketAddr;

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
            Some(name) if name.contains(':') => format!("[{name}]"),
            Some(name) => name.clone(),
            None if bound.ip().is_unspecified() => "localhost".to_owned(),
            None if bound.is_ipv6() => format!("[{}]", bound.ip()),
            None => bound.ip().to_string(),
        };
        vec![format!("https://{host}:{}", bound.port())]
    }

    /// The URL before anything listens; none while the port is still to be chosen.
    pub fn server_url(&self) -> Option<String> {
        let first = self.listen.first()?;
        let known = !self.advertise.is_empty() || first.port() != 0;
        known.then(|| self.advertised(*first).into_iter().next()).flatten()
    }
}
