//! What the service manager hands to a new process of the service: descriptors from 3 on, by name. Whoever could put one there
//! is root; all the same, nothing is believed of it that cannot be checked.

use std::path::Path;

use super::file_system::MemoryFileSystem;

/// The name in the service manager's store.
pub const NAME: &str = "enlist-agent";

pub struct HandedOver {
    pub files: Option<MemoryFileSystem>,
    /// Whether there were descriptors of our name that are not used.
    pub others: bool,
}

/// The file system of this agent. Of several, the newest that holds an identity.
pub fn take(dir: &Path) -> HandedOver {
    // This also keeps them from the commands that the agent runs.
    let descriptors = match sd_notify::listen_fds_with_names() {
        Ok(descriptors) => descriptors.filter(|(_, name)| name == NAME).map(|(number, _)| number).collect(),
        Err(error) => {
            tracing::warn!(%error, "what the service manager handed over cannot be read");
            Vec::new()
        }
    };
    let mut found = Vec::new();
    for descriptor in &descriptors {
        match MemoryFileSystem::handed(*descriptor, dir) {
            Ok(files) => found.push(files),
            Err(why) => {
                tracing::error!("descriptor {descriptor} from the service manager is not used: {why}");
            }
        }
    }
    found.sort_by_key(|files| (files.holds_identity(), files.made_at().to_owned()));
    let files = found.pop();
    if !found.is_empty() {
        tracing::error!("{} more of this agent's memory were handed over and are not used", found.len());
    }
    HandedOver { others: descriptors.len() > usize::from(files.is_some()), files }
}
