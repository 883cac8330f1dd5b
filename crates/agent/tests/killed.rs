//! Killed at every step that changes the disk: a second run with the same token always ends enrolled.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use world::host::Host;
use world::plane::Plane;

/// Every call by which a file, directory or link comes, goes, changes its name or reaches the disk. Those with a
/// question mark are not on every architecture.
const CALLS: [&str; 11] = [
    "fsync",
    "?rename",
    "?renameat",
    "?unlink",
    "unlinkat",
    "?rmdir",
    "?mkdir",
    "mkdirat",
    "?symlink",
    "symlinkat",
    "fchmod",
];

#[test]
#[ignore = "needs strace: `bash tests/run` installs it"]
fn killed_at_any_step_the_same_token_still_leads_to_one_node() {
    let plane = Plane::start();
    let (mut nodes, mut kills) = (0, 0);
    for call in CALLS {
        for step in 1.. {
            let (host, token) = (Host::new(), format!("token-{call}-{step}"));
            let killed = host.enroll_killed_at(&plane, &token, call, step);
            let again = host.enroll(&plane, &token, &[]);
            nodes += 1;
            assert_eq!(again.exit, 0, "killed at {call} {step}: {again:?}");
            assert_eq!(again.document()["node_id"], format!("n-{nodes}"), "killed at {call} {step}");
            let reasons = &host.status().document()["reasons"];
            assert_eq!(reasons, &serde_json::json!(["daemon_stopped"]), "killed at {call} {step}");
            assert!(!host.path("pending").exists(), "killed at {call} {step}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 30, "only {kills} steps were seen");
}
