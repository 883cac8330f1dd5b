//! Hardware identities as pact writes them: several MAC addresses in one string, what it has no field for in a map.

use crate::http::failure::Failure;
use api::code;
use api::doors::pact::enrollment::HardwareIdentity as WireHardware;
use lifecycle::names::Mac;
use lifecycle::registry::{HardwareIdentity, HardwareText, Node};
use std::collections::{BTreeSet, HashMap};

const SEPARATOR: char = ';';
const SYSTEM_UUID: &str = "system_uuid";
const TPM_EK_HASH: &str = "tpm_ek_hash";

/// What a machine says of itself.
pub fn claimed(said: Option<&WireHardware>) -> Result<HardwareIdentity, Failure> {
    Ok(HardwareIdentity::claimed(&text(said)?)?)
}

/// What an operator says of a machine.
pub fn registered(said: Option<&WireHardware>) -> Result<HardwareIdentity, Failure> {
    Ok(HardwareIdentity::registered(&text(said)?)?)
}

fn text(said: Option<&WireHardware>) -> Result<HardwareText<'_>, Failure> {
    let said = said.ok_or_else(|| Failure::new(code::BAD_REQUEST, "hardware_identity is required"))?;
    let extra = |key: &str| said.extra.get(key).map(String::as_str).unwrap_or_default();
    let macs = said.mac_address.split(SEPARATOR).map(str::trim).filter(|mac| !mac.is_empty());
    Ok(HardwareText {
        macs: macs.collect(),
        bmc_serial: &said.bmc_serial,
        system_uuid: extra(SYSTEM_UUID),
        tpm_ek_hash: extra(TPM_EK_HASH),
    })
}

pub fn sent(identity: &HardwareIdentity) -> WireHardware {
    let some = |key: &str, text: &Option<String>| text.clone().map(|text| (key.to_owned(), text));
    let extra = [some(SYSTEM_UUID, &identity.system_uuid), some(TPM_EK_HASH, &identity.tpm_ek_hash)];
    WireHardware {
        mac_address: joined(&identity.macs),
        bmc_serial: identity.bmc_serial.clone().unwrap_or_default(),
        extra: extra.into_iter().flatten().collect::<HashMap<_, _>>(),
    }
}

/// Nothing for a node that was not registered by its hardware.
pub fn mac_address(node: &Node) -> String {
    node.identity.as_ref().map(|identity| joined(&identity.macs)).unwrap_or_default()
}

fn joined(macs: &BTreeSet<Mac>) -> String {
    macs.iter().map(ToString::to_string).collect::<Vec<_>>().join(&SEPARATOR.to_string())
}
