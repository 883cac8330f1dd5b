//! The edge of the control plane: it listens, authenticates, translates, prepares and answers.
//!
//! Follow one enrollment: [`edge`] accepts the connection, [`doors::native`] turns the call into a request,
//! [`issuance::enroll`] asks the rules, signs and proposes, and the journal commits. No rule of the registry lives here.

mod ca;
mod cluster;
mod doors;
mod edge;
mod fleet;
mod http;
mod issuance;
mod operator;
mod process;
mod reconcile;

pub use edge::socket::user_name;
pub use process::app::App;
pub use process::{
    anchor, chance, clock, clock_repair, config, config_warnings, datadir, from_taskrun, init, join,
    key_memory, run,
};
