//! The addresses of the control plane, looked at together with all other settings.

use client::ServerUrl;
use client::url::UrlError;

use super::layers::{Layer, Layers};
use super::{file, keys};
use crate::fault::Mistake;

/// What is wrong with the addresses that count. Plain http has a fault of its own, which says why; here it is only
/// named beside other mistakes.
pub(super) fn check(layers: &Layers<'_>, mistakes: &mut Vec<Mistake>) {
    let Some((layer, servers)) = layers.iter().find_map(|layer| Some((layer, layer.list(keys::SERVER)?)))
    else {
        return;
    };
    let (mut wrong, mut plain) = (Vec::new(), Vec::new());
    for text in servers {
        match ServerUrl::parse(&text) {
            Ok(_) => {}
            Err(error @ UrlError::PlainHttp(_)) => plain.push(Mistake::new(at(layer), error.to_string())),
            Err(error) => wrong.push(Mistake::new(at(layer), error.to_string())),
        }
    }
    mistakes.extend(wrong);
    if !mistakes.is_empty() {
        mistakes.extend(plain);
    }
}

fn at(layer: &Layer<'_>) -> String {
    match layer.name {
        file::NAME => format!("{} server", file::NAME),
        other => format!("{other}, server"),
    }
}
