//! The process: starting and stopping it, its data directory and configuration, its clock and its randomness, and what it reports.

pub mod activity_log;
pub mod anchor;
pub mod app;
pub mod chance;
pub mod clock;
pub mod clock_repair;
pub mod config;
pub mod config_warnings;
pub mod datadir;
pub mod from_taskrun;
pub mod init;
pub mod join;
pub mod key_memory;
pub mod metrics;
pub mod own_domain;
pub mod run;
mod take_in;
pub mod views;
