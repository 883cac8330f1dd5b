//! What a setting's value may be, whether it comes as TOML or as text from the environment.

use std::net::SocketAddr;

use client::ServerUrl;
use lifecycle::names::{Span, TenantId};
use toml::Value;

use super::hosts;
use super::underlay::{PORT, UnderlayAddresses};
use crate::overlay::claim::MTUS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Text,
    /// Of a file or directory.
    Path,
    Pin,
    /// The name of a tenant.
    Tenant,
    Flag,
    /// At least so many.
    Bytes(u64),
    /// How often something is done: a second at least.
    Interval,
    Choice(&'static [&'static str]),
    /// An address of this host that no other can reach, with a port.
    Loopback,
    /// What a metric's name may begin with.
    Prefix,
    /// One or more texts; a single one may stand without brackets. In a variable: separated by commas.
    List,
    /// A command and its arguments. In a variable: separated by commas.
    Command,
    /// Addresses of this host, one of each family, as a list.
    Underlay,
    /// The name of a network interface.
    Interface,
    /// A UDP port.
    Port,
    /// What a packet through an interface may hold, in bytes.
    Mtu,
    /// Where a control plane is.
    Server,
    /// Where sessions go: like a server, but it may have a path, and it may be asked for as a web socket.
    Stream,
    /// Host names with one address each. In a variable: `name=address`, with commas.
    Hosts,
}

impl ValueKind {
    /// What is wrong with this value, if anything.
    pub fn complaint(self, value: &Value) -> Option<String> {
        let right = match (self, value) {
            (ValueKind::Text | ValueKind::Path, Value::String(text)) => !text.is_empty(),
            (ValueKind::Pin, Value::String(text)) => pki::pin::Pin::parse(text).is_ok(),
            (ValueKind::Tenant, Value::String(text)) => TenantId::parse(text).is_ok(),
            (ValueKind::Flag, Value::Boolean(_)) => true,
            (ValueKind::Bytes(least), Value::Integer(bytes)) => {
                u64::try_from(*bytes).is_ok_and(|bytes| bytes >= least)
            }
            (ValueKind::Interval, Value::String(text)) => Span::parse(text).is_ok_and(|span| span.secs() > 0),
            (ValueKind::Choice(words), Value::String(text)) => words.contains(&text.as_str()),
            (ValueKind::Loopback, Value::String(text)) => loopback(text).is_some(),
            (ValueKind::Prefix, Value::String(text)) => is_prefix(text),
            (ValueKind::List, Value::String(text)) => !text.is_empty(),
            (ValueKind::List | ValueKind::Command, Value::Array(items)) => {
                !items.is_empty() && items.iter().all(is_text)
            }
            (ValueKind::Underlay, Value::String(text)) => return self.underlay(value, [text.as_str()]),
            (ValueKind::Underlay, Value::Array(items)) if items.iter().all(is_text) => {
                return self.underlay(value, items.iter().filter_map(Value::as_str));
            }
            (ValueKind::Interface, Value::String(text)) => is_interface(text),
            (ValueKind::Port, Value::Integer(port)) => u16::try_from(*port).is_ok_and(|port| port > 0),
            (ValueKind::Mtu, Value::Integer(mtu)) => u32::try_from(*mtu).is_ok_and(|mtu| MTUS.contains(&mtu)),
            (ValueKind::Server, Value::String(text)) => ServerUrl::parse(text).is_ok(),
            (ValueKind::Stream, Value::String(text)) => stream_host(text).is_some(),
            (ValueKind::Hosts, Value::Table(table)) => return wrong_pair(table),
            _ => false,
        };
        (!right).then(|| format!("{}, expected {}", shown(value), self.expected()))
    }

    fn underlay<'a>(self, value: &Value, texts: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let broken = UnderlayAddresses::check(texts, PORT).err()?;
        Some(format!("{}: {broken}, expected {}", shown(value), self.expected()))
    }

    /// A variable's text as the value it stands for; what cannot be one stays text, for `complaint` to name.
    pub fn value_of(self, text: &str) -> Value {
        let pieces = || text.split(',').map(str::trim).filter(|piece| !piece.is_empty());
        let plain = || Value::String(text.to_owned());
        match self {
            ValueKind::Text
            | ValueKind::Path
            | ValueKind::Pin
            | ValueKind::Tenant
            | ValueKind::Interval
            | ValueKind::Interface
            | ValueKind::Choice(_) => plain(),
            ValueKind::Loopback | ValueKind::Prefix | ValueKind::Server | ValueKind::Stream => plain(),
            ValueKind::Flag => match text {
                "true" | "1" | "yes" => Value::Boolean(true),
                "false" | "0" | "no" => Value::Boolean(false),
                _ => plain(),
            },
            ValueKind::Bytes(_) | ValueKind::Port | ValueKind::Mtu => {
                text.parse().map_or_else(|_| plain(), Value::Integer)
            }
            ValueKind::List | ValueKind::Command | ValueKind::Underlay => {
                Value::Array(pieces().map(|piece| Value::String(piece.to_owned())).collect())
            }
            ValueKind::Hosts => {
                let pair = |(name, value): (&str, &str)| (name.to_owned(), Value::String(value.to_owned()));
                let table: Option<toml::Table> =
                    pieces().map(|piece| piece.split_once('=').map(pair)).collect();
                table.map_or_else(plain, Value::Table)
            }
        }
    }

    /// What a complaint says was expected, and the reference page says may stand there.
    pub fn expected(self) -> String {
        match self {
            ValueKind::Text => "a text that is not empty".to_owned(),
            ValueKind::Path => "a path".to_owned(),
            ValueKind::Pin => "64 hex digits after an optional \"sha256:\"".to_owned(),
            ValueKind::Tenant => "the name of a tenant, such as \"red\"".to_owned(),
            ValueKind::Flag => "true or false".to_owned(),
            ValueKind::Bytes(0) => "a number of bytes".to_owned(),
            ValueKind::Bytes(least) => format!("a number of bytes, at least {least}"),
            ValueKind::Interval => "a duration such as \"90s\", \"15m\", \"1h\" or \"7d\"".to_owned(),
            ValueKind::Choice(words) => format!("one of {}", words.join(", ")),
            ValueKind::Loopback => "an address of this host alone, such as \"127.0.0.1:9273\"".to_owned(),
            ValueKind::Prefix => "letters, digits and underscores, such as \"enlist_agent_\"".to_owned(),
            ValueKind::List => "a list of texts, at least one".to_owned(),
            ValueKind::Command => {
                "a list, the command and its arguments, such as [\"systemctl\", \"reload\", \"nginx\"]"
                    .to_owned()
            }
            ValueKind::Underlay => {
                "an address, such as \"203.0.113.1\" or \"[2001:db8::1]:51820\", or a list of one IPv4 and one IPv6 address with the same port".to_owned()
            }
            ValueKind::Interface => {
                "1 to 15 letters, digits or -_. signs, such as \"wg0\"; not \"all\" or \"default\"".to_owned()
            }
            ValueKind::Port => "a port, 1 to 65535".to_owned(),
            ValueKind::Mtu => format!("a number of bytes, {} to {}", MTUS.start(), MTUS.end()),
            ValueKind::Server => "https://HOST or https://HOST:PORT".to_owned(),
            ValueKind::Stream => {
                "an address such as \"https://HOST:PORT/PATH\" or \"wss://HOST/PATH\"".to_owned()
            }
            ValueKind::Hosts => "a table of host names with one IP address each".to_owned(),
        }
    }
}

/// The address, if only this host can reach it: what the daemon tells is for this host's own collector.
pub fn loopback(text: &str) -> Option<SocketAddr> {
    let text = text.replacen("localhost:", "127.0.0.1:", 1);
    text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback())
}

/// The host and the port of an address for sessions. Never one in the clear.
pub fn stream_host(text: &str) -> Option<ServerUrl> {
    let (scheme, rest) = text.split_once("://")?;
    if !["https", "wss"].contains(&scheme)
        || rest.contains(|sign: char| sign.is_whitespace() || sign.is_control())
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    // Unlike a control plane's, such an address without a port means the usual one.
    let behind = authority.rsplit(']').next().unwrap_or(authority);
    let port = if behind.contains(':') { "" } else { ":443" };
    ServerUrl::parse(&format!("https://{authority}{port}")).ok()
}

/// The first pair that cannot be one.
fn wrong_pair(table: &toml::Table) -> Option<String> {
    if table.len() > hosts::MOST {
        return Some(format!("has {} names, expected at most {}", table.len(), hosts::MOST));
    }
    table.iter().find_map(|(name, address)| {
        let checked = address.as_str().map_or(Err("has no IP address"), |address| hosts::pair(name, address));
        checked.err().map(|what| format!("{name:?} {what}, expected {}", ValueKind::Hosts.expected()))
    })
}

fn is_prefix(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(inner) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// What the kernel takes, without what shells and paths would take otherwise.
fn is_interface(text: &str) -> bool {
    let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // Under these names the kernel keeps the settings of all interfaces.
    let reserved = ["all", "default"].contains(&text);
    (1..=15).contains(&text.len()) && text.bytes().all(sign) && text.trim_matches('.') == text && !reserved
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Short, so that a file pasted into a value does not fill the screen.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() <= 60 => format!("is {text:?}"),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => format!("is {value}"),
        other => format!("is a {}", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_means_what_the_same_key_means() {
        let text = |text: &str| Value::String(text.to_owned());
        assert_eq!(ValueKind::List.value_of("a, b,"), Value::Array(vec![text("a"), text("b")]));
        assert_eq!(ValueKind::Flag.value_of("true"), Value::Boolean(true));
        assert_eq!(ValueKind::Bytes(0).value_of("12"), Value::Integer(12));
        assert_eq!(ValueKind::Hosts.value_of("cp=10.0.0.1").get("cp"), Some(&text("10.0.0.1")));
        for (kind, bad) in [
            (ValueKind::Flag, "maybe"),
            (ValueKind::Bytes(0), "-1"),
            (ValueKind::Bytes(4096), "4095"),
            (ValueKind::Interval, "0s"),
            (ValueKind::List, ","),
            (ValueKind::Server, "http://cp"),
            (ValueKind::Stream, "ws://cp/terminal"),
            (ValueKind::Port, "0"),
            (ValueKind::Port, "65536"),
            (ValueKind::Mtu, "1279"),
            (ValueKind::Mtu, "9001"),
            (ValueKind::Mtu, "1420.0"),
            (ValueKind::Interface, "../wg0"),
            (ValueKind::Interface, "sixteen-letters-"),
            (ValueKind::Interface, ".."),
            (ValueKind::Hosts, "x"),
            (ValueKind::Hosts, "localhost=10.0.0.1"),
        ] {
            assert!(kind.complaint(&kind.value_of(bad)).is_some(), "{kind:?} {bad}");
        }
    }

    #[test]
    fn sessions_may_go_to_a_path_and_by_web_socket() {
        let at = |text: &str| stream_host(text).map(|url| url.authority());
        assert_eq!(at("https://t.example:8443/v1?x"), Some("t.example:8443".to_owned()));
        assert_eq!(at("wss://t.example/terminal"), Some("t.example:443".to_owned()));
        assert_eq!(at("wss://[2001:db8::1]"), Some("[2001:db8::1]:443".to_owned()));
        for bad in ["http://t", "t.example", "https://u:p@t", "https://", "wss://a b", "https://t/a b"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn metrics_are_for_this_host_alone() {
        for good in ["127.0.0.1:9273", "[::1]:0", "localhost:80", "127.9.9.9:1"] {
            assert!(loopback(good).is_some(), "{good}");
        }
        for bad in ["0.0.0.0:9273", "[::]:1", "192.0.2.1:1", "127.0.0.1", "example:1", ":1"] {
            assert!(loopback(bad).is_none(), "{bad}");
        }
        assert!(is_prefix("enlist_agent_") && !is_prefix("") && !is_prefix("1a") && !is_prefix("a-b"));
    }

    #[test]
    fn a_complaint_names_the_value_and_what_was_expected() {
        let complaint = ValueKind::Choice(&["disk", "memory"]).complaint(&Value::String("tape".to_owned()));
        assert_eq!(complaint.as_deref(), Some("is \"tape\", expected one of disk, memory"));
    }
}
