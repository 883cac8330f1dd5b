//! By what this machine would be let in without a token. Listed only where the settings say `attestor = "hardware"`.

use super::check::Check;
use super::subject::DoctorSubject;
use crate::code::AgentCode;
use crate::hardware;

const NAME: &str = "hardware";

pub fn examine(subject: &DoctorSubject) -> Option<Check> {
    let root = subject.config.as_ref().ok()?.sysfs_root.as_ref()?;
    let found = hardware::read(root);
    let left_out = found.left_out();
    if found.is_empty() {
        let why = left_out.map(|why| format!("; left out: {why}")).unwrap_or_default();
        let what =
            format!("no network card with a MAC address of its own: looked at {}{why}", found.looked_at());
        return Some(Check::wrong(NAME, AgentCode::HardwareMissing, what));
    }
    let check = Check::good(NAME, found.listed());
    Some(match left_out {
        Some(why) => check.warn(format!("left out, since it identifies no machine or cannot be read: {why}")),
        None => check,
    })
}

/// How such a machine gets in.
pub fn admission(subject: &DoctorSubject) -> Option<String> {
    let root = subject.config.as_ref().ok()?.sysfs_root.as_ref()?;
    let found = hardware::read(root);
    let flags = found.macs.iter().map(|mac| format!(" --mac {mac}"));
    let serial = found.bmc_serial.iter().map(|serial| format!(" --bmc-serial '{serial}'"));
    let words: String = flags.chain(serial).collect();
    Some(format!(
        "have an operator register this machine (`enlist node register ID{words}`) and allow its attestor (`enlist policy set attestors`), then run `enlist-agent run`"
    ))
}
