//! The hardware identity of this machine, as the kernel shows it: MAC addresses of its network cards, and what the firmware
//! says of serial numbers and UUID. What is absent is normal; what cannot be used is left out, and why is kept, for the log
//! and for `doctor`.

mod sysfs;

use std::fs;
use std::path::{Path, PathBuf};

use api::agent::HardwareIdentity;
use lifecycle::names::Mac;
use lifecycle::registry::{self, HardwareFault, HardwareText};

/// Serial numbers, the first of which that is real counts as the BMC's.
const SERIALS: [&str; 3] = ["board_serial", "chassis_serial", "product_serial"];
const UUID: &str = "product_uuid";
const DMI: &str = "class/dmi/id";
const NET: &str = "class/net";
/// A host of containers may have thousands of interfaces; more than these are not looked at.
const INTERFACES: usize = 4096;
/// As many as the control plane takes of one machine.
const MACS: usize = 64;
/// Reasons that are kept.
const REASONS: usize = 32;

/// What was found under a sysfs root, and what was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SysfsIdentity {
    pub root: PathBuf,
    /// Canonical, in the order of the interfaces' names, each once.
    pub macs: Vec<String>,
    pub bmc_serial: Option<String>,
    pub system_uuid: Option<String>,
    /// A file below the root, and why it counts for nothing.
    pub ignored: Vec<(String, String)>,
}

/// Reads what is there, within bounds of number and size.
pub fn read(root: &Path) -> SysfsIdentity {
    let mut found = SysfsIdentity { root: root.to_owned(), ..SysfsIdentity::default() };
    for interface in interfaces(root) {
        found.interface(&interface);
    }
    for name in SERIALS {
        let serial = found.value(&format!("{DMI}/{name}"), serial);
        if found.bmc_serial.is_none() {
            found.bmc_serial = serial;
        }
    }
    found.system_uuid = found.value(&format!("{DMI}/{UUID}"), uuid);
    found
}

impl SysfsIdentity {
    /// Whether there is nothing to know the machine by: without an interface, none is registered.
    pub fn is_empty(&self) -> bool {
        self.macs.is_empty()
    }

    pub fn message(&self) -> HardwareIdentity {
        HardwareIdentity {
            macs: self.macs.clone(),
            bmc_serial: self.bmc_serial.clone().unwrap_or_default(),
            system_uuid: self.system_uuid.clone().unwrap_or_default(),
            tpm_ek_hash: String::new(),
        }
    }

    /// In a sentence, for people.
    pub fn listed(&self) -> String {
        let values = [
            (!self.macs.is_empty()).then(|| format!("MAC {}", self.macs.join(", "))),
            self.bmc_serial.as_ref().map(|serial| format!("BMC serial {serial}")),
            self.system_uuid.as_ref().map(|uuid| format!("system UUID {uuid}")),
        ];
        let values: Vec<String> = values.into_iter().flatten().collect();
        if values.is_empty() { "nothing".to_owned() } else { values.join("; ") }
    }

    /// What was left out, and why; nothing if there was nothing.
    pub fn left_out(&self) -> Option<String> {
        let each = self.ignored.iter().map(|(name, why)| format!("{name} {why}"));
        let all: Vec<String> = each.collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Where it was looked, for a machine where nothing was found.
    pub fn looked_at(&self) -> String {
        let root = self.root.display();
        format!("{root}/{NET}/*/address and {root}/{DMI}/{{{},{UUID}}}", SERIALS.join(","))
    }

    /// Of an interface without a `device` link, such as a bridge or the loopback, the address is not the machine's.
    fn interface(&mut self, name: &str) {
        if fs::symlink_metadata(self.root.join(NET).join(name).join("device")).is_err() {
            return;
        }
        let mac = self.value(&format!("{NET}/{name}/address"), mac);
        if let Some(mac) = mac.filter(|mac| !self.macs.contains(mac) && self.macs.len() < MACS) {
            self.macs.push(mac);
        }
    }

    /// The value in a file, if `check` lets it count.
    fn value(&mut self, name: &str, check: fn(&str) -> Result<String, String>) -> Option<String> {
        let read = sysfs::text(&self.root.join(name));
        match read.and_then(|text| text.filter(|text| !text.is_empty()).map(|text| check(&text)).transpose())
        {
            Ok(value) => value,
            Err(why) => {
                if self.ignored.len() < REASONS {
                    self.ignored.push((name.to_owned(), why));
                }
                None
            }
        }
    }
}

/// By name, so that the same machine always says the same.
fn interfaces(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(NET)).into_iter().flatten().take(INTERFACES);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn mac(text: &str) -> Result<String, String> {
    match Mac::parse(text) {
        Ok(mac) => Ok(mac.to_string()),
        Err(_) => Err(format!("is {text:?}, which is not the address of one interface")),
    }
}

/// By the control plane's own rule: what identifies no machine, or what it would not take, is left out here, so that the rest
/// counts.
fn serial(text: &str) -> Result<String, String> {
    usable(text, &HardwareText { bmc_serial: text, ..one_interface() })
}

fn uuid(text: &str) -> Result<String, String> {
    usable(text, &HardwareText { system_uuid: text, ..one_interface() })
}

fn usable(text: &str, alone: &HardwareText<'_>) -> Result<String, String> {
    match registry::HardwareIdentity::registered(alone) {
        Ok(_) => Ok(text.to_owned()),
        Err(HardwareFault::Placeholder { .. }) => Err(format!("is {text:?}: a placeholder, and no identity")),
        Err(
            fault @ (HardwareFault::Mac { .. }
            | HardwareFault::NoMac
            | HardwareFault::TooManyMacs
            | HardwareFault::Text { .. }),
        ) => Err(format!("cannot be used: {fault}")),
    }
}

/// The rule is about a whole machine; any address makes one of a single value.
fn one_interface() -> HardwareText<'static> {
    HardwareText { macs: vec!["02:00:00:00:00:01"], ..HardwareText::default() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join(DMI)).unwrap();
            Self(root)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn dmi(self, name: &str, text: impl AsRef<[u8]>) -> Self {
            fs::write(self.path(DMI).join(name), text).unwrap();
            self
        }

        fn interface(self, name: &str, address: &str, device: bool) -> Self {
            let place = self.path(NET).join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("address"), format!("{address}\n")).unwrap();
            if device {
                symlink("../../../devices/pci0", place.join("device")).unwrap();
            }
            self
        }

        fn read(&self) -> SysfsIdentity {
            read(self.0.path())
        }
    }

    #[test]
    fn cards_serial_and_uuid_are_read_and_virtual_interfaces_are_not() {
        let found = Machine::new()
            .interface("lo", "00:00:00:00:00:00", false)
            .interface("docker0", "02:42:ac:11:00:02", false)
            .interface("eth1", "AA:BB:CC:00:00:02", true)
            .interface("eth0", "aa:bb:cc:00:00:01", true)
            .dmi("board_serial", "BMC-1\n")
            .dmi("chassis_serial", "CH-1\n")
            .dmi("product_uuid", "4C4C4544-0042-3510-8057-B4C04F4A4D32\n")
            .read();
        assert_eq!(found.macs, ["aa:bb:cc:00:00:01", "aa:bb:cc:00:00:02"]);
        assert_eq!(found.bmc_serial.as_deref(), Some("BMC-1"));
        assert!(found.system_uuid.is_some() && found.ignored.is_empty(), "{found:?}");
    }

    #[test]
    fn nothing_at_all_is_no_fault() {
        let found = read(Path::new("/nonexistent"));
        assert!(found.is_empty() && found.ignored.is_empty());
        assert_eq!(found.listed(), "nothing");
        assert!(found.looked_at().contains("/nonexistent/class/net/*/address"));
    }

    #[test]
    fn a_placeholder_is_passed_over_for_the_next_serial_and_named() {
        let found = Machine::new()
            .dmi("board_serial", "To Be Filled By O.E.M.\n")
            .dmi("chassis_serial", "  \n")
            .dmi("product_serial", "SN-7\n")
            .dmi("product_uuid", "00000000-0000-0000-0000-000000000000")
            .read();
        assert_eq!(found.bmc_serial.as_deref(), Some("SN-7"));
        assert_eq!(found.system_uuid, None);
        let told = found.left_out().unwrap();
        assert!(told.contains("board_serial is \"To Be Filled By O.E.M.\""), "{told}");
        assert!(told.contains("product_uuid"), "{told}");
    }

    #[test]
    fn addresses_of_nobody_and_of_many_are_skipped() {
        let found = Machine::new()
            .interface("a", "00:00:00:00:00:00", true)
            .interface("b", "ff:ff:ff:ff:ff:ff", true)
            .interface("c", "01:00:5e:00:00:01", true)
            .interface("ib0", "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:35:01", true)
            .interface("d", "02:00:00:00:00:01", true)
            .interface("e", "02:00:00:00:00:01", true)
            .read();
        assert_eq!(found.macs, ["02:00:00:00:00:01"]);
        assert_eq!(found.ignored.len(), 4, "{found:?}");
    }

    #[test]
    fn a_root_that_lies_neither_blocks_nor_fails() {
        let machine = Machine::new().interface("eth0", "02:00:00:00:00:01", true);
        let dmi = machine.path(DMI);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dmi.join("board_serial"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        symlink("/dev/zero", dmi.join("chassis_serial")).unwrap();
        symlink("product_serial", dmi.join("product_serial")).unwrap();
        fs::create_dir(dmi.join("product_uuid")).unwrap();
        for name in ["eth1", "eth2", "eth3"] {
            fs::create_dir_all(machine.path(NET).join(name).join("device")).unwrap();
        }
        let address = |name: &str| machine.path(NET).join(name).join("address");
        fs::write(address("eth1"), [0xff, 0xfe, 0]).unwrap();
        fs::write(address("eth2"), "0".repeat(1 << 20)).unwrap();
        fs::write(address("eth3"), "02:00:00:00:00:03").unwrap();
        fs::set_permissions(address("eth3"), fs::Permissions::from_mode(0o000)).unwrap();
        let found = machine.read();
        assert!(found.macs.contains(&"02:00:00:00:00:01".to_owned()));
        assert_eq!((found.bmc_serial.as_ref(), found.system_uuid.as_ref()), (None, None));
        assert!(found.ignored.len() >= 6, "{found:?}");
    }
}
