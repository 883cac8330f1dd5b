//! Identities beside the host's own: SPIRE, and the shared one of its image.

use std::time::Duration;

use client::workload::socket_path;
use lifecycle::names::Span;

use super::keys;
use super::layers::Layers;
use crate::fault::Mistake;
use crate::spire::SpireConfig;

pub(super) fn spire(layers: &Layers<'_>, mistakes: &mut Vec<Mistake>) -> Option<SpireConfig> {
    let address = layers.text(keys::SPIRE_SOCKET)?;
    let retry = layers.text(keys::SPIRE_RETRY).and_then(|text| Span::parse(text).ok());
    let retry = Duration::from_millis(retry.unwrap_or(Span::from_secs(1)).millis());
    match socket_path(address) {
        Ok(socket) => Some(SpireConfig { socket, retry }),
        Err(error) => {
            mistakes.push(Mistake::new(keys::SPIRE_SOCKET, error.to_string()));
            None
        }
    }
}
