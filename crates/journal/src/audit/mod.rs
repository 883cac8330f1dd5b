//! The audit trail: one line per event, each holding the hash of the one before.
//!
//! - [`chain`]: what a line looks like and how it hangs on its predecessor; pure, for exported files too.
//! - `store`: `DIR/audit.db`, written by the state machine.
//! - [`Audit`]: what everybody else may do with it: list, select and verify.

pub mod chain;
mod checkpoint;
mod footer;
mod handle;
mod last_checkpoint;
mod select;
mod store;
mod verify;

pub use checkpoint::{CheckpointLine, checkpoint_message, checkpoint_of};
pub use footer::{Footer, footer_message};
pub use handle::{Audit, AuditStoreError};
pub use last_checkpoint::LastCheckpoint;
pub use select::Selection;
pub use store::{FILE, PutError, SCHEMA, Store};
pub use verify::{TrailFault, Verification};
