//! Answers with peers. They grow with the tenant, and whoever asked may read slowly or never: so an answer is
//! written piece by piece, and the next piece only when the one before has left the process.

use crate::fleet::overlays::AnswerPermit;
use crate::http::failure::Failure;
use api::doors::plfm::OverlayPeer;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use http_body::Frame;
use lifecycle::names::NodeId;
use lifecycle::registry::Peers;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// How long a piece is, and the room for the peer that goes beyond.
const PIECE: usize = 15 * 1024;
const ROOM: usize = 16 * 1024;
/// Where the peers belong, in a text without any. Inside of a string its quotation marks would be escaped.
const NONE: &str = r#""peers":[]"#;

/// An answer of which `text` is all but the peers. The turn is over when the last byte has left.
pub fn answer(
    status: StatusCode,
    text: &impl Serialize,
    peers: Peers,
    turn: AnswerPermit,
) -> Result<Response, Failure> {
    let text =
        serde_json::to_string(text).map_err(|error| Failure::internal("an answer is no JSON", &error))?;
    let (before, after) =
        text.split_once(NONE).ok_or_else(|| Failure::internal("an answer without a place for peers", &""))?;
    let text =
        Text { begin: Some(format!(r#"{before}"peers":["#)), peers, last: None, end: format!("]{after}") };
    let pieces = Pieces {
        text: Some(text),
        unsent: PollSemaphore::new(Arc::new(Semaphore::new(1))),
        turn: Arc::new(turn),
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((status, kind, Body::new(pieces)).into_response())
}

/// What is still to be written.
struct Text {
    begin: Option<String>,
    peers: Peers,
    /// The one that was written last.
    last: Option<NodeId>,
    end: String,
}

impl Text {
    /// The next piece, and whether it is the last.
    fn piece(&mut self) -> serde_json::Result<(Vec<u8>, bool)> {
        let mut piece = Vec::with_capacity(ROOM);
        piece.extend(self.begin.take().into_iter().flat_map(String::into_bytes));
        let mut last = self.last.as_ref();
        let mut ends = true;
        for (id, peer) in self.peers.behind(last) {
            if piece.len() >= PIECE {
                ends = false;
                break;
            }
            if last.is_some() {
                piece.push(b',');
            }
            serde_json::to_writer(&mut piece, &OverlayPeer::of(peer))?;
            last = Some(id);
        }
        self.last = last.cloned();
        if ends {
            piece.extend(self.end.as_bytes());
        }
        Ok((piece, ends))
    }
}

struct Pieces {
    text: Option<Text>,
    /// Free when no piece is with the connection.
    unsent: PollSemaphore,
    turn: Arc<AnswerPermit>,
}

/// A connection keeps what the peer has no room for: each piece holds on to the turn by itself.
struct Piece {
    data: Vec<u8>,
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
    type Error = serde_json::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, serde_json::Error>>> {
        if self.text.is_none() {
            return Poll::Ready(None);
        }
        let unsent = ready!(self.unsent.poll_acquire(cx));
        let (Some(_unsent), Some(mut text)) = (unsent, self.text.take()) else { return Poll::Ready(None) };
        let piece = text.piece().map(|(data, ends)| {
            self.text = Some(text).filter(|_| !ends);
            Frame::data(Bytes::from_owner(Piece { data, _unsent, _turn: self.turn.clone() }))
        });
        Poll::Ready(Some(piece))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_none()
    }
}
