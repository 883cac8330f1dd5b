//! The edge of the control plane: it listens, authenticates, translates, prepares and answers.
//!
//! Follow one enrollment: [`edge`] accepts the connection, [`doors::native`] turns the call into a request,
//! [`enroll`] asks the rules, signs and proposes, and the journal commits. No rule of the registry lives here.

pub mod chance;
pub mod clock;
pub mod config;
pub mod datadir;
pub mod from_taskrun;
pub mod init;
pub mod run;

mod alerts;
mod app;
mod auth;
mod crl;
mod doors;
mod edge;
mod enroll;
mod evidence;
mod failure;
mod issuing;
mod live;
mod metrics;
mod mint;
mod operator;
mod overlays;
mod presence;
mod probe;
mod reconcile;
mod recover;
mod recovery;
mod refusals;
mod renew;
mod repair;
mod rewrap;
mod roll;
mod server_cert;
mod told;

pub use app::App;
pub use edge::socket::user_name;
