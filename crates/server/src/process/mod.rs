//! The process: starting and stopping it, its data directory, its clock and its randomness, and what it reports.

pub mod activity_log;
pub mod app;
pub mod chance;
pub mod clock;
pub mod datadir;
pub mod init;
pub mod metrics;
pub mod run;
pub mod views;
