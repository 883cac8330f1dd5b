//! The operator socket: whoever the file system lets connect is an administrator, by name.
//!
//! The socket file belongs to the service's user and group with mode 0660. The kernel lets only root, that
//! user and members of that group connect, supplementary groups included; see the decision record.

use crate::edge::authenticate::ConnectionPeer;
use crate::edge::service;
use crate::edge::stall::Stall;
use crate::process::app::App;
use crate::process::datadir::DirError;
use axum::Router;
use lifecycle::names::Source;
use rustix::fs::Mode;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

const CONNECTIONS: usize = 256;

/// Binds the socket. A stale file is removed: the lock on the directory says that nobody else uses it.
pub fn bind(path: &Path) -> Result<UnixListener, DirError> {
    let io = |error| DirError::Io { path: path.to_owned(), error };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(io)?;
    rustix::fs::chmod(path, Mode::from(0o660)).map_err(|error| io(error.into()))?;
    Ok(listener)
}

pub async fn accept(app: Arc<App>, listener: UnixListener, router: Router, tasks: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = places.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.stopped() => return,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: give others the time to finish.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (app, router) = (app.clone(), router.clone());
        tasks.spawn(async move {
            let _permit = permit;
            let Some(peer) = peer(&stream) else { return };
            service::serve(app, router, Stall::new(stream), peer, None, None, false).await;
        });
    }
}

fn peer(stream: &UnixStream) -> Option<ConnectionPeer> {
    let uid = stream.peer_cred().ok()?.uid();
    Some(ConnectionPeer {
        source: Source::Socket,
        certificate: None,
        local_user: Some(user_name(uid).into()),
        keepalive: None,
    })
}

/// The name of a user, or its number where it has none.
pub fn user_name(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(number.as_str())).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}
