//! Doors: each turns one wire shape into the same commands and back. A door holds no rules.

pub mod native;
