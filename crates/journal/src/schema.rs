//! What a store may hold beside its rows: its own tables and nothing else. SQLite runs triggers and reads through views and
//! indexes that anybody with a pen can put into a file; with one, what was written is not what is stored.

use crate::open_error::OpenError;
use rusqlite::Connection;
use std::path::Path;

/// The tables of a store: names, and what follows a name in the statement that makes it.
pub struct StoreSchema(pub &'static [(&'static str, &'static str)]);

impl StoreSchema {
    /// Makes the tables that are not there yet.
    pub fn create(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        for (name, columns) in self.0 {
            connection.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {name} {columns}"))?;
        }
        Ok(())
    }

    /// Refuses everything that is none of the tables, as this program makes them. One that is missing is for others to miss.
    pub fn check(&self, file: &Path, connection: &Connection) -> Result<(), OpenError> {
        let foreign = self.foreign(connection).map_err(OpenError::database(file))?;
        match foreign {
            Some(name) => {
                let what = format!("it holds {name:?}, which this program has not made");
                Err(OpenError::damaged(file, None, what))
            }
            None => Ok(()),
        }
    }

    fn foreign(&self, connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
        let mut select = connection.prepare("SELECT name, sql FROM sqlite_schema")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let text =
                |column| row.get_ref(column).map(|value| value.as_str().unwrap_or_default().to_owned());
            let (found, sql) = (text(0)?, text(1)?);
            let own = |(name, columns): &(&str, &str)| {
                plain(&sql) == plain(&format!("CREATE TABLE {name} {columns}"))
            };
            if !self.0.iter().any(own) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// SQLite keeps a statement with the spaces and line ends that it was written with.
fn plain(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}
