//! How a host gets a certificate: enrollment, renewal, recovery, repair. The rules are asked, the leaf is signed in
//! memory, the command is committed, and only what the committed outcome granted is released.

pub mod enroll;
pub mod mint;
pub mod probe;
pub mod recover;
pub mod renew;
pub mod repair;
