//! Keys in SoftHSM, loaded by the sessions' processes or behind `p11-kit server`, which can be killed.
//!
//! A module finds its tokens by the environment, so each test runs in a process of its own. The processes of sessions are this
//! program too: the test `session`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on may panic")]
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lifecycle::names::{IssuerUse, Timestamp, TrustDomain};
use pki::crl::{Contents, LIFETIME, sign_crl};
use pki::hierarchy::{self, INTERMEDIATE_LIFETIME, sign_intermediate};
use pki::issuer::SigningIssuer;
use pki::pkcs11::{
    DEADLINE, Hsm, HsmError, HsmKey, PinMemory, PinSource, SESSIONS, SessionProgram, TokenSettings,
    serve_session,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";
const AT: Timestamp = Timestamp::from_secs(1_800_000_000);
const DIR: &str = "ENLIST_TEST_HSM_DIR";
/// What this program is started with to be a session.
const SESSION: [&str; 3] = ["session", "--exact", "--include-ignored"];
/// The same, to have sessions until it is killed.
const HOLDER: [&str; 4] = ["holder", "--exact", "--include-ignored", "--nocapture"];

fn was_started_with(arguments: &[&str]) -> bool {
    std::env::args().skip(1).eq(arguments.iter().copied())
}

#[test]
#[ignore = "the process of a session, which other tests start"]
fn session() {
    if was_started_with(&SESSION) {
        serve_session();
        unreachable!("standard input is a socket");
    }
}

/// State and parent of a process that exists.
fn state_of(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before them may hold anything, and ends with the last parenthesis.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// One that has ended may wait for whoever inherited it.
fn is_alive(pid: u32) -> bool {
    state_of(pid).is_some_and(|(state, _)| state != 'Z')
}

fn sessions_of(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let below = pids.filter(|pid| is_alive(*pid) && state_of(*pid).is_some_and(|(_, above)| above == parent));
    let is_session = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some(SESSION[0])
    };
    below.filter(is_session).collect()
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// What a test has: a directory with a token "unit" of PIN 5678.
struct World {
    dir: PathBuf,
}

/// Runs a test in a process that has a token: the same test, which finds the directory in its environment.
fn with_token(name: &str, test: impl FnOnce(&World)) {
    if let Ok(dir) = std::env::var(DIR) {
        return test(&World { dir: dir.into() });
    }
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::create_dir(&tokens).unwrap();
    let conf = dir.path().join("softhsm2.conf");
    std::fs::write(&conf, format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display()))
        .unwrap();
    let made = Command::new("softhsm2-util")
        .args(["--init-token", "--free", "--label", "unit", "--so-pin", "1234", "--pin", "5678"])
        .env("SOFTHSM2_CONF", &conf)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    // A module that never returns fails the test, and does not keep it.
    let ran = Command::new("timeout")
        .args(["--signal=ABRT", "180"])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--include-ignored", "--nocapture"])
        .env("SOFTHSM2_CONF", &conf)
        .env("P11_KIT_SERVER_ADDRESS", format!("unix:path={}/sock", dir.path().display()))
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("1 passed"), "{:?}\n{said}", ran.status);
}

fn hsm(settings: TokenSettings) -> Arc<Hsm> {
    let program = SessionProgram::new(std::env::current_exe().unwrap(), SESSION);
    Hsm::with_program(settings, PinMemory::default(), program).unwrap()
}

impl World {
    fn settings(&self, module: &str) -> TokenSettings {
        let pin = self.pin("5678");
        TokenSettings { module: module.into(), token: "unit".to_owned(), pin: PinSource::File(pin) }
    }

    fn pin(&self, pin: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.dir.join("pin");
        std::fs::write(&path, pin).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn hsm(&self) -> Arc<Hsm> {
        hsm(self.settings(SOFTHSM))
    }

    fn tool(&self, arguments: &[&str]) -> String {
        let mut tool = Command::new("pkcs11-tool");
        tool.args(["--module", SOFTHSM, "--token-label", "unit", "--login", "--pin", "5678"]).args(arguments);
        let ran = tool.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

/// `p11-kit server`, in a group of its own: it has a child for each client. It has none of the test's pipes, or whoever
/// reads them would wait for it after a test that failed.
struct Remote {
    child: Child,
    /// SoftHSM's file of the token, and what it holds. It is written anew at each login, and a kill in between leaves it
    /// empty: what is tested here is an HSM that comes back, not one that has lost its keys.
    token: (PathBuf, Vec<u8>),
}

impl Remote {
    fn start(dir: &Path) -> Self {
        let socket = dir.join("sock");
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("p11-kit")
            .args(["server", "--foreground", "--provider", SOFTHSM, "--name"])
            .arg(&socket)
            .arg("pkcs11:")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        until("the socket is there", || socket.exists());
        let mut tokens = std::fs::read_dir(dir.join("tokens")).unwrap();
        let file = tokens.next().unwrap().unwrap().path().join("token.object");
        let token = (file.clone(), std::fs::read(file).unwrap());
        Self { child, token }
    }

    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.signal("-KILL");
        self.child.wait().unwrap();
        let (file, held) = &self.token;
        if std::fs::read(file).unwrap().len() != held.len() {
            std::fs::write(file, held).unwrap();
        }
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says what kept it from that.
fn signs_again(key: &HsmKey) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = key.check() {
        assert!(Instant::now() < deadline, "not within 20 s: it signs again: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// p11-kit's client, wherever this system keeps it.
fn client() -> String {
    let found = Command::new("find").args(["/usr/lib", "-name", "p11-kit-client.so"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().next().expect("p11-kit-modules is installed").to_owned()
}

fn root() -> SigningIssuer {
    let domain = TrustDomain::parse("probectl").unwrap();
    let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16], [4; 16]]).unwrap();
    let key = pki::pem::private_key(made.root_key_pem.as_bytes()).unwrap();
    SigningIssuer::new(&made.root_der, key.secret_der()).unwrap()
}

/// An issuer below a root of today, whose key is in the HSM.
fn issuer(hsm: &Arc<Hsm>, key: &HsmKey) -> SigningIssuer {
    let signed =
        sign_intermediate(&root(), &key.spki(), IssuerUse::Node, [3; 16], AT, INTERMEDIATE_LIFETIME).unwrap();
    SigningIssuer::in_hsm(&signed.der, hsm, key.label()).unwrap()
}

fn list(issuer: &SigningIssuer) -> Result<Vec<u8>, pki::crl::CrlError> {
    let contents = Contents { revoked: vec![], number: 1, this_update: AT, next_update: AT.plus(LIFETIME) };
    sign_crl(issuer, contents)
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn a_key_is_made_once_stays_in_the_token_and_signs() {
    with_token("a_key_is_made_once_stays_in_the_token_and_signs", |world| {
        let hsm = world.hsm();
        assert!(matches!(hsm.find("issuer"), Err(HsmError::KeyMissing { .. })));
        let made = hsm.find_or_generate("issuer").unwrap();
        assert!(made.is_new && !made.is_extractable);
        let key = made.key;
        let again = hsm.find_or_generate("issuer").unwrap();
        assert!(!again.is_new);
        assert_eq!(again.key.spki(), key.spki());
        assert!(matches!(hsm.generate("issuer"), Err(HsmError::LabelTaken { .. })));
        let shown = world.tool(&["--list-objects", "--type", "privkey"]);
        assert!(shown.contains("sensitive") && shown.contains("never extractable"), "{shown}");
        let usage = |shown: &str| {
            let line = shown.lines().find_map(|line| line.trim().strip_prefix("Usage:"));
            line.map(|line| line.trim().to_owned())
        };
        assert_eq!(usage(&shown).as_deref(), Some("sign"), "{shown}");
        let shown = world.tool(&["--list-objects", "--type", "pubkey"]);
        assert_eq!(usage(&shown).as_deref(), Some("verify"), "{shown}");
        let issuer = issuer(&hsm, &key);
        let der = list(&issuer).unwrap();
        let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
        let (_, certificate) = X509Certificate::from_der(issuer.certificate()).unwrap();
        assert!(list.verify_signature(certificate.public_key()).is_ok());
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn an_existing_key_is_used_if_its_curve_is_known() {
    with_token("an_existing_key_is_used_if_its_curve_is_known", |world| {
        world.tool(&["--keypairgen", "--key-type", "EC:secp384r1", "--label", "large", "--id", "01"]);
        world.tool(&["--keypairgen", "--key-type", "rsa:2048", "--label", "rsa", "--id", "02"]);
        world.tool(&["--keypairgen", "--key-type", "EC:secp521r1", "--label", "odd", "--id", "03"]);
        let hsm = world.hsm();
        let key = hsm.find_or_generate("large").unwrap().key;
        assert_eq!(key.kind(), lifecycle::names::KeyKind::P384);
        list(&issuer(&hsm, &key)).unwrap();
        for label in ["rsa", "odd"] {
            let error = hsm.find_or_generate(label).err().unwrap();
            assert!(matches!(&error, HsmError::KeyKind { label: found, .. } if found == label), "{error}");
            let error = hsm.key(label, &key.spki()).unwrap().check().unwrap_err();
            assert!(matches!(error, HsmError::KeyKind { .. }), "{error}");
        }
        // Two keys of one name: neither is it.
        world.tool(&["--keypairgen", "--key-type", "EC:prime256v1", "--label", "twice", "--id", "04"]);
        world.tool(&["--keypairgen", "--key-type", "EC:prime256v1", "--label", "twice", "--id", "05"]);
        assert!(matches!(hsm.find("twice"), Err(HsmError::KeyAmbiguous { count: 2, .. })));
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn a_signature_of_another_key_never_leaves() {
    with_token("a_signature_of_another_key_never_leaves", |world| {
        let hsm = world.hsm();
        let (right, wrong) = (hsm.generate("right").unwrap(), hsm.generate("wrong").unwrap());
        let mixed = hsm.key("wrong", &right.spki()).unwrap();
        assert_eq!(mixed.signature(b"x"), Err(HsmError::OtherKey { label: "wrong".to_owned() }));
        assert_eq!(wrong.check(), Ok(()));
        let certified = issuer(&hsm, &right);
        let swapped = SigningIssuer::in_hsm(certified.certificate(), &hsm, "wrong").unwrap();
        assert!(list(&swapped).is_err());
        assert!(list(&certified).is_ok());
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn a_wrong_pin_is_tried_once_until_it_changes() {
    with_token("a_wrong_pin_is_tried_once_until_it_changes", |world| {
        let settings = world.settings(SOFTHSM);
        world.pin("0000");
        let hsm = hsm(settings);
        let refused = |hsm: &Hsm| matches!(hsm.find("issuer"), Err(HsmError::PinRefused { .. }));
        let slots = || {
            let listed = Command::new("pkcs11-tool").args(["--module", SOFTHSM, "--list-slots"]).output();
            String::from_utf8(listed.unwrap().stdout).unwrap()
        };
        let was_refused = || slots().contains("user PIN count low");
        assert!(refused(&hsm) && was_refused(), "{}", slots());
        // A right login by somebody else clears the token's note of a wrong one; nobody here sets it again.
        world.tool(&["--list-objects"]);
        assert!(!was_refused(), "{}", slots());
        let again = Instant::now() + Duration::from_secs(4);
        until("time passes", || refused(&hsm) && Instant::now() > again);
        assert!(!was_refused(), "{}", slots());
        world.pin("5678");
        until("the right PIN is taken", || matches!(hsm.find("issuer"), Err(HsmError::KeyMissing { .. })));
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn what_is_missing_is_named_and_found_when_it_comes() {
    with_token("what_is_missing_is_named_and_found_when_it_comes", |world| {
        let module = world.dir.join("module.so");
        let hsm = hsm(world.settings(module.to_str().unwrap()));
        assert!(matches!(hsm.find("issuer"), Err(HsmError::Module { .. })));
        std::fs::write(&module, "no library").unwrap();
        until(
            "it is tried again",
            || matches!(hsm.find("issuer"), Err(HsmError::Module { why, .. }) if why.contains("too short") || why.contains("ELF")),
        );
        std::fs::remove_file(&module).unwrap();
        let (tokens, away) = (world.dir.join("tokens"), world.dir.join("away"));
        std::fs::rename(&tokens, &away).unwrap();
        std::fs::create_dir(&tokens).unwrap();
        std::os::unix::fs::symlink(SOFTHSM, &module).unwrap();
        until("the module is there", || matches!(hsm.find("issuer"), Err(HsmError::TokenAbsent { .. })));
        std::fs::remove_dir(&tokens).unwrap();
        std::fs::rename(&away, &tokens).unwrap();
        until("the token is there", || matches!(hsm.find("issuer"), Err(HsmError::KeyMissing { .. })));
        let key = hsm.generate("issuer").unwrap();
        // Out and in again while it is in use.
        std::fs::rename(&tokens, &away).unwrap();
        std::fs::create_dir(&tokens).unwrap();
        until("it is gone", || key.check().is_err());
        std::fs::remove_dir(&tokens).unwrap();
        std::fs::rename(&away, &tokens).unwrap();
        signs_again(&key);
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn an_hsm_that_was_killed_under_load_is_found_again() {
    with_token("an_hsm_that_was_killed_under_load_is_found_again", |world| {
        let hsm = hsm(world.settings(&client()));
        assert!(hsm.find("issuer").is_err(), "no server yet");
        let mut remote = Remote::start(&world.dir);
        until("the server is found", || matches!(hsm.find("issuer"), Err(HsmError::KeyMissing { .. })));
        let key = hsm.generate("issuer").unwrap();
        for _ in 0..3 {
            let signed = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..SESSIONS * 3)
                    .map(|_| {
                        scope.spawn(|| {
                            let began = Instant::now();
                            let (mut good, mut bad) = (0, 0);
                            while bad == 0 && began.elapsed() < DEADLINE {
                                if key.check().is_ok() {
                                    good += 1;
                                    signed.fetch_add(1, Ordering::Relaxed);
                                } else {
                                    bad += 1;
                                }
                            }
                            (good, bad)
                        })
                    })
                    .collect();
                until("all sessions are at work", || signed.load(Ordering::Relaxed) > SESSIONS * 10);
                remote.kill();
                until("it is gone", || key.check().is_err());
                let error = key.check().unwrap_err().to_string();
                assert!(error.contains("module p11-kit-client.so"), "{error}");
                let ended: Vec<(i32, i32)> =
                    workers.into_iter().map(|worker| worker.join().unwrap()).collect();
                assert!(ended.iter().all(|(_, bad)| *bad == 1), "each learned of it in time: {ended:?}");
                assert!(ended.iter().any(|(good, _)| *good > 0), "{ended:?}");
            });
            remote = Remote::start(&world.dir);
            signs_again(&key);
        }
        remote.kill();
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn an_hsm_that_hangs_keeps_nobody_longer_than_the_deadline() {
    with_token("an_hsm_that_hangs_keeps_nobody_longer_than_the_deadline", |world| {
        let remote = Remote::start(&world.dir);
        let hsm = hsm(world.settings(&client()));
        let key = hsm.generate("issuer").unwrap();
        remote.signal("-STOP");
        std::thread::scope(|scope| {
            // More than may wait: the rest is refused at once.
            let callers: Vec<_> = (0..100)
                .map(|_| {
                    scope.spawn(|| {
                        let began = Instant::now();
                        (key.check().unwrap_err(), began.elapsed())
                    })
                })
                .collect();
            let ended: Vec<(HsmError, Duration)> =
                callers.into_iter().map(|one| one.join().unwrap()).collect();
            let late = ended.iter().filter(|(error, _)| matches!(error, HsmError::Late(_))).count();
            let busy =
                ended.iter().filter(|(error, took)| *error == HsmError::Busy && *took < DEADLINE / 2).count();
            assert!(late >= SESSIONS && busy > 0 && late + busy == 100, "{late} late, {busy} busy");
            assert!(ended.iter().all(|(_, took)| *took < DEADLINE + Duration::from_secs(2)));
        });
        remote.signal("-CONT");
        signs_again(&key);
        remote.signal("-STOP");
        let refused = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..100)
                .map(|_| {
                    scope.spawn(|| {
                        let answer = key.check();
                        refused.fetch_add(usize::from(answer == Err(HsmError::Busy)), Ordering::Relaxed);
                        answer
                    })
                })
                .collect();
            // 64 wait at most, and a few are with the sessions: the rest has been refused.
            until("nobody more is taken", || refused.load(Ordering::Relaxed) >= 100 - 64 - SESSIONS);
            let began = Instant::now();
            hsm.close();
            let ended: Vec<_> = callers.into_iter().map(|one| one.join().unwrap()).collect();
            assert!(began.elapsed() < Duration::from_secs(1), "closing waits for nothing");
            let closed = ended.iter().filter(|answer| **answer == Err(HsmError::Closed)).count();
            assert_eq!(closed, 100 - refused.load(Ordering::Relaxed), "{ended:?}");
        });
        until("no session is left", || sessions_of(std::process::id()).is_empty());
        remote.kill();
    });
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn a_session_that_was_killed_is_replaced_unnoticed() {
    with_token("a_session_that_was_killed_is_replaced_unnoticed", |world| {
        let hsm = world.hsm();
        let key = hsm.generate("issuer").unwrap();
        for _ in 0..5 {
            let sessions = sessions_of(std::process::id());
            assert!(!sessions.is_empty() && sessions.len() <= SESSIONS, "{sessions:?}");
            sessions.into_iter().for_each(kill);
            assert_eq!(key.check(), Ok(()));
        }
    });
}

/// Has two sessions, or one whose module does not return; who has started it knows by what it writes.
#[test]
#[ignore = "a process with sessions, which another test starts and kills"]
fn holder() {
    if !was_started_with(&HOLDER) {
        return;
    }
    let world = World { dir: std::env::var(DIR).unwrap().into() };
    let hsm = hsm(world.settings(&client()));
    let key = hsm.find_or_generate("held").unwrap().key;
    std::fs::write(world.dir.join("held"), "").unwrap();
    while key.check() == Ok(()) {}
    unreachable!("it is killed before anything fails");
}

#[test]
#[ignore = "needs SoftHSM: `bash tests/run` installs it"]
fn sessions_end_with_the_process_that_started_them_also_in_a_module_that_hangs() {
    let name = "sessions_end_with_the_process_that_started_them_also_in_a_module_that_hangs";
    with_token(name, |world| {
        let remote = Remote::start(&world.dir);
        for hangs in [false, true] {
            let held = world.dir.join("held");
            let _ = std::fs::remove_file(&held);
            let mut holder = Command::new(std::env::current_exe().unwrap())
                .args(HOLDER)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            until("it has sessions", || held.exists());
            if hangs {
                remote.signal("-STOP");
            }
            let sessions = sessions_of(holder.id());
            assert!(!sessions.is_empty());
            kill(holder.id());
            holder.wait().unwrap();
            until("no session is left", || !sessions.iter().any(|session| is_alive(*session)));
            remote.signal("-CONT");
        }
        remote.kill();
    });
}
