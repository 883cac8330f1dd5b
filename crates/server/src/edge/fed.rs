//! An answer that is made piece by piece, each only once the one before is taken. Its source is let go when the reader takes
//! nothing for a while, also on HTTP/2, where a reader may stop one answer and go on with the others.

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the reader may leave a piece untaken.
const PIECE_LIMIT: Duration = Duration::from_secs(60);

/// A piece, or the end that the source came to by itself.
type Fed = Option<Result<Bytes, io::Error>>;

/// The pieces as a body, which may take this long in all, and ends early when its place is given to another.
pub fn body(
    pieces: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static,
    limit: Option<Duration>,
    displaced: CancellationToken,
) -> Body {
    let (fed, taken) = mpsc::channel(1);
    let over = limit.map(|limit| Instant::now() + limit);
    tokio::spawn(async move { displaced.run_until_cancelled(feed(pieces, fed, over)).await });
    Body::from_stream(futures::stream::unfold(Some(taken), |taken| async move {
        let mut taken = taken?;
        match taken.recv().await {
            Some(Some(piece)) => Some((piece, Some(taken))),
            Some(None) => None,
            None => Some((Err(io::ErrorKind::TimedOut.into()), None)),
        }
    }))
}

async fn feed(
    pieces: impl Stream<Item = Result<Bytes, io::Error>>,
    fed: mpsc::Sender<Fed>,
    over: Option<Instant>,
) {
    let mut pieces = std::pin::pin!(pieces);
    loop {
        let patience = Instant::now() + PIECE_LIMIT;
        let patience = over.map_or(patience, |over| over.min(patience));
        let Ok(Ok(room)) = tokio::time::timeout_at(patience, fed.reserve()).await else { return };
        let piece = tokio::select! {
            piece = pieces.next() => piece,
            () = fed.closed() => return,
        };
        let ended = piece.is_none();
        room.send(piece);
        if ended {
            return;
        }
    }
}
