//! `[journal]`: when a snapshot is made, and how much of the log stays for replicas that lag.

use super::key::config_keys;
use super::shape::BytesOr;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

config_keys! {
    /// `[journal]` as written.
    pub struct RawJournal as written;
    /// `[journal]` key by key.
    pub struct JournalConfig {
        /// Bytes of log after which the next snapshot is made. A command that came from another replica counts as 640 bytes. A stop makes a
        /// snapshot too
        "snapshot_bytes" snapshot_bytes: BytesOr = BytesOr { least: 64 * KIB, most: GIB, default: 16 * MIB };
        /// Bytes of log that are kept at least, for replicas that lag: one that lacks an entry which is gone gets a snapshot. What the
        /// older of the last two snapshots does not hold is kept in any case
        "keep_bytes" keep_bytes: BytesOr = BytesOr { least: 0, most: 16 * GIB, default: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::ConfigTable as _;
    use super::*;

    fn checked(text: &str) -> Result<JournalConfig, Vec<String>> {
        let mut mistakes = Vec::new();
        let table = toml::from_str(text).unwrap_or_default();
        let config = RawJournal::read("journal.", table, &mut mistakes).check("journal.", &mut mistakes);
        match config {
            Some(config) if mistakes.is_empty() => Ok(config),
            _ => Err(mistakes.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn bytes_are_whole_numbers_within_bounds() {
        let config = checked("").unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        assert_eq!((config.snapshot_bytes, config.keep_bytes), (16 * MIB, 0));
        let config = checked("snapshot_bytes = 65536\nkeep_bytes = 1_000_000");
        assert_eq!(
            config.map(|config| (config.snapshot_bytes, config.keep_bytes)),
            Ok((64 * KIB, 1_000_000))
        );
        for text in [
            "snapshot_bytes = 65535",
            "snapshot_bytes = 1073741825",
            "keep_bytes = -1",
            "keep_bytes = \"16MiB\"",
        ] {
            assert!(checked(text).is_err_and(|mistakes| mistakes.len() == 1), "{text}");
        }
        assert!(
            checked("snapshot_bytes = 1\nkeep_bytes = 99999999999")
                .is_err_and(|mistakes| mistakes.len() == 2)
        );
    }
}
