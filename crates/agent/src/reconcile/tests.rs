use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use super::*;

const OTHERS: &str = "127.0.0.1 localhost\n10.9.9.9 theirs.example\n";

struct World {
    top: tempfile::TempDir,
    upkeep: Upkeep,
}

impl World {
    fn new(hosts: &str) -> Self {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("agent");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(dir.join("agent.toml"), format!("hosts_file = '../hosts'\n{hosts}")).unwrap();
        fs::write(top.path().join("hosts"), OTHERS).unwrap();
        let upkeep = config::load(&dir, Values::new(), &Environment::default()).unwrap().upkeep;
        Self { top, upkeep }
    }

    fn dir(&self) -> PathBuf {
        self.top.path().join("agent")
    }

    fn run(&self, profile: Option<&StoredEndpointProfile>, scope: ReconcileScope) -> ReconcileReport {
        run(ReconcilePlaces::on_disk(&self.dir()), &self.upkeep, profile, scope)
    }

    fn hosts(&self) -> String {
        fs::read_to_string(self.top.path().join("hosts")).unwrap()
    }
}

fn profile(hosts: &[(&str, &str)]) -> StoredEndpointProfile {
    let hosts = hosts.iter().map(|(name, address)| ((*name).to_owned(), (*address).to_owned())).collect();
    StoredEndpointProfile { id: "p".to_owned(), api_urls: Vec::new(), terminal_url: String::new(), hosts }
}

#[test]
fn a_mapping_is_restored_and_then_nothing_is_written_any_more() {
    let world = World::new("[hosts]\n'cp.example' = '10.0.0.1'\n");
    let profile = profile(&[("cp.example", "10.0.0.9"), ("t.example", "10.0.0.2")]);
    let report = world.run(Some(&profile), ReconcileScope::BY_ITSELF);
    assert!(report.ok, "{report:?}");
    let text = world.hosts();
    assert!(text.starts_with(OTHERS) && text.contains("10.0.0.1 cp.example\n10.0.0.2 t.example\n"), "{text}");
    let before = fs::metadata(world.top.path().join("hosts")).unwrap();
    let report = world.run(Some(&profile), ReconcileScope::BY_ITSELF);
    assert!(report.ok && report.drift.is_empty() && report.changed.is_empty(), "{report:?}");
    assert_eq!(fs::metadata(world.top.path().join("hosts")).unwrap().ino(), before.ino());
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let world = World::new("[hosts]\n'cp.example' = '10.0.0.1'\n");
    let report = world.run(None, ReconcileScope::LOOK);
    assert!(report.changed.iter().any(|finding| finding.what == "cp.example"), "{report:?}");
    assert_eq!(world.hosts(), OTHERS);
    assert!(!world.dir().join("identity").exists());
}

#[test]
fn what_somebody_else_maps_is_told_with_both_addresses() {
    let world = World::new("[hosts]\n'theirs.example' = '10.0.0.1'\n");
    let report = world.run(None, ReconcileScope::BY_ITSELF);
    assert!(!report.ok);
    let failure = &report.faults[0];
    assert_eq!((failure.finding.found.as_str(), failure.finding.expected.as_str()), ("10.9.9.9", "10.0.0.1"));
    assert_eq!(report.trouble().unwrap().0.as_str(), "endpoint_profile_drift");
    assert_eq!(world.hosts(), OTHERS);
}

#[test]
fn a_profile_cannot_write_anything_else_into_the_file() {
    let world = World::new("");
    let evil = profile(&[
        ("localhost", "10.0.0.1"),
        ("a\n10.6.6.6 bank.example", "10.0.0.1"),
        ("b", "10.0.0.1 bank.example"),
        ("good.example", "10.0.0.3"),
    ]);
    let report = world.run(Some(&evil), ReconcileScope::BY_ITSELF);
    assert_eq!(report.faults.len(), 3, "{report:?}");
    let text = world.hosts();
    assert!(text.contains("10.0.0.3 good.example") && !text.contains("bank"), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_a_fault_with_a_class() {
    let mut world = World::new("[hosts]\n'cp.example' = '10.0.0.1'\n");
    world.upkeep.hosts_file = world.top.path().join("no/such/directory/hosts");
    let report = world.run(None, ReconcileScope::BY_ITSELF);
    assert!(!report.ok);
    assert_eq!(report.trouble().unwrap().0.as_str(), "endpoint_profile_drift");
}

#[test]
fn directories_that_are_gone_are_made_again() {
    let mut world = World::new("");
    world.upkeep.paths.runtime = Some(world.top.path().join("run/work"));
    let report = world.run(None, ReconcileScope::BY_ITSELF);
    assert!(report.ok, "{report:?}");
    for path in
        [world.dir().join("diagnostics"), world.dir().join("recovery"), world.top.path().join("run/work")]
    {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700, "{}", path.display());
    }
    assert_eq!(world.hosts(), OTHERS);
}

#[test]
fn secrets_are_closed_by_hand_and_never_through_a_link() {
    let world = World::new("");
    let dir = world.dir();
    fs::create_dir_all(dir.join("identity/0000000001")).unwrap();
    fs::create_dir(dir.join("recovery")).unwrap();
    let victim = world.top.path().join("victim");
    for path in [&dir.join("identity/0000000001/key.pem"), &victim] {
        fs::write(path, "secret").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    symlink(&victim, dir.join("recovery/token")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    world.run(None, ReconcileScope::BY_ITSELF);
    assert_eq!(mode(&dir.join("identity/0000000001/key.pem")), 0o644, "for a person to judge");
    let report = world.run(None, ReconcileScope { secrets: true, dry_run: false });
    assert!(
        report.ok && report.changed.iter().any(|finding| finding.what.ends_with("key.pem")),
        "{report:?}"
    );
    assert_eq!(mode(&dir.join("identity/0000000001/key.pem")), 0o600);
    assert_eq!(mode(&victim), 0o644);
}

#[test]
fn a_directory_that_is_a_link_is_not_walked_through() {
    let world = World::new("");
    let (dir, elsewhere) = (world.dir(), world.top.path().join("elsewhere"));
    fs::create_dir_all(elsewhere.join("0000000001")).unwrap();
    let victims = ["private.key", "token", "0000000001/key.pem"].map(|name| elsewhere.join(name));
    for victim in &victims {
        fs::write(victim, "secret").unwrap();
        fs::set_permissions(victim, fs::Permissions::from_mode(0o640)).unwrap();
    }
    for name in ["wireguard", "recovery", "identity"] {
        symlink(&elsewhere, dir.join(name)).unwrap();
    }
    let report = world.run(None, ReconcileScope { secrets: true, dry_run: false });
    let told = |name: &str| report.faults.iter().any(|failure| failure.finding.what.ends_with(name));
    assert!(told("recovery") && told("identity"), "{report:?}");
    for victim in &victims {
        assert_eq!(fs::metadata(victim).unwrap().mode() & 0o7777, 0o640, "{}", victim.display());
    }
}

#[test]
fn names_of_a_profile_that_is_no_more_leave_the_file() {
    let world = World::new("[hosts]\n'cp.example' = '10.0.0.1'\n");
    world.run(Some(&profile(&[("t.example", "10.0.0.2")])), ReconcileScope::BY_ITSELF);
    assert!(world.hosts().contains("10.0.0.2 t.example\n"));
    let report = world.run(None, ReconcileScope::BY_ITSELF);
    assert!(report.ok, "{report:?}");
    assert!(!world.hosts().contains("t.example") && world.hosts().contains("10.0.0.1 cp.example\n"));
}
