//! `DIR/ca/domain`: the domain's name, for checks of the configuration that open nothing. What counts is the registry.

use crate::process::datadir::{DataDir, DirError, replace};
use lifecycle::names::TrustDomain;

const FILE: &str = "domain";

/// None of a directory that no control plane has started from since this file is written.
pub fn read(dir: &DataDir) -> Option<TrustDomain> {
    let text = journal::read_small(&dir.ca(FILE)).ok()?;
    TrustDomain::parse(String::from_utf8(text).ok()?.trim()).ok()
}

pub fn write(dir: &DataDir, domain: &TrustDomain) -> Result<(), DirError> {
    match read(dir).as_ref() == Some(domain) {
        true => Ok(()),
        false => replace(&dir.ca(FILE), format!("{domain}\n").as_bytes(), 0o644),
    }
}
