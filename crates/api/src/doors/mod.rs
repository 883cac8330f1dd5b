//! The wire shapes of other systems' clients, one file per document. Strings become names at the door, not here.

pub mod pact;
pub mod plfm;
pub mod probectl;
pub mod taskrun;
