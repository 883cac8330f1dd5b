//! What this machine says of itself.

/// Its name, for people; nothing is decided by it.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
