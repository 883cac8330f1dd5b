//! A small world to connect to: authorities, certificates good and bad, and servers on loopback.

pub mod authority;
pub mod server;
