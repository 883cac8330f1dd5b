//! `GET /v1/audit`: lines of the trail, by node, kind and time, from either end, a page at a time.

use super::{AuditPage, line, unreadable};
use crate::edge::authenticate;
use crate::http::extract::{Caller, Query};
use crate::http::failure::Failure;
use crate::http::page::limit;
use crate::process::app::App;
use api::code;
use api::rest::audit::AuditQuery;
use axum::extract::State;
use journal::AuditStoreError;
use journal::audit::Selection;
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::Act;
use std::sync::Arc;

/// How many lines one request may look through; the cursor says where to go on.
const SCAN: u64 = 50_000;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Result<axum::Json<AuditPage>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadAudit)?;
    let limit = limit(query.limit)?;
    let newest_first = newest_first(query.order.as_deref())?;
    let since = query.since.as_deref().map(|text| since(text, app.now())).transpose()?;
    let cursor = query.cursor.as_deref().map(str::parse).transpose();
    let cursor: Option<u64> = cursor.map_err(|_| {
        Failure::new(code::BAD_REQUEST, "cursor is not valid: use next_cursor of the page before")
    })?;
    let (after, until) = beyond(cursor, view.audit.seq, newest_first);
    let AuditQuery { node, event_type, .. } = query;
    let all = Selection { after, until, node, event_type, newest_first };
    // It is given on when the walk is over, even if nobody waits for it any more.
    let turn = app.audit_readers.search(&caller.actor).await?;
    let reader = app.clone();
    let read = move || {
        let page = page(&reader, all, since, limit);
        drop(turn);
        page
    };
    let page = tokio::task::spawn_blocking(read).await.map_err(|error| unreadable(&error))?;
    let (found, next) = page.map_err(|error| unreadable(&error))?;
    let items = found.into_iter().map(|(_, text)| line(text)).collect::<Result<_, _>>()?;
    Ok(axum::Json(AuditPage { items, next_cursor: next.map(|seq| seq.to_string()) }))
}

/// What is left of the trail. A cursor is the line that the page before has looked at last.
fn beyond(cursor: Option<u64>, last: u64, newest_first: bool) -> (u64, u64) {
    match (cursor, newest_first) {
        (Some(seen), true) => (0, last.min(seen.saturating_sub(1))),
        (Some(seen), false) => (seen, last),
        (None, _) => (0, last),
    }
}

type NumberedLines = Vec<(u64, String)>;

/// What a bounded stretch of `all` holds, and the cursor if there is more of it.
fn page(
    app: &App,
    mut all: Selection,
    since: Option<Timestamp>,
    limit: usize,
) -> Result<(NumberedLines, Option<u64>), AuditStoreError> {
    let audit = app.journal.audit();
    if let Some(at) = since {
        all.after = all.after.max(audit.first_since(at)?.saturating_sub(1));
    }
    let stretch = stretch(&all, SCAN);
    let found = audit.select(&stretch, limit)?;
    let full = found.last().filter(|_| found.len() == limit).map(|(seq, _)| *seq);
    Ok((found, next(&all, &stretch, full)))
}

/// As much of `all` as one request may look through, from the end where it begins.
fn stretch(all: &Selection, scan: u64) -> Selection {
    if all.newest_first {
        Selection { after: all.after.max(all.until.saturating_sub(scan)), ..all.clone() }
    } else {
        Selection { until: all.until.min(all.after.saturating_add(scan)), ..all.clone() }
    }
}

/// The line that was looked at last, unless there is none behind it. `full` is the last one of a full page.
fn next(all: &Selection, stretch: &Selection, full: Option<u64>) -> Option<u64> {
    if all.newest_first {
        let first = all.after.saturating_add(1);
        full.or(Some(stretch.after.saturating_add(1))).filter(|seq| *seq > first)
    } else {
        full.or(Some(stretch.until)).filter(|seq| *seq < all.until)
    }
}

fn newest_first(order: Option<&str>) -> Result<bool, Failure> {
    match order {
        None | Some("asc") => Ok(false),
        Some("desc") => Ok(true),
        Some(_) => Err(Failure::new(code::BAD_REQUEST, "order must be asc or desc")),
    }
}

/// A time, or how long ago.
fn since(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let ago = Span::parse(text).map(|span| now.minus(span));
    ago.or_else(|_| Timestamp::parse(text)).map_err(|_| {
        let expected =
            "since must be a duration such as 90s, 15m, 1h or 7d, or a time such as 2026-01-31T12:00:00Z";
        Failure::new(code::BAD_REQUEST, expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every third line of 100 is wanted: page after page, each looking at ten lines only, finds all of them once.
    fn walk(newest_first: bool, limit: usize, since: u64) -> Vec<u64> {
        let (mut found, mut cursor) = (Vec::new(), None);
        for _ in 0..200 {
            let (after, until) = beyond(cursor, 100, newest_first);
            let all = Selection { after: after.max(since - 1), until, newest_first, ..Selection::default() };
            let stretch = stretch(&all, 10);
            assert!(stretch.until.saturating_sub(stretch.after) <= 10);
            let mut lines: Vec<u64> =
                (stretch.after + 1..=stretch.until).filter(|seq| seq % 3 == 0).collect();
            if newest_first {
                lines.reverse();
            }
            lines.truncate(limit);
            let full = lines.last().copied().filter(|_| lines.len() == limit);
            found.extend(lines);
            cursor = next(&all, &stretch, full);
            if cursor.is_none() {
                return found;
            }
        }
        panic!("there is no end to it");
    }

    #[test]
    fn small_stretches_find_every_line_once_from_either_end() {
        for since in [1, 2, 3, 50, 100] {
            let mut expected: Vec<u64> = (since..=100).filter(|seq| seq % 3 == 0).collect();
            for limit in [1, 2, 3, 4, 1000] {
                assert_eq!(walk(false, limit, since), expected, "{limit} from {since}");
            }
            expected.reverse();
            for limit in [1, 2, 3, 4, 1000] {
                assert_eq!(walk(true, limit, since), expected, "{limit} from {since}, newest first");
            }
        }
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let now = Timestamp::from_secs(10_000);
        assert_eq!(since("1h", now).ok(), Some(Timestamp::from_secs(6400)));
        assert_eq!(since("1970-01-01T00:00:05Z", now).ok(), Some(Timestamp::from_secs(5)));
        assert!(since("yesterday", now).is_err());
    }
}
