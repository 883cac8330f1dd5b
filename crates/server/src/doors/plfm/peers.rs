//! Answers with peers. They grow with the tenant, and whoever asked may read slowly or never: so an answer goes out piece by
//! piece, and the next piece only when the one before has left the process. The pieces are those of all hosts that are told the same.

use crate::fleet::overlays::AnswerPermit;
use crate::fleet::overlays::rendered::{ListReader, RenderedPeers, TextKey};
use crate::http::failure::Failure;
use crate::process::app::App;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use http_body::Frame;
use lifecycle::registry::{Families, Node, State};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// Where the peers belong, in a text without any. Inside of a string its quotation marks would be escaped.
const NONE: &str = r#""peers":[]"#;

/// What a host is told of the others.
pub struct PeerText {
    text: Option<(TextKey, Arc<RenderedPeers>)>,
    reader: ListReader,
}

impl PeerText {
    /// The peers of a node, as far as they were so at a revision.
    pub fn of(app: &App, state: &State, node: &Node, until: u64) -> Self {
        let group = state.overlay_group(node);
        let overlay = group.as_ref().and_then(|group| state.overlays.get(&group.tenant));
        let text = group.zip(overlay).map(|(group, overlay)| {
            let key = TextKey { group, families: Families::of(node.underlay.as_ref()) };
            let text = app.fleet.overlays.rendered.text(key.clone(), &overlay.peers, overlay.revision);
            (key, text)
        });
        Self { text, reader: ListReader { own: node.id.clone(), until } }
    }

    fn piece(&self, number: usize) -> Bytes {
        self.text.as_ref().map_or_else(Bytes::new, |(key, text)| text.piece(key, number, &self.reader))
    }

    fn pieces(&self) -> usize {
        self.text.as_ref().map_or(0, |(_, text)| text.pieces())
    }
}

/// An answer of which `text` is all but the peers. The turn is over when the last byte has left.
pub fn answer(
    status: StatusCode,
    text: &impl Serialize,
    peers: PeerText,
    turn: AnswerPermit,
) -> Result<Response, Failure> {
    let text =
        serde_json::to_string(text).map_err(|error| Failure::internal("an answer is no JSON", &error))?;
    let (before, after) =
        text.split_once(NONE).ok_or_else(|| Failure::internal("an answer without a place for peers", &""))?;
    let begin = Some(format!(r#"{before}"peers":["#));
    let text = Text { begin, peers, next: 0, is_first: true, end: Some(format!("]{after}")) };
    let pieces =
        Pieces { text, unsent: PollSemaphore::new(Arc::new(Semaphore::new(1))), turn: Arc::new(turn) };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((status, kind, Body::new(pieces)).into_response())
}

/// What is still to be written.
struct Text {
    begin: Option<String>,
    peers: PeerText,
    next: usize,
    /// Whether no peer was written yet: the first has no comma before it.
    is_first: bool,
    end: Option<String>,
}

impl Text {
    /// The next piece; none behind the last.
    fn piece(&mut self) -> Option<Bytes> {
        if let Some(begin) = self.begin.take() {
            return Some(begin.into());
        }
        while self.next < self.peers.pieces() {
            let piece = self.peers.piece(self.next);
            self.next += 1;
            if !piece.is_empty() {
                let comma = usize::from(std::mem::replace(&mut self.is_first, false));
                return Some(piece.slice(comma..));
            }
        }
        self.end.take().map(Bytes::from)
    }
}

struct Pieces {
    text: Text,
    /// Free when no piece is with the connection.
    unsent: PollSemaphore,
    turn: Arc<AnswerPermit>,
}

/// A connection keeps what the peer has no room for: each piece holds on to the turn by itself.
struct Piece {
    data: Bytes,
    _unsent: OwnedSemaphorePermit,
    _turn: Arc<AnswerPermit>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let Some(_unsent) = ready!(self.unsent.poll_acquire(cx)) else { return Poll::Ready(None) };
        let Some(data) = self.text.piece() else { return Poll::Ready(None) };
        let piece = Piece { data, _unsent, _turn: self.turn.clone() };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.end.is_none()
    }
}
