//! Replication: the log, snapshots, and the audit store.
