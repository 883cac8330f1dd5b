//! Every REST route that is served, one table per door.

mod operator;
mod plfm;
mod probectl;
mod taskrun;

use super::Route;

/// All of them.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    [operator::ROUTES, plfm::ROUTES, probectl::ROUTES, taskrun::ROUTES].into_iter().flatten()
}
