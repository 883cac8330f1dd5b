//! `taskrun.v1.RunService`: the stream that a worker holds open. It is a live stream like the native one, with
//! the same limits and the same places: up come hello and heartbeats, down goes one acknowledgement of each.

use super::worker;
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::keepalive::Keepalive;
use crate::edge::node_peer::ShownIdentity;
use crate::edge::phase::RequestPhase;
use crate::fleet::live::{Allowance, BACKLOG, HELLO_LIMIT, living};
use crate::fleet::presence::{Stream, StreamOpening};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code;
use api::doors::taskrun::{
    RunClientMessage, RunServerMessage, RunService, RunServiceServer, ServerAck, WorkerHello,
    run_client_message as up, run_server_message as down,
};
use api::error::Wording;
use lifecycle::names::{Label, NodeId};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub const SERVICE: &str = "taskrun.v1.RunService";
/// The one call whose request and answer last.
pub const CONNECT: &str = "/taskrun.v1.RunService/StreamConnect";
/// The document's workers do not say which start of theirs this is, so all are taken for one.
const INSTANCE: &str = "taskrun";

type StreamAnswer = Result<RunServerMessage, Status>;

pub fn service(app: &Arc<App>) -> RunServiceServer<Runs> {
    let limit = usize::try_from(crate::edge::body::BODY_LIMIT).unwrap_or(usize::MAX);
    RunServiceServer::new(Runs { app: app.clone() }).max_decoding_message_size(limit)
}

pub struct Runs {
    app: Arc<App>,
}

#[tonic::async_trait]
impl RunService for Runs {
    type StreamConnectStream = ReceiverStream<StreamAnswer>;

    async fn stream_connect(
        &self,
        request: Request<Streaming<RunClientMessage>>,
    ) -> Result<Response<Self::StreamConnectStream>, Status> {
        let missing = || Status::internal("a request without its connection");
        let origin = request.extensions().get::<Provenance>().cloned().ok_or_else(missing)?;
        let peer = request.extensions().get::<ConnectionPeer>().cloned().ok_or_else(missing)?;
        let (id, shown) = worker::authenticated(&self.app, &peer).await.map_err(|f| status(&f, ""))?;
        let (down, answers) = mpsc::channel(BACKLOG);
        let request_id = origin.request_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let (app, keepalive) = (self.app.clone(), peer.keepalive.clone());
        let phase = request.extensions().get().cloned();
        let session = WorkerSession { app, id, shown, origin, keepalive, phase, down: down.clone() };
        let up = request.into_inner();
        tokio::spawn(async move {
            if let Err(failure) = session.run(up).await {
                // Nobody may be reading any more.
                let _ = down.try_send(Err(status(&failure, &request_id)));
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

fn status(failure: &Failure, request_id: &str) -> Status {
    Status::from(failure.detail_as(Wording::Taskrun.code(failure.code), request_id))
}

struct WorkerSession {
    app: Arc<App>,
    id: NodeId,
    shown: ShownIdentity,
    origin: Provenance,
    keepalive: Option<Arc<Keepalive>>,
    /// Of its request, which protects the connection once it has greeted.
    phase: Option<Arc<RequestPhase>>,
    down: mpsc::Sender<StreamAnswer>,
}

impl WorkerSession {
    async fn run(mut self, mut up: Streaming<RunClientMessage>) -> Result<(), Failure> {
        let mut allowance = Allowance::new();
        let first = tokio::time::timeout(HELLO_LIMIT, first(&mut up, &mut allowance)).await;
        let hello = match first.map_err(|_| Failure::new(code::TIMEOUT, "no WorkerHello within 10 s"))?? {
            Some(up::Payload::Hello(hello)) => hello,
            Some(up::Payload::Heartbeat(_)) => {
                return Err(Failure::new(code::HELLO_EXPECTED, "the first message must be WorkerHello"));
            }
            None => return Ok(()),
        };
        let stream = self.open(hello)?;
        self.phase.take().inspect(|phase| phase.received());
        let result = self.serve(&mut up, &stream, &mut allowance).await;
        self.app.fleet.presence.close(&self.id, &stream);
        result
    }

    /// Takes a place among the node's streams.
    fn open(&self, hello: WorkerHello) -> Result<Arc<Stream>, Failure> {
        let info = hello.info.unwrap_or_default();
        self.is_own(&info.worker_id)?;
        let view = self.app.view();
        let node = living(&view.state, &self.id)?;
        let instance = Label::parse(INSTANCE);
        let opening = StreamOpening {
            node: &self.id,
            shown: &self.shown,
            source: self.origin.source,
            instance: instance.map_err(|error| Failure::internal("no label", &error))?,
            agent_version: Label::parse(&info.version).ok(),
            bundle: None,
            recovery_kept: None,
            remembered: &node.instances,
            keepalive: self.keepalive.clone(),
            listens: false,
            tap: None,
        };
        let opened = self.app.fleet.presence.open(opening, self.app.now());
        opened.map_err(|_| Failure::new(code::TOO_MANY_STREAMS, "this worker has four live streams already"))
    }

    async fn serve(
        &self,
        up: &mut Streaming<RunClientMessage>,
        stream: &Stream,
        allowance: &mut Allowance,
    ) -> Result<(), Failure> {
        // There is a place for the stream; only now is the certificate in use.
        authenticate::contact(&self.app, &self.origin, &self.id, &self.shown).await?;
        self.acknowledge("hello", self.id.to_string())?;
        loop {
            tokio::select! {
                message = up.message() => match message {
                    Ok(Some(message)) => {
                        allowance.spend()?;
                        self.receive(message)?;
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => return Err(unreadable(&error)),
                },
                () = stream.wake.notified() => drop(living(&self.app.view().state, &self.id)?),
                () = self.down.closed() => return Ok(()),
                () = self.app.stopped() => {
                    return Err(Failure::new(code::UNAVAILABLE, "the control plane is shutting down"));
                }
            }
        }
    }

    fn receive(&self, message: RunClientMessage) -> Result<(), Failure> {
        let acknowledged = match message.payload {
            Some(up::Payload::Hello(hello)) => {
                self.is_own(&hello.info.unwrap_or_default().worker_id)?;
                Some(("hello", self.id.to_string()))
            }
            Some(up::Payload::Heartbeat(beat)) => {
                self.is_own(&beat.worker_id)?;
                let timed = Some(beat.timestamp_ms).filter(|at| *at != 0);
                Some(("heartbeat", timed.map_or_else(|| self.id.to_string(), |at| at.to_string())))
            }
            // What workers send beside these is for others.
            None => None,
        };
        self.app.fleet.presence.seen(&self.id, self.origin.source, self.app.now());
        acknowledged.map_or(Ok(()), |(kind, of)| self.acknowledge(kind, of))
    }

    /// A worker speaks for itself: every message names who it is, and the certificate says who that is.
    fn is_own(&self, named: &str) -> Result<(), Failure> {
        if named == self.id.as_str() {
            return Ok(());
        }
        Err(Failure::new(
            code::NOT_YOUR_NODE,
            "the client certificate belongs to another worker than the message names",
        ))
    }

    /// The stream of a worker that does not read what is sent ends.
    fn acknowledge(&self, ack_type: &str, ref_id: String) -> Result<(), Failure> {
        let ack = ServerAck { ack_type: ack_type.to_owned(), ref_id };
        self.down
            .try_send(Ok(RunServerMessage { payload: Some(down::Payload::Ack(ack)) }))
            .map_err(|_| Failure::new(code::TOO_SLOW, "the client does not read what is sent"))
    }
}

/// The first payload that means something here; none when the worker has left.
async fn first(
    up: &mut Streaming<RunClientMessage>,
    allowance: &mut Allowance,
) -> Result<Option<up::Payload>, Failure> {
    while let Some(message) = up.message().await.map_err(|error| unreadable(&error))? {
        allowance.spend()?;
        if message.payload.is_some() {
            return Ok(message.payload);
        }
    }
    Ok(None)
}

fn unreadable(error: &Status) -> Failure {
    if error.code() == tonic::Code::OutOfRange {
        Failure::new(code::TOO_LARGE, "the message is larger than 64 KiB")
    } else {
        Failure::new(code::BAD_REQUEST, "this is not a message that the method takes")
    }
}
