//! A long list, page after page, never holding more than one of them.

use super::{OperatorApi, Path};
use crate::error::Error;
use api::rest::page::Page;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

pub struct Pages<'a, T> {
    api: &'a OperatorApi,
    /// Without a cursor.
    path: Path,
    cursor: Option<String>,
    ended: bool,
    items: PhantomData<T>,
}

impl<'a, T: DeserializeOwned> Pages<'a, T> {
    pub(super) fn new(api: &'a OperatorApi, path: Path) -> Self {
        Self { api, path, cursor: None, ended: false, items: PhantomData }
    }

    /// The items of the next page, of which there may be none; nothing after the last page. A cursor that repeats itself
    /// ends the list, because it would lead in circles.
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let path = match &self.cursor {
            None => self.path.clone(),
            Some(cursor) => self.path.clone().query("cursor", cursor),
        };
        let page: Page<T> = self.api.get(&path).await?;
        self.ended = page.next_cursor.is_none() || page.next_cursor == self.cursor;
        self.cursor = page.next_cursor;
        Ok(Some(page.items))
    }
}
