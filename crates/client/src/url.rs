//! Where a control plane is: `https://host[:port]`, and nothing else.

use rustls_pki_types::ServerName;
use std::net::Ipv6Addr;

/// Where a control plane listens unless told otherwise. Not 443: an address without a port means Enlist's own.
pub const DEFAULT_PORT: u16 = 8443;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("{0} would send secrets in the clear: use https://")]
    PlainHttp(String),
    #[error("{0} is not a server address: expected https://HOST or https://HOST:PORT")]
    Malformed(String),
}

/// A server that can only be reached over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    name: ServerName<'static>,
    port: u16,
}

impl From<ServerUrl> for Vec<ServerUrl> {
    fn from(server: ServerUrl) -> Self {
        vec![server]
    }
}

impl ServerUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let malformed = || UrlError::Malformed(text.to_owned());
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(malformed)?;
        if scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::PlainHttp(text.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(malformed());
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']').ok_or_else(malformed)?;
                host.parse::<Ipv6Addr>().map_err(|_| malformed())?;
                (
                    host,
                    if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(malformed)?) },
                )
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            None => DEFAULT_PORT,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port != 0).ok_or_else(malformed)?
            }
            Some(_) => return Err(malformed()),
        };
        // Refuses everything that is neither a DNS name nor an address: paths, queries, user names.
        let name = ServerName::try_from(host.to_owned()).map_err(|_| malformed())?;
        Ok(Self { name, port })
    }

    /// One whose parts were read elsewhere.
    pub(crate) fn at(name: ServerName<'static>, port: u16) -> Self {
        Self { name, port }
    }

    /// What the server's certificate must be valid for.
    pub fn name(&self) -> &ServerName<'static> {
        &self.name
    }

    /// Without brackets.
    pub fn host(&self) -> String {
        self.name.to_str().into_owned()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        match self.name {
            ServerName::IpAddress(rustls_pki_types::IpAddr::V6(_)) => {
                format!("[{}]:{}", self.host(), self.port)
            }
            _ => format!("{}:{}", self.host(), self.port),
        }
    }
}

impl std::fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

impl std::str::FromStr for ServerUrl {
    type Err = UrlError;
    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        for (text, whole) in [
            ("https://enlist.example", "https://enlist.example:8443"),
            ("https://enlist.example/", "https://enlist.example:8443"),
            ("HTTPS://enlist.example:443", "https://enlist.example:443"),
            ("https://192.0.2.7:9000", "https://192.0.2.7:9000"),
            ("https://[2001:db8::7]", "https://[2001:db8::7]:8443"),
            ("https://[::1]:9000/", "https://[::1]:9000"),
            (" https://localhost:1\n", "https://localhost:1"),
        ] {
            assert_eq!(ServerUrl::parse(text).map(|url| url.to_string()), Ok(whole.to_owned()), "{text}");
        }
    }

    #[test]
    fn plain_http_is_refused_by_name() {
        for text in ["http://enlist.example", "HTTP://enlist.example:8443"] {
            assert_eq!(ServerUrl::parse(text), Err(UrlError::PlainHttp(text.to_owned())));
        }
    }

    #[test]
    fn what_is_no_server_address_is_refused() {
        for bad in [
            "",
            "enlist.example",
            "enlist.example:8443",
            "ftp://enlist.example",
            "https://",
            "https://:8443",
            "https://a:0",
            "https://a:65536",
            "https://a:",
            "https://a:+1",
            "https://a/path",
            "https://a?q",
            "https://a#f",
            "https://user@a",
            "https://user:pass@a:1",
            "https://2001:db8::7",
            "https://[::1",
            "https://[::1]x",
            "https://[a]",
            "https://a b",
        ] {
            assert!(matches!(ServerUrl::parse(bad), Err(UrlError::Malformed(_))), "{bad}");
        }
    }
}
