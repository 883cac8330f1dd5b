//! What this machine says of itself.

use api::agent::Hardware;

/// What it is made of, as far as it can be told.
pub fn hardware() -> Hardware {
    let memory = rustix::system::sysinfo();
    let disk = rustix::fs::statvfs("/").ok();
    Hardware {
        cpu_cores: std::thread::available_parallelism().ok().and_then(|n| u64::try_from(n.get()).ok()),
        memory_bytes: Some(memory.totalram.saturating_mul(memory.mem_unit.into())),
        disk_bytes: disk.map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize)),
        arch: arch().to_owned(),
    }
}

/// As packages are named.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Its name, for people; nothing is decided by it.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
