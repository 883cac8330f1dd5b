//! Lists a page at a time: so many items after a cursor, and the cursor of the next page.

use crate::http::extract::bad_in;
use crate::http::failure::Failure;
use api::code;
use api::rest::page::{LIMIT_DEFAULT, LIMIT_MAX};
use lifecycle::names::Malformed;
use std::ops::Bound;

/// How many items a page may hold.
pub fn limit(asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        None => Ok(LIMIT_DEFAULT),
        Some(limit) if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(Failure::new(code::BAD_REQUEST, format!("limit must be 1 to {LIMIT_MAX}"))),
    }
}

/// Where a page begins: behind the key in the query's field `name`.
pub fn after<K>(
    name: &'static str,
    cursor: Option<&str>,
    parse: impl FnOnce(&str) -> Result<K, Malformed>,
) -> Result<(Bound<K>, Bound<K>), Failure> {
    let key = cursor.map(parse).transpose().map_err(bad_in(name))?;
    Ok((key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}

/// The first `limit` items, and the key of the last if more follow.
pub fn page<T>(
    items: impl Iterator<Item = T>,
    limit: usize,
    key: impl FnOnce(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let mut items: Vec<T> = items.take(limit + 1).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(key);
    (items, next)
}
