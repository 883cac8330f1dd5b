//! `session`: runs a command on this host as a session that the agent and the control plane know of.
//!
//! It is registered before the command is started, and the connection to the agent stays open until it has ended. This process
//! adopts whatever the command leaves behind (PR_SET_CHILD_SUBREAPER), so that nothing of a session outlives it unseen.
//! An agent that is stopped or started again ends no session: it is registered again. The control plane can end
//! sessions, by decommissioning or revoking the node; it can start none.

pub mod account;
mod link;
mod principal;
pub mod processes;
mod supervise;
pub mod wire;

use crate::cli::SessionArgs;
use crate::code::AgentCode;
use crate::config::{self, Environment, Values};
use crate::fault::Fault;
use crate::run::socket;
use account::HostUser;
use link::AgentLink;
use wire::Registration;

/// Where programs are looked for that belong to the system.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The exit status of the command: 128 and the number of the signal where one ended it.
pub async fn run(args: &SessionArgs, environment: &Environment, json: bool) -> Result<u8, Fault> {
    let dir = args.place.path(environment);
    let config = config::load(&dir, Values::new(), environment).ok();
    let socket = socket::found(&dir, config.as_ref());
    let user = known(&args.user)?;
    let registration = Registration {
        kind: args.kind.clone(),
        user: user.name.clone(),
        pid: None,
        supervised: true,
        resume: None,
    };
    let link = AgentLink::open(socket, registration).await?;
    supervise::run(&args.command, &user, link, json).await
}

fn known(name: &str) -> Result<HostUser, Fault> {
    let unknown = |what: String| {
        Fault::usage(AgentCode::SessionUserUnknown, what, AgentCode::SessionUserUnknown.remedy())
    };
    match account::find(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(unknown(format!("this host has no user {name:?}"))),
        Err(error) => Err(unknown(format!("the users of this host cannot be read: {error}"))),
    }
}
