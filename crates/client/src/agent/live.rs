//! A node's standing connection: Hello and Welcome, then messages both ways until it ends.

use super::Reply;
use super::connection::{CallMetadata, GrpcConnection};
use crate::error::Error;
use crate::unreachable::Unreachable;
use crate::url::ServerUrl;
use api::agent::{Hello, LiveDown, LiveUp, Welcome, live_down, live_up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// How many messages may wait for the network. More means that the other side has stopped reading.
const WAITING: usize = 64;
/// The longest id of an order. The control plane's ids are ULIDs, of 26 bytes; an id is kept until it is answered, and logged.
const ORDER_ID: usize = 64;

/// Dropping it closes the connection.
#[derive(Debug)]
pub struct LiveConnection {
    connection: GrpcConnection,
    /// Gone once nothing more is to be said.
    up: Option<mpsc::Sender<LiveUp>>,
    down: Streaming<LiveDown>,
    welcome: Welcome,
}

impl LiveConnection {
    pub(super) async fn open(
        connection: GrpcConnection,
        hello: Hello,
        metadata: &CallMetadata,
    ) -> Result<Reply<Self>, Error> {
        let (up, waiting) = mpsc::channel(WAITING);
        let full = |_| Error::Fault("a new stream takes no message".to_owned());
        up.try_send(message(live_up::Message::Hello(hello))).map_err(full)?;
        let request = metadata.attach(ReceiverStream::new(waiting));
        let mut down = match connection.client().live(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Err(connection.failure(&status)),
        };
        let welcome = match next(&connection, &mut down).await? {
            Some(live_down::Message::Welcome(welcome)) => welcome,
            _ => {
                return Err(
                    connection.broken(Unreachable::Garbage("its first message is not Welcome".to_owned()))
                );
            }
        };
        let (server, server_time) = (connection.server().clone(), u64::try_from(welcome.server_time_ms).ok());
        Ok(Reply { message: Self { connection, up: Some(up), down, welcome }, server, server_time })
    }

    pub fn server(&self) -> &ServerUrl {
        self.connection.server()
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Hands a message to the network without waiting for it.
    pub fn send(&self, word: live_up::Message) -> Result<(), Error> {
        let sent = self.up.as_ref().is_some_and(|up| up.try_send(message(word)).is_ok());
        if sent { Ok(()) } else { Err(self.connection.broken(Unreachable::TimedOut("stream"))) }
    }

    /// The next message, or nothing of one whose kind this version does not know; an error is the end. Nothing is lost if this is
    /// dropped while it waits.
    pub async fn receive(&mut self) -> Result<Option<live_down::Message>, Error> {
        next(&self.connection, &mut self.down).await
    }

    /// Says nothing more. The server ends the stream when it has said what it has to say.
    pub fn half_close(&mut self) {
        self.up = None;
    }
}

fn message(word: live_up::Message) -> LiveUp {
    LiveUp { message: Some(word) }
}

fn is_overlong(message: &live_down::Message) -> bool {
    matches!(message, live_down::Message::Order(order) if order.order_id.len() > ORDER_ID)
}

async fn next(
    connection: &GrpcConnection,
    down: &mut Streaming<LiveDown>,
) -> Result<Option<live_down::Message>, Error> {
    match down.message().await {
        Ok(Some(LiveDown { message: Some(message) })) if is_overlong(&message) => {
            let what = format!("the id of an order is longer than {ORDER_ID} bytes");
            Err(connection.broken(Unreachable::Garbage(what)))
        }
        Ok(Some(LiveDown { message })) => Ok(message),
        Ok(None) => Err(connection.broken(Unreachable::Closed)),
        Err(status) => Err(connection.failure(&status)),
    }
}
