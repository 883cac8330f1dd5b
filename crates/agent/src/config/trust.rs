//! Which control plane to trust at first contact. There is no default: a token given to whoever answers
//! first is a token given away.

use std::path::PathBuf;

use pki::pin::Pin;
use toml::Value;

use super::edit::KeyEdit;
use super::keys::{CA_FILE, CA_PIN, SYSTEM_ROOTS};
use super::layers::Layers;
use crate::fault::Mistake;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustChoice {
    CaFile(PathBuf),
    Pin(Pin),
    /// Only where the operator says so in as many words.
    SystemRoots,
}

impl TrustChoice {
    /// How agent.toml says it. The other two kinds go, since one trust must not be read as another.
    pub fn changes(&self) -> [KeyEdit; 3] {
        let text = |text: String| Some(Value::String(text));
        let (file, pin, roots) = match self {
            // A path that is not UTF-8 cannot be written in TOML; the daemon does not need it.
            TrustChoice::CaFile(path) => (path.to_str().and_then(|path| text(path.to_owned())), None, None),
            TrustChoice::Pin(pin) => (None, text(pin.to_string()), None),
            TrustChoice::SystemRoots => (None, None, Some(Value::Boolean(true))),
        };
        [(CA_FILE, file), (CA_PIN, pin), (SYSTEM_ROOTS, roots)]
    }
}

/// The first layer that says anything about trust decides alone: mixing layers would widen it unseen. One that
/// says no to the system's roots only says it for the layers below, which may name something else.
pub(super) fn choose(layers: &Layers<'_>, mistakes: &mut Vec<Mistake>) -> Option<TrustChoice> {
    let mut refused = false;
    for layer in layers.iter() {
        let roots = layer.said(SYSTEM_ROOTS);
        refused |= roots == Some(false);
        let file = layer.path(CA_FILE).map(TrustChoice::CaFile);
        let pin = layer.text(CA_PIN).and_then(|text| Pin::parse(text).ok()).map(TrustChoice::Pin);
        let roots = roots.filter(|wanted| *wanted && !refused).map(|_| TrustChoice::SystemRoots);
        let mut said = [file, pin, roots].into_iter().flatten();
        let Some(first) = said.next() else { continue };
        if said.next().is_some() {
            let message = "gives more than one of ca_file, ca_pin and system_roots, expected one";
            mistakes.push(layer.mistake(message));
        }
        return Some(first);
    }
    None
}
