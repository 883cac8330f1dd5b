//! Lists whose entries are counted while they are read: an entry takes many times more memory than its text.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Keeps one entry more than `MOST`, to tell that there are too many, and passes over what follows.
pub fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    reader: D,
) -> Result<Vec<T>, D::Error> {
    reader.deserialize_seq(AtMost::<T, MOST>(PhantomData))
}

struct AtMost<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMost<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut kept = Vec::new();
        while kept.len() <= MOST {
            match list.next_element()? {
                Some(entry) => kept.push(entry),
                None => return Ok(kept),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Three {
        #[serde(deserialize_with = "at_most::<_, _, 3>")]
        of: Vec<u32>,
    }

    #[test]
    fn one_too_many_is_kept_and_the_rest_is_passed_over() {
        for (text, kept) in
            [("[]", 0), ("[1,2,3]", 3), ("[1,2,3,4]", 4), (r#"[1,2,3,4,5,{"a":[]},"six"]"#, 4)]
        {
            let read: Three = serde_json::from_str(&format!(r#"{{"of":{text}}}"#)).expect("a list");
            assert_eq!(read.of.len(), kept, "{text}");
        }
        assert!(serde_json::from_str::<Three>(r#"{"of":[1,"two"]}"#).is_err());
    }
}
