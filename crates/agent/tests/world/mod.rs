//! A small control plane on loopback, and the program as a host would run it.

pub mod host;
pub mod live;
pub mod plane;
pub mod running;
pub mod tls;
