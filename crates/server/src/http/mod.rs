//! What every HTTP handler needs: what other web sites may not send, request extraction, pages of lists, failures as answers, PEM.

pub mod cross_site;
pub mod document;
pub mod extract;
pub mod failure;
pub mod page;
pub mod pem;
