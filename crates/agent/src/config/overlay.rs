//! The table `[overlay]`: whether and how this host is in the overlay.

use toml::Value;

use super::keys;
use super::layers::Layers;
use super::underlay::{PORT, UnderlayAddresses};
use crate::fault::Mistake;
use crate::layout::Layout;
use crate::overlay::Backend;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlaySettings {
    pub backend: Backend,
    /// Whether it joins where the domain does not say that it has an overlay for this node.
    pub enable: bool,
    pub interface: String,
    pub port: u16,
    /// Instead of the MTU that the control plane names.
    pub mtu: Option<u32>,
    /// Where it can be reached, if that was said.
    pub endpoint: Option<UnderlayAddresses>,
}

impl OverlaySettings {
    /// Whether this host joins, whatever the domain says.
    pub fn joins(&self) -> bool {
        match self.backend {
            Backend::Auto => self.enable,
            Backend::Userspace | Backend::Kernel => true,
            Backend::Off => false,
        }
    }
}

pub(super) fn overlay(layers: &Layers<'_>, mistakes: &mut Vec<Mistake>) -> OverlaySettings {
    let port = layers.value(keys::OVERLAY_PORT).and_then(Value::as_integer);
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT);
    let parsed = |key: &str| {
        let list = layers.list(key)?;
        UnderlayAddresses::parse_at(list.iter().map(String::as_str), port)
    };
    let (underlay, endpoint) = (parsed(keys::UNDERLAY), parsed(keys::OVERLAY_ENDPOINT));
    if underlay.is_some() && endpoint.is_some() && underlay != endpoint {
        let what = "differs from `underlay`, which is the same setting; set one of them, or both alike";
        mistakes.push(Mistake::new(keys::OVERLAY_ENDPOINT, what));
    }
    let wireguard = layers.text(keys::LAYOUT).and_then(Layout::parse).is_some_and(Layout::has_wireguard);
    OverlaySettings {
        backend: layers.text(keys::OVERLAY_BACKEND).and_then(Backend::parse).unwrap_or(Backend::Auto),
        enable: layers.is_set(keys::OVERLAY_ENABLE) || wireguard,
        interface: layers.text(keys::OVERLAY_INTERFACE).unwrap_or_default().to_owned(),
        port,
        mtu: layers
            .value(keys::OVERLAY_MTU)
            .and_then(Value::as_integer)
            .and_then(|mtu| u32::try_from(mtu).ok()),
        endpoint: endpoint.or(underlay),
    }
}
