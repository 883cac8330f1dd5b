//! `/v1/server/clock`: how far the clock is believed, and an operator's word that it is right.

use crate::edge::authenticate;
use crate::http::extract::{Caller, Json};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::rest::server_clock::{AcceptClockRequest, ServerClock};
use axum::extract::State;
use lifecycle::names::Source;
use lifecycle::registry::{AcceptClock, Act, Command, Confirmation};
use std::sync::Arc;

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<ServerClock>, Failure> {
    authenticate::reader(&app, &caller.actor, Act::ReadClock)?;
    Ok(axum::Json(ServerClock::of(&app.clock.read())))
}

/// On the socket only: a stolen operator credential must not be enough to end every certificate. The word is on record
/// before it counts; a process that ends between the two takes the clock to be right at its next start.
pub async fn accept(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<AcceptClockRequest>,
) -> Result<axum::Json<ServerClock>, Failure> {
    authenticate::reader(&app, &caller.actor, Act::AcceptClock)?;
    if caller.origin.source != Source::Socket {
        return Err(Failure::new(code::LOCAL_ONLY, "the clock is accepted on the operator socket only"));
    }
    let reading = app.clock.read();
    if !reading.is_believed() {
        let (from, to) = (app.now(), reading.wall);
        let accept = AcceptClock { from, to, confirm: Confirmation::Asked(request.confirm) };
        let (_, view) = app.commit(caller.actor, &caller.origin, Command::AcceptClock(accept)).await?;
        app.clock.accept(&reading, view.state.at);
    }
    Ok(axum::Json(ServerClock::of(&app.clock.read())))
}
