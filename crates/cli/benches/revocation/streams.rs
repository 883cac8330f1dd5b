//! Many hosts in this process, each with a live stream on a connection of its own.

use crate::CUT_LIMIT;
use crate::plane::Plane;
use crate::tokens;
use crate::wire::{self, Error};
use api::agent::{EnrollResponse, Heartbeat, Hello, LiveDown, LiveUp, live_down, live_up};
use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use futures::channel::mpsc;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use pki::agent_key::HostKey;
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Hosts that arrive at the same time.
const AT_ONCE: usize = 32;
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

type Up = mpsc::Receiver<Result<Frame<Bytes>, Infallible>>;

/// A host that was let in.
pub struct Host {
    node: String,
    tls: Arc<ClientConfig>,
}

/// What the tasks that drive the connections tell.
enum News {
    Answered,
    /// A document came: when its last byte was here.
    Configured {
        at: Instant,
        bytes: usize,
    },
    Closed {
        stream: usize,
        at: Instant,
    },
}

struct Stream {
    node: String,
    up: mpsc::Sender<Result<Frame<Bytes>, Infallible>>,
    doomed: bool,
}

pub struct Streams {
    open: Vec<Stream>,
    news: UnboundedReceiver<News>,
    /// Ends of connections that nobody has asked for yet.
    ends: HashMap<usize, Instant>,
}

pub async fn enroll(plane: &Plane, count: usize) -> Result<Vec<Host>, Error> {
    let tokens = tokens::mint(plane, count).await?;
    let bundle = std::fs::read(plane.data().join("ca/bundle.pem"))?;
    let (address, stranger) = (address(plane), Arc::new(wire::stranger(&bundle)?));
    let key = HostKey::generate()?;
    let csr = key.csr_pem()?;
    let answers = tokens.into_iter().map(|token| {
        let (address, tls, body) = (address.clone(), stranger.clone(), wire::enrollment(token, &csr));
        async move { wire::enroll(&address, tls, body).await }
    });
    let answers: Vec<_> = futures::stream::iter(answers).buffer_unordered(AT_ONCE).collect().await;
    answers.into_iter().map(|answer| host(&bundle, &key, &answer?)).collect()
}

fn host(bundle: &[u8], key: &HostKey, answer: &EnrollResponse) -> Result<Host, Error> {
    let mut chain = Vec::new();
    for part in [&answer.certificate, &answer.chain] {
        let ders = pki::pem::certificates(part.as_bytes())?;
        chain.extend(ders.iter().map(|der| CertificateDer::from(der.to_vec())));
    }
    let mut tls = wire::trusting(bundle)?.with_client_auth_cert(chain, key.private_key_der())?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Host { node: answer.node_id.clone(), tls: Arc::new(tls) })
}

fn address(plane: &Plane) -> String {
    plane.url.trim_start_matches("https://").to_owned()
}

impl Streams {
    pub async fn open(plane: &Plane, hosts: Vec<Host>) -> Result<Self, Error> {
        let (tell, news) = unbounded_channel();
        let address = address(plane);
        let opening = hosts.into_iter().enumerate().map(|(number, host)| {
            let (address, tell) = (address.clone(), tell.clone());
            async move { open(&address, host, number, tell).await }
        });
        // In order: a stream is known by its place.
        let open: Vec<_> = futures::stream::iter(opening).buffered(AT_ONCE).collect().await;
        Ok(Self { open: open.into_iter().collect::<Result<_, _>>()?, news, ends: HashMap::new() })
    }

    /// A heartbeat on every stream, in turn, and all their answers.
    pub async fn beat(&mut self) -> Result<(), Error> {
        let heartbeat = word(live_up::Message::Heartbeat(Heartbeat::default()));
        let mut awaited = 0;
        for stream in self.open.iter_mut().filter(|stream| !stream.doomed) {
            stream.up.try_send(Ok(Frame::data(heartbeat.clone())))?;
            awaited += 1;
        }
        while awaited > 0 {
            match tokio::time::timeout(ANSWER_LIMIT, self.news.recv()).await? {
                Some(News::Answered) => awaited -= 1,
                Some(News::Configured { .. }) => {}
                Some(News::Closed { stream, at }) => self.ended(stream, at)?,
                None => return Err("every stream has ended".into()),
            }
        }
        Ok(())
    }

    /// When a document of so many bytes had arrived on every stream.
    pub async fn configured(&mut self, document: usize) -> Result<Vec<Instant>, Error> {
        let mut arrived = Vec::new();
        while arrived.len() < self.open.len() {
            match tokio::time::timeout(ANSWER_LIMIT, self.news.recv()).await? {
                Some(News::Configured { at, bytes }) if bytes == document => arrived.push(at),
                Some(News::Configured { .. } | News::Answered) => {}
                Some(News::Closed { stream, at }) => self.ended(stream, at)?,
                None => return Err("every stream has ended".into()),
            }
        }
        Ok(arrived)
    }

    /// From here on this one may be closed. Its node.
    pub fn doom(&mut self, at: usize) -> Result<String, Error> {
        let stream = self.open.get_mut(at).ok_or("no such stream")?;
        stream.doomed = true;
        Ok(stream.node.clone())
    }

    /// When this connection was seen closed.
    pub async fn closed(&mut self, wanted: usize) -> Result<Instant, Error> {
        loop {
            if let Some(at) = self.ends.remove(&wanted) {
                return Ok(at);
            }
            let stays = |_| format!("stream {wanted} is open {CUT_LIMIT:?} after its node was revoked");
            match tokio::time::timeout(CUT_LIMIT, self.news.recv()).await.map_err(stays)? {
                Some(News::Closed { stream, at }) => self.ended(stream, at)?,
                Some(News::Answered | News::Configured { .. }) => {}
                None => return Err("every stream has ended".into()),
            }
        }
    }

    fn ended(&mut self, stream: usize, at: Instant) -> Result<(), Error> {
        if self.open.get(stream).is_some_and(|stream| !stream.doomed) {
            return Err(format!("stream {stream} was closed, and its node not revoked").into());
        }
        self.ends.insert(stream, at);
        Ok(())
    }
}

fn word(message: live_up::Message) -> Bytes {
    wire::frame(&LiveUp { message: Some(message) })
}

/// Opens a stream and waits for its Welcome; what comes then is told.
async fn open(
    address: &str,
    host: Host,
    number: usize,
    tell: UnboundedSender<News>,
) -> Result<Stream, Error> {
    let (mut up, waiting) = mpsc::channel(64);
    let hello = Hello {
        node_id: host.node.clone(),
        instance_id: format!("bench-{number}"),
        agent_version: "bench".to_owned(),
        bundle_version: 1,
        config_wanted: true,
        ..Hello::default()
    };
    up.try_send(Ok(Frame::data(word(live_up::Message::Hello(hello)))))?;
    let (mut sender, connection) = wire::connect::<StreamBody<Up>>(address, host.tls).await?;
    let closed = tell.clone();
    tokio::spawn(async move {
        // However it ends: the socket is closed.
        let _ = connection.await;
        let _ = closed.send(News::Closed { stream: number, at: Instant::now() });
    });
    let response = sender.send_request(wire::call("Live", StreamBody::new(waiting))?).await?;
    let mut down = Down { body: response.into_body(), read: BytesMut::new() };
    match tokio::time::timeout(ANSWER_LIMIT, down.next()).await? {
        Some(live_down::Message::Welcome(_)) => {}
        other => return Err(format!("instead of Welcome: {other:?}").into()),
    }
    tokio::spawn(async move {
        // The sender keeps the connection open on this side for as long as the other does.
        let _sender = sender;
        while let Some(message) = down.next().await {
            if matches!(message, live_down::Message::Ack(_)) {
                let _ = tell.send(News::Answered);
            } else if let live_down::Message::Config(config) = message {
                let _ = tell.send(News::Configured { at: Instant::now(), bytes: config.base.len() });
            }
        }
        tell.closed().await;
    });
    Ok(Stream { node: host.node, up, doomed: false })
}

/// What comes down, message by message.
struct Down {
    body: Incoming,
    read: BytesMut,
}

impl Down {
    async fn next(&mut self) -> Option<live_down::Message> {
        loop {
            if let Some(message) = self.whole() {
                return LiveDown::decode(message).ok()?.message;
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(&frame.into_data().ok()?);
        }
    }

    /// One that has arrived in full.
    fn whole(&mut self) -> Option<Bytes> {
        let length = self.read.get(1..5).map(|mut length| length.get_u32() as usize)?;
        if self.read.len() < 5 + length {
            return None;
        }
        self.read.advance(5);
        Some(self.read.split_to(length).freeze())
    }
}
