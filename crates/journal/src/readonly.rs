//! Opening a database so that nothing in its directory changes, not even SQLite's own side files.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Without a write-ahead log the file is opened as immutable. With one, through SQLite's lock-free VFS and in
/// exclusive mode: then the index of the write-ahead log is kept in memory, and no `-shm` file is made or
/// touched. Nobody else may be writing meanwhile; the directory's lock sees to that.
pub fn open(file: &Path) -> Result<Connection, rusqlite::Error> {
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    let has_wal = std::fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0);
    let how = if has_wal { "mode=ro&vfs=unix-none" } else { "mode=ro&immutable=1" };
    let uri = format!("file:{}?{how}", escape(file));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    if has_wal {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "locking_mode", "exclusive")?;
    }
    Ok(connection)
}

/// A path inside a URI: everything but the plainest characters as percent and hex.
fn escape(file: &Path) -> String {
    let mut escaped = String::new();
    for byte in file.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                escaped.push(char::from(*byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}
