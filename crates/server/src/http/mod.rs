//! What every HTTP handler needs: request extraction, failures as answers, PEM.

pub mod extract;
pub mod failure;
pub mod pem;
