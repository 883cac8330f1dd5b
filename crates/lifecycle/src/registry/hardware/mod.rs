//! What tells one machine from another: addresses of its network interfaces, serial numbers, its UUID, the hash of its TPM's
//! endorsement key. None of it is a secret: whoever knows it can say it, which is why a domain has to allow it, may
//! bind it to networks, and why a second enrollment of a machine that is there is an alert.

pub(super) mod register;

use super::{Node, State};
use crate::names::{Mac, NodeId, TenantId};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// More network interfaces than any machine has.
const MACS_MAX: usize = 64;
/// As long as SMBIOS lets a string be that anybody types.
const TEXT_MAX: usize = 64;

/// One of the things that identify a machine, as `kind:value`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HardwareIdentifier(Arc<str>);

/// What identifies a machine. Stored as the list of its identifiers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct HardwareIdentity {
    pub macs: BTreeSet<Mac>,
    pub bmc_serial: Option<String>,
    pub system_uuid: Option<String>,
    pub tpm_ek_hash: Option<String>,
}

/// Why something cannot be the identity of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HardwareFault {
    #[error(
        "{text:?} is no MAC address: six octets such as 52:54:00:12:34:56, neither zero nor broadcast nor multicast"
    )]
    Mac { text: String },
    #[error("a machine is known by at least one MAC address")]
    NoMac,
    #[error("a machine has at most {MACS_MAX} MAC addresses")]
    TooManyMacs,
    #[error("{what} must be {expected}")]
    Text { what: &'static str, expected: &'static str },
    #[error("{text:?} is what machines say that have no {what}: it identifies none")]
    Placeholder { what: &'static str, text: String },
}

/// What a caller says of a machine, as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HardwareText<'a> {
    pub macs: Vec<&'a str>,
    pub bmc_serial: &'a str,
    pub system_uuid: &'a str,
    pub tpm_ek_hash: &'a str,
}

const BMC_SERIAL: &str = "bmc_serial";
const SYSTEM_UUID: &str = "system_uuid";
const TPM_EK_HASH: &str = "tpm_ek_hash";

impl HardwareIdentity {
    /// What an operator registers: what identifies no machine is refused. What is empty is not said.
    pub fn registered(text: &HardwareText<'_>) -> Result<Self, HardwareFault> {
        for (what, value) in [(BMC_SERIAL, text.bmc_serial), (SYSTEM_UUID, text.system_uuid)] {
            if is_placeholder(value) {
                return Err(HardwareFault::Placeholder { what, text: shown(value) });
            }
        }
        Self::read(text)
    }

    /// What a machine says of itself: what identifies no machine is as if it had not been said.
    pub fn claimed(text: &HardwareText<'_>) -> Result<Self, HardwareFault> {
        let real = |value| if is_placeholder(value) { "" } else { value };
        Self::read(&HardwareText {
            bmc_serial: real(text.bmc_serial),
            system_uuid: real(text.system_uuid),
            ..text.clone()
        })
    }

    fn read(text: &HardwareText<'_>) -> Result<Self, HardwareFault> {
        if text.macs.len() > MACS_MAX {
            return Err(HardwareFault::TooManyMacs);
        }
        let mac = |text: &&str| Mac::parse(text.trim()).map_err(|_| HardwareFault::Mac { text: shown(text) });
        let macs: BTreeSet<Mac> = text.macs.iter().map(mac).collect::<Result<_, _>>()?;
        if macs.is_empty() {
            return Err(HardwareFault::NoMac);
        }
        Ok(Self {
            macs,
            bmc_serial: serial(text.bmc_serial)?,
            system_uuid: uuid(text.system_uuid)?,
            tpm_ek_hash: key_hash(text.tpm_ek_hash)?,
        })
    }

    /// Everything that identifies it, each by itself, in the one spelling that it is looked up by: a serial number is the same in
    /// any case.
    pub fn identifiers(&self) -> impl Iterator<Item = HardwareIdentifier> + '_ {
        self.texts().map(|text| HardwareIdentifier(text.to_ascii_lowercase().into()))
    }

    /// The same as it was registered, and is stored.
    fn texts(&self) -> impl Iterator<Item = String> + '_ {
        let named = [
            (BMC_SERIAL, &self.bmc_serial),
            (SYSTEM_UUID, &self.system_uuid),
            (TPM_EK_HASH, &self.tpm_ek_hash),
        ];
        let texts = named.into_iter().filter_map(|(kind, text)| Some((kind, text.as_ref()?)));
        let texts = texts.map(|(kind, text)| format!("{kind}:{text}"));
        self.macs.iter().map(|mac| format!("mac:{mac}")).chain(texts)
    }

    /// Whether a machine that says this of itself is the one registered as `self`: it has one of the interfaces, and everything
    /// else that is registered.
    pub fn is_met_by(&self, claimed: &Self) -> bool {
        let same = |registered: &Option<String>, claimed: &Option<String>| {
            let said = claimed.as_deref().unwrap_or_default();
            registered.as_deref().is_none_or(|known| known.eq_ignore_ascii_case(said))
        };
        !self.macs.is_disjoint(&claimed.macs)
            && same(&self.bmc_serial, &claimed.bmc_serial)
            && same(&self.system_uuid, &claimed.system_uuid)
            && same(&self.tpm_ek_hash, &claimed.tpm_ek_hash)
    }
}

impl HardwareIdentifier {
    fn mac(mac: &Mac) -> Self {
        Self(format!("mac:{mac}").into())
    }
}

impl std::fmt::Display for HardwareIdentifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<Vec<String>> for HardwareIdentity {
    type Error = HardwareFault;

    fn try_from(stored: Vec<String>) -> Result<Self, HardwareFault> {
        let mut text = HardwareText::default();
        for identifier in &stored {
            match identifier.split_once(':') {
                Some(("mac", mac)) => text.macs.push(mac),
                Some((BMC_SERIAL, serial)) => text.bmc_serial = serial,
                Some((SYSTEM_UUID, uuid)) => text.system_uuid = uuid,
                Some((TPM_EK_HASH, hash)) => text.tpm_ek_hash = hash,
                Some(_) | None => {
                    let expected = "a kind of identifier that this version knows";
                    return Err(HardwareFault::Text { what: "a stored hardware identity", expected });
                }
            }
        }
        Self::read(&text)
    }
}

impl From<HardwareIdentity> for Vec<String> {
    fn from(identity: HardwareIdentity) -> Self {
        identity.texts().collect()
    }
}

/// A piece of what was sent, short enough to be shown.
fn shown(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

fn serial(text: &str) -> Result<Option<String>, HardwareFault> {
    let text = text.trim();
    let printable = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if text.len() > TEXT_MAX || !printable {
        let expected = "at most 64 printable ASCII characters";
        return Err(HardwareFault::Text { what: "a serial number", expected });
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn uuid(text: &str) -> Result<Option<String>, HardwareFault> {
    let text = text.trim().to_ascii_lowercase();
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let hex = groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()));
    match text.as_str() {
        "" => Ok(None),
        _ if hex && lengths == [8, 4, 4, 4, 12] => Ok(Some(text)),
        _ => {
            let expected = "a UUID such as 4c4c4544-0036-3510-8052-b4c04f564432";
            Err(HardwareFault::Text { what: "a system UUID", expected })
        }
    }
}

fn key_hash(text: &str) -> Result<Option<String>, HardwareFault> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.strip_prefix("sha256:").unwrap_or(&text);
    match digits.len() {
        0 if text.is_empty() => Ok(None),
        64 if digits.bytes().all(|b| b.is_ascii_hexdigit()) => Ok(Some(digits.to_owned())),
        _ => {
            let expected = "the SHA-256 of a TPM's endorsement key: 64 hex digits";
            Err(HardwareFault::Text { what: "an endorsement key hash", expected })
        }
    }
}

/// What boards and virtual machines say that were never given a serial number or a UUID, without case and signs.
const PLACEHOLDERS: [&str; 24] = [
    "tobefilledbyoem",
    "defaultstring",
    "default",
    "none",
    "null",
    "na",
    "notapplicable",
    "notavailable",
    "notspecified",
    "notprovided",
    "unknown",
    "empty",
    "invalid",
    "oem",
    "serial",
    "serialnumber",
    "systemserialnumber",
    "chassisserialnumber",
    "baseboardserialnumber",
    "boardserialnumber",
    "0123456789",
    "123456789",
    "1234567890",
    "03000200040005000006000700080009",
];

/// Whether a text is what machines say that have no such number: it would identify all of them.
pub fn is_placeholder(text: &str) -> bool {
    let plain: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    if plain.is_empty() {
        return !text.trim().is_empty();
    }
    let first = plain.chars().next();
    let uniform = plain.len() > 1 && plain.chars().all(|c| Some(c) == first);
    uniform || plain == "0" || PLACEHOLDERS.contains(&plain.as_str())
}

impl State {
    /// The nodes that a machine which says this of itself is registered as, tombstones included.
    pub fn nodes_with_hardware(&self, claimed: &HardwareIdentity) -> Vec<&Arc<Node>> {
        let held = claimed.macs.iter().filter_map(|mac| self.hardware.get(&HardwareIdentifier::mac(mac)));
        let ids: BTreeSet<&NodeId> = held.collect();
        let nodes = ids.into_iter().filter_map(|id| self.nodes.get(id));
        let meets = |node: &&Arc<Node>| node.identity.as_ref().is_some_and(|known| known.is_met_by(claimed));
        nodes.filter(meets).collect()
    }

    /// The node that is known by this interface, living or not.
    pub fn node_with_mac(&self, mac: &Mac) -> Option<&NodeId> {
        self.hardware.get(&HardwareIdentifier::mac(mac))
    }

    /// Who is known by one of these identifiers, besides `node` and those that are gone.
    pub(super) fn hardware_holder(&self, node: &NodeId, identity: &HardwareIdentity) -> Option<&Node> {
        let held = identity.identifiers().filter_map(|identifier| self.hardware.get(&identifier));
        let mut others = held.filter(|holder| *holder != node).filter_map(|holder| self.nodes.get(holder));
        others.find(|holder| !holder.state.is_gone()).map(Arc::as_ref)
    }

    /// How many nodes of a tenant that are not gone are known by their hardware.
    pub fn machines_of(&self, tenant: &TenantId) -> u64 {
        self.machines.get(tenant).copied().unwrap_or(0)
    }

    /// Counts the machines of each tenant, which no snapshot holds.
    pub fn count_machines(&mut self) {
        self.machines = OrdMap::new();
        let machines = self.nodes.values().filter(|node| node.identity.is_some() && !node.state.is_gone());
        for tenant in machines.map(|node| node.tenant.clone()).collect::<Vec<_>>() {
            *self.machines.entry(tenant).or_default() += 1;
        }
    }

    /// A node has come to be a machine, or a machine is no more.
    pub(super) fn machine_comes(&mut self, tenant: &TenantId) {
        *self.machines.entry(tenant.clone()).or_default() += 1;
    }

    pub(super) fn machine_goes(&mut self, tenant: &TenantId) {
        match self.machines.get_mut(tenant) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(self.machines.remove(tenant)),
            None => {}
        }
    }

    /// What a node was known by is its own again where nobody else is known by it.
    pub(super) fn reclaim_hardware(&mut self, node: &NodeId) {
        let known = self.nodes.get(node).cloned();
        let identity = known.as_ref().and_then(|node| node.identity.clone());
        if let Some(machine) = known.filter(|_| identity.is_some()) {
            self.machine_comes(&machine.tenant);
        }
        for identifier in identity.iter().flat_map(|identity| identity.identifiers()) {
            let holder = self.hardware.get(&identifier).and_then(|holder| self.nodes.get(holder));
            if holder.is_none_or(|holder| holder.state.is_gone()) {
                self.hardware.insert(identifier, node.clone());
            }
        }
    }

    /// From now on the node is the machine with these identifiers, and with no others.
    pub(super) fn hold_hardware(&mut self, node: &NodeId, identity: &Arc<HardwareIdentity>) {
        let before = self.nodes.get(node).and_then(|node| node.identity.clone());
        for identifier in before.iter().flat_map(|identity| identity.identifiers()) {
            if self.hardware.get(&identifier) == Some(node) {
                self.hardware.remove(&identifier);
            }
        }
        if before.is_none()
            && let Some(tenant) = self.nodes.get(node).map(|node| node.tenant.clone())
        {
            self.machine_comes(&tenant);
        }
        for identifier in identity.identifiers() {
            self.hardware.insert(identifier, node.clone());
        }
        self.change_node(node, |node| node.identity = Some(identity.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(macs: &[&'a str], serial: &'a str) -> HardwareText<'a> {
        HardwareText { macs: macs.to_vec(), bmc_serial: serial, ..HardwareText::default() }
    }

    const MAC: &str = "52:54:00:00:00:01";

    #[test]
    fn what_says_nothing_is_refused_by_an_operator_and_overheard_of_a_machine() {
        for said in ["To Be Filled By O.E.M.", "Default string", "00000000", "xxxx", "N/A", "..", "0"] {
            assert!(is_placeholder(said), "{said}");
            let registered = HardwareIdentity::registered(&text(&[MAC], said));
            assert!(matches!(registered, Err(HardwareFault::Placeholder { .. })), "{said}");
            let claimed = HardwareIdentity::claimed(&text(&[MAC], said)).expect("overheard");
            assert_eq!(claimed.bmc_serial, None, "{said}");
        }
        for real in ["SN12345", "7", "CZ1234ABCD", "US-17 4"] {
            assert!(!is_placeholder(real), "{real}");
        }
        assert!(!is_placeholder(""), "nothing was said");
    }

    #[test]
    fn one_interface_and_all_else_that_is_registered_must_be_there() {
        let both = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
        let registered = HardwareIdentity::registered(&text(&both, "SN1")).expect("well formed");
        let claimed = |macs: &[&'static str], serial| {
            HardwareIdentity::claimed(&text(macs, serial)).expect("well formed")
        };
        assert!(registered.is_met_by(&claimed(&["525400000002", "52:54:00:00:00:09"], " SN1 ")));
        assert!(registered.is_met_by(&claimed(&[MAC], "sn1")), "in any case");
        assert!(!registered.is_met_by(&claimed(&[MAC], "SN2")));
        assert!(!registered.is_met_by(&claimed(&[MAC], "")));
        assert!(!registered.is_met_by(&claimed(&["52:54:00:00:00:09"], "SN1")));
        let bare = HardwareIdentity::registered(&text(&[MAC], "")).expect("well formed");
        assert!(bare.is_met_by(&claimed(&[MAC], "SN9")));
    }

    #[test]
    fn an_identity_is_stored_as_its_identifiers() {
        let identity = HardwareIdentity::registered(&HardwareText {
            macs: vec![MAC],
            bmc_serial: "SN 1",
            system_uuid: "4C4C4544-0036-3510-8052-B4C04F564432",
            tpm_ek_hash: &"A".repeat(64),
        })
        .expect("well formed");
        let stored: Vec<String> = identity.clone().into();
        assert_eq!(stored[..2], ["mac:52:54:00:00:00:01", "bmc_serial:SN 1"]);
        assert_eq!(HardwareIdentity::try_from(stored), Ok(identity));
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        let faults = [
            HardwareText { macs: vec![], ..text(&[], "") },
            HardwareText { macs: vec!["zz"], ..text(&[], "") },
            HardwareText { macs: vec![MAC; MACS_MAX + 1], ..text(&[], "") },
            text(&[MAC], "a\u{7}b"),
            HardwareText { system_uuid: "4c4c4544", ..text(&[MAC], "") },
            HardwareText { tpm_ek_hash: "sha256:", ..text(&[MAC], "") },
        ];
        for fault in faults {
            assert!(HardwareIdentity::registered(&fault).is_err(), "{fault:?}");
        }
    }
}
