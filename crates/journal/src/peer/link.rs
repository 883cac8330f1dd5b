//! One outgoing connection to another replica: made when it is needed, kept, and made again when it breaks.
//!
//! openraft gives up waiting after a heartbeat, which may be less than a handshake takes: the connection belongs to a task, and
//! what nobody waits for any more is not sent.

use super::handshake::{self, GreetingError};
use super::roster::Roster;
use super::wire::{self, PeerRefusal, PeerReply, PeerRequest};
use super::{PeerConnection, PeerConnector};
use lifecycle::names::ReplicaId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(10);
/// The same of a vote: the next election asks by the same connection, and the other end of it may be gone.
const VOTE: Duration = Duration::from_secs(3);
/// How long a snapshot may take in all.
const SNAPSHOT: Duration = Duration::from_secs(1800);
/// How long nothing may be taken by the other end while a snapshot is sent.
const STALLED: Duration = Duration::from_secs(30);
/// A connection that nobody uses is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Messages that wait for the one before.
const QUEUE: usize = 64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("replica {replica}: {why}")]
pub struct LinkError {
    pub replica: ReplicaId,
    pub why: String,
    /// Whether the message may have arrived.
    pub sent: bool,
}

struct Outgoing {
    request: PeerRequest,
    /// Its bytes follow the request.
    file: Option<PathBuf>,
    answer: oneshot::Sender<Result<PeerReply, LinkError>>,
}

#[derive(Clone)]
pub struct Link {
    replica: ReplicaId,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Link {
    pub fn new(replica: ReplicaId, roster: Arc<Roster>) -> Self {
        let (outgoing, inbox) = mpsc::channel(QUEUE);
        tokio::spawn(LinkTask { replica, roster, inbox, open: None }.run());
        Self { replica, outgoing }
    }

    pub async fn ask(&self, request: PeerRequest) -> Result<PeerReply, LinkError> {
        self.send(request, None).await
    }

    /// A request that a file follows.
    pub async fn ask_with_file(&self, request: PeerRequest, file: PathBuf) -> Result<PeerReply, LinkError> {
        self.send(request, Some(file)).await
    }

    async fn send(&self, request: PeerRequest, file: Option<PathBuf>) -> Result<PeerReply, LinkError> {
        let (answer, answered) = oneshot::channel();
        let gone = || LinkError { replica: self.replica, why: "the link has ended".to_owned(), sent: false };
        self.outgoing.send(Outgoing { request, file, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

struct LinkTask {
    replica: ReplicaId,
    roster: Arc<Roster>,
    inbox: mpsc::Receiver<Outgoing>,
    open: Option<PeerConnection>,
}

impl LinkTask {
    /// Until nobody holds the link.
    async fn run(mut self) {
        loop {
            let next = match tokio::time::timeout(IDLE, self.inbox.recv()).await {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(_) => {
                    self.open = None;
                    continue;
                }
            };
            if next.answer.is_closed() {
                continue;
            }
            let Outgoing { request, file, answer } = next;
            let result = self.perform(request, file, &answer).await;
            // Whoever gave up waiting asks again.
            let _ = answer.send(result);
        }
    }

    async fn perform(
        &mut self,
        request: PeerRequest,
        file: Option<PathBuf>,
        answer: &oneshot::Sender<Result<PeerReply, LinkError>>,
    ) -> Result<PeerReply, LinkError> {
        let replica = self.replica;
        let failed = |sent: bool| move |why: String| LinkError { replica, why, sent };
        let reused = self.open.is_some();
        let mut connection = match self.open.take() {
            Some(open) => open,
            None => self.connect().await.map_err(|error| failed(false)(error.to_string()))?,
        };
        // A handshake may have taken longer than it was waited for: the connection is for what comes next. A vote of an election that is
        // over would only disturb the one that is under way.
        if answer.is_closed() {
            self.open = Some(connection);
            return Err(failed(false)("nobody waits for the answer any more".to_owned()));
        }
        let limit = match &request {
            PeerRequest::Snapshot { .. } => SNAPSHOT,
            PeerRequest::Vote(_) => VOTE,
            PeerRequest::Append(_)
            | PeerRequest::Propose { .. }
            | PeerRequest::ReadIndex
            | PeerRequest::Lines { .. }
            | PeerRequest::Report(_)
            | PeerRequest::Elect
            | PeerRequest::Ask { .. } => ANSWER,
        };
        let asked = tokio::time::timeout(limit, exchange(&mut connection, &request, file.as_deref())).await;
        match asked {
            Ok(Ok(reply)) => {
                self.open = Some(connection);
                Ok(reply)
            }
            // The other end may have closed what was idle: what can be asked twice is asked once more.
            Ok(Err(_)) if reused && is_repeatable(&request) => {
                let mut connection =
                    self.connect().await.map_err(|error| failed(false)(error.to_string()))?;
                if answer.is_closed() {
                    self.open = Some(connection);
                    return Err(failed(true)("nobody waits for the answer any more".to_owned()));
                }
                let again = tokio::time::timeout(limit, exchange(&mut connection, &request, None)).await;
                let reply = again.map_err(|_| failed(true)("no answer in time".to_owned()))?;
                let reply = reply.map_err(|error| failed(true)(error.to_string()))?;
                self.open = Some(connection);
                Ok(reply)
            }
            Ok(Err(error)) => Err(failed(true)(error.to_string())),
            Err(_) => Err(failed(true)("no answer in time".to_owned())),
        }
    }

    async fn connect(&self) -> Result<PeerConnection, GreetingError> {
        let connected = self.reach().await;
        let refused = match &connected {
            Err(GreetingError::Refused(why)) => Some(*why),
            Ok(_) | Err(GreetingError::Declined(_) | GreetingError::Io(_)) => None,
        };
        self.roster.refused_by(self.replica, refused);
        connected
    }

    async fn reach(&self) -> Result<PeerConnection, GreetingError> {
        let roster = &self.roster;
        if roster.is_rolled_back() {
            return Err(GreetingError::Declined(PeerRefusal::Unfit));
        }
        let address =
            roster.address(self.replica).ok_or_else(|| std::io::Error::other("its address is not known"))?;
        let connector: &Arc<dyn PeerConnector> = roster.connector()?;
        let connecting = connector.connect(self.replica, address);
        let connected = tokio::time::timeout(ANSWER, connecting).await;
        let mut connection = connected.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
        if let Err(why) = roster.admits_certificate(&connection) {
            return Err(GreetingError::Declined(why));
        }
        // Before it says how far its log is: what it acknowledges meanwhile by another connection does not count.
        let reached = roster.known_reach(self.replica);
        handshake::greet(&mut connection, &roster.identity(), roster.key(), |called| {
            roster.admit_called(called, reached)
        })
        .await?;
        Ok(connection)
    }
}

/// Asking twice changes nothing more than asking once.
fn is_repeatable(request: &PeerRequest) -> bool {
    match request {
        // openraft takes the same entries and votes twice; commands carry their ids.
        PeerRequest::Append(_)
        | PeerRequest::Vote(_)
        | PeerRequest::Propose { .. }
        | PeerRequest::ReadIndex
        | PeerRequest::Lines { .. }
        | PeerRequest::Report(_)
        | PeerRequest::Elect
        | PeerRequest::Ask { .. } => true,
        PeerRequest::Snapshot { .. } => false,
    }
}

async fn exchange(
    connection: &mut PeerConnection,
    request: &PeerRequest,
    file: Option<&std::path::Path>,
) -> std::io::Result<PeerReply> {
    let stream = &mut connection.stream;
    wire::write(stream, request).await?;
    if let (PeerRequest::Snapshot { length, .. }, Some(path)) = (request, file) {
        let mut file = tokio::fs::File::open(path).await?;
        send_file(stream, &mut file, *length).await?;
    }
    wire::read_message(stream).await
}

async fn send_file(
    to: &mut Box<dyn super::PeerStream>,
    from: &mut tokio::fs::File,
    length: u64,
) -> std::io::Result<()> {
    use tokio::io::AsyncReadExt;
    let (mut left, mut piece) = (length, vec![0; 64 * 1024]);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = from.read(piece.get_mut(..most).unwrap_or_default()).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let sending = to.write_all(piece.get(..read).unwrap_or_default());
        tokio::time::timeout(STALLED, sending).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
        left = left.saturating_sub(read as u64);
    }
    to.flush().await
}
