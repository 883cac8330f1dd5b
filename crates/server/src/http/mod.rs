//! What every HTTP handler needs: request extraction, pages of lists, failures as answers, PEM.

pub mod extract;
pub mod failure;
pub mod page;
pub mod pem;
