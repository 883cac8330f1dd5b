//! Names that this host must know by itself, each with its address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Lower-case names, as they are written into the file of host names.
pub type Hosts = BTreeMap<String, IpAddr>;

/// A longer list is a mistake, or somebody else's idea of this host's file.
pub const MOST: usize = 64;

/// One pair, or why it cannot be one. What comes from the control plane goes through here as well, so nothing may
/// pass that would mean something else in the file: no blanks, no line breaks, no comment signs.
pub fn pair(name: &str, address: &str) -> Result<(String, IpAddr), &'static str> {
    let name = name.to_ascii_lowercase();
    if !is_name(&name) {
        return Err("is not a host name");
    }
    if is_own(&name) {
        return Err("is a name of this host itself");
    }
    let address: IpAddr = address.parse().map_err(|_| "has no IP address")?;
    let plain = address.to_canonical();
    if plain.is_unspecified() || plain.is_multicast() || plain == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err("has an address that no host can have");
    }
    Ok((name, address))
}

/// For the log: `name=address`, one after the other.
pub fn listed(hosts: &Hosts) -> String {
    let pairs: Vec<String> = hosts.iter().map(|(name, address)| format!("{name}={address}")).collect();
    pairs.join(" ")
}

/// Names by which programs mean the host they run on, or every host around it.
fn is_own(name: &str) -> bool {
    let first = name.split('.').next().unwrap_or_default();
    matches!(first, "localhost" | "localhost4" | "localhost6" | "broadcasthost")
        || name.ends_with(".localhost")
        || name.starts_with("ip6-")
}

/// Letters, digits and hyphens between dots. The last part is not a number, or it would be read as an address.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(plain)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(part) && !name.rsplit('.').next().is_none_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_one_name_and_one_address_passes() {
        for (name, address) in [("CP.example", "10.0.0.1"), ("api", "2001:db8::1"), ("a_b.c-d", "127.0.0.1")]
        {
            let (kept, _) = pair(name, address).unwrap();
            assert_eq!(kept, name.to_lowercase());
        }
        let long = "a.".repeat(200);
        for name in [
            "",
            "a b",
            "a\nb",
            "a#",
            "-a",
            "a-",
            "a..b",
            ".a",
            "10.0.0.1",
            "1",
            "localhost",
            "x.localhost",
            "Localhost.localdomain",
            "localhost4",
            "localhost6.localdomain6",
            "ip6-localhost",
            "ip6-allnodes",
            "broadcasthost",
            &long,
        ] {
            assert!(pair(name, "10.0.0.1").is_err(), "{name:?}");
        }
        for address in [
            "",
            "10.0.0",
            "10.0.0.1 evil",
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "fe80::1%eth0",
        ] {
            assert!(pair("cp", address).is_err(), "{address:?}");
        }
    }
}
