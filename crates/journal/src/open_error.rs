//! Why a journal cannot be made or opened. Each says what was found, where, and what can be done.

use crate::stored::RowFault;
use std::path::{Path, PathBuf};

/// What helps against damage, as long as replicas cannot be joined.
const RESTORE: &str = "nothing was changed: restore the directory from a backup";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{dir} already holds a log or an audit trail: choose an empty directory")]
    Exists { dir: PathBuf },
    #[error("{dir} holds no log: it was not initialised, or is not the data directory")]
    Missing { dir: PathBuf },
    #[error("{dir} was never initialised to the end: remove it and initialise again")]
    Unfinished { dir: PathBuf },
    #[error("{dir} is in use by another process")]
    InUse { dir: PathBuf },
    #[error("{}{} is damaged: {what}; {remedy}", .file.display(), place(.index))]
    Damaged { file: PathBuf, index: Option<u64>, what: String, remedy: &'static str },
    #[error(
        "{}{} was written by a newer version (form {version}): nothing was changed, start that version instead",
        .file.display(), place(.index)
    )]
    Newer { file: PathBuf, index: Option<u64>, version: u8 },
    #[error(
        "{}: line {seq} is not the line that the log produces: somebody changed the trail; keep the file \
         as evidence, move it away, and start again to have refilled what the log still holds",
        .file.display()
    )]
    AuditDiffers { file: PathBuf, seq: u64 },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", .file.display())]
    Database { file: PathBuf, source: rusqlite::Error },
    #[error("replication did not start: {0}")]
    Start(String),
}

fn place(index: &Option<u64>) -> String {
    index.map_or_else(String::new, |index| format!(", index {index},"))
}

impl OpenError {
    /// The file, if it is there and this user may not read or write it.
    pub fn not_permitted(&self) -> Option<&Path> {
        use rusqlite::ErrorCode::{CannotOpen, PermissionDenied, ReadOnly};
        match self {
            OpenError::Io { path, source } => {
                (source.kind() == std::io::ErrorKind::PermissionDenied).then_some(path)
            }
            OpenError::Database { file, source } => {
                let code = source.sqlite_error_code()?;
                let refused = matches!(code, CannotOpen | PermissionDenied | ReadOnly);
                (refused && file.exists()).then_some(file)
            }
            OpenError::Exists { .. }
            | OpenError::Missing { .. }
            | OpenError::Unfinished { .. }
            | OpenError::InUse { .. }
            | OpenError::Damaged { .. }
            | OpenError::Newer { .. }
            | OpenError::AuditDiffers { .. }
            | OpenError::Start(_) => None,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    }

    pub(crate) fn damaged(file: &Path, index: Option<u64>, what: impl Into<String>) -> Self {
        OpenError::Damaged { file: file.to_owned(), index, what: what.into(), remedy: RESTORE }
    }

    /// SQLite's own word for a broken file is damage too; everything else is passed on.
    pub(crate) fn database(file: &Path) -> impl Fn(rusqlite::Error) -> Self {
        let file = file.to_owned();
        move |source| match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                OpenError::damaged(&file, None, source.to_string())
            }
            _ => OpenError::Database { file: file.clone(), source },
        }
    }

    pub(crate) fn row(file: &Path, index: Option<u64>, fault: &RowFault) -> Self {
        match fault {
            RowFault::Newer { version } => {
                OpenError::Newer { file: file.to_owned(), index, version: *version }
            }
            other => OpenError::damaged(file, index, other.to_string()),
        }
    }
}
