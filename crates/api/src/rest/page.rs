//! Lists, a page at a time.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// How many items a page holds when the caller names no number, and at most.
pub const LIMIT_DEFAULT: usize = 100;
pub const LIMIT_MAX: usize = 1000;

/// A page of a list. Its description is in `openapi`, one name per kind of item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass it as `cursor` for the next page; null on the last one.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A list that is short enough to be one page.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}

/// Which page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
