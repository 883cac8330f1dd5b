//! Large answers. One that was built as a whole stays in memory until its reader has taken it, and a reader may take its time:
//! so the bytes of those that are not sent are bounded, shared by whose they are. It goes out piece by piece, and what nobody has
//! read may be given up for another.

use crate::edge::phase::SharedPlace;
use crate::edge::sharer::Sharer;
use crate::process::app::App;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame, SizeHint};
use lifecycle::names::Source;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Answers from here on are counted.
const LARGE: usize = 16 * 1024;
/// As much as a connection is given at once.
const PIECE: usize = 16 * 1024;

/// Whose answer it is.
#[derive(Clone, Copy)]
pub struct AnswerReader<'a> {
    pub sharers: Option<&'a [Sharer]>,
    pub source: Source,
}

/// The answer with a place for what is not sent of it; none if there is no room. Answers that are made as they are read have
/// bounds of their own.
pub async fn with_place(
    app: &Arc<App>,
    response: Response<Body>,
    reader: AnswerReader<'_>,
) -> Option<Response<Body>> {
    let length = response.body().size_hint().exact();
    if length.is_some_and(|length| length < LARGE as u64) {
        return Some(response);
    }
    let (parts, body) = response.into_parts();
    let body = match beginning(body).await {
        Beginning::Whole { data, trailers } if data.len() >= LARGE => {
            // What others hold as well costs nothing here: a revocation list, the description of the API. What gRPC has encoded
            // is nobody else's, but its buffer seems to be shared.
            if length.is_some() && !data.is_unique() {
                Body::from(data)
            } else {
                Body::new(LargeAnswer { unsent: Unsent::new(app, &data, reader)?, trailers })
            }
        }
        Beginning::Whole { data, trailers } => {
            let then = trailers.map(|trailers| Ok(Frame::trailers(trailers)));
            Body::new(ResumedAnswer { next: Some(Ok(Frame::data(data))), then, rest: Body::empty() })
        }
        Beginning::Piecewise(ResumedAnswer { next: None, then: None, rest }) => rest,
        Beginning::Piecewise(resumed) => Body::new(resumed),
    };
    Some(Response::from_parts(parts, body))
}

type FrameResult = Result<Frame<Bytes>, axum::Error>;

/// What of an answer is there at once.
enum Beginning {
    Whole { data: Bytes, trailers: Option<HeaderMap> },
    Piecewise(ResumedAnswer),
}

async fn beginning(mut rest: Body) -> Beginning {
    let data = match ready_now(&mut rest).await {
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                return Beginning::Piecewise(ResumedAnswer { next: Some(Ok(frame)), then: None, rest });
            }
        },
        Poll::Ready(next) => {
            return Beginning::Piecewise(ResumedAnswer { next, then: None, rest: Body::empty() });
        }
        Poll::Pending => return Beginning::Piecewise(ResumedAnswer { next: None, then: None, rest }),
    };
    if rest.is_end_stream() {
        return Beginning::Whole { data, trailers: None };
    }
    let then = match ready_now(&mut rest).await {
        Poll::Ready(Some(Ok(frame))) => match frame.into_trailers() {
            Ok(trailers) => return Beginning::Whole { data, trailers: Some(trailers) },
            Err(frame) => Some(Ok(frame)),
        },
        Poll::Ready(Some(Err(error))) => Some(Err(error)),
        Poll::Ready(None) => return Beginning::Whole { data, trailers: None },
        Poll::Pending => None,
    };
    Beginning::Piecewise(ResumedAnswer { next: Some(Ok(Frame::data(data))), then, rest })
}

async fn ready_now(body: &mut Body) -> Poll<Option<FrameResult>> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await
}

/// An answer whose first frames were looked at.
struct ResumedAnswer {
    next: Option<FrameResult>,
    then: Option<FrameResult>,
    rest: Body,
}

impl http_body::Body for ResumedAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        if let Some(frame) = self.next.take() {
            self.next = self.then.take();
            return Poll::Ready(Some(frame));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.rest.is_end_stream()
    }
}

/// A large text of which no more is handed out than is asked for. It is kept where it can be let go of while its reader takes
/// nothing, and is not asked either.
pub struct Unsent {
    text: Arc<Mutex<Option<Box<[u8]>>>>,
    sent: usize,
    length: usize,
    _place: SharedPlace,
    /// Ends the wait for whoever needs the place.
    _over: oneshot::Sender<()>,
}

impl Unsent {
    /// None if there is no room.
    pub fn new(app: &Arc<App>, text: &Bytes, reader: AnswerReader<'_>) -> Option<Self> {
        let displaced = CancellationToken::new();
        let place = app.edge.capacity.answer(reader, text.len(), displaced.clone())?;
        let length = text.len();
        // Copied, because a buffer that grew may be twice as large as what is in it.
        let text = Arc::new(Mutex::new(Some(Box::from(&text[..]))));
        let (over, ended) = oneshot::channel();
        let (app, given_up) = (app.clone(), text.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = displaced.cancelled() => {
                    given_up.lock().unwrap_or_else(PoisonError::into_inner).take();
                    app.metrics.displaced("answer");
                }
                _ = ended => {}
            }
        });
        Some(Self { text, sent: 0, length, _place: place, _over: over })
    }

    pub fn is_sent(&self) -> bool {
        self.sent == self.length
    }

    /// What is sent next, or that the rest was given up; none behind the end.
    pub fn piece(&mut self) -> Option<io::Result<Bytes>> {
        if self.is_sent() {
            return None;
        }
        let end = self.length.min(self.sent + PIECE);
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = text.as_ref().and_then(|text| text.get(self.sent..end)).map(Bytes::copy_from_slice);
        if end == self.length {
            text.take();
        }
        self.sent = end;
        Some(piece.ok_or_else(|| io::ErrorKind::TimedOut.into()))
    }
}

/// A large answer that was built as a whole.
struct LargeAnswer {
    unsent: Unsent,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for LargeAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        if let Some(piece) = self.unsent.piece() {
            return Poll::Ready(Some(piece.map(Frame::data).map_err(axum::Error::new)));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_sent() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.trailers {
            // It becomes `Content-Length`, which gRPC does not send.
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact((self.unsent.length - self.unsent.sent) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};
    use http_body_util::BodyExt;

    fn frames(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Body {
        let frames: Vec<io::Result<Frame<Bytes>>> = frames.into_iter().map(Ok).collect();
        Body::new(http_body_util::StreamBody::new(stream::iter(frames)))
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn an_answer_that_is_there_as_a_whole_is_told_from_one_that_is_made_as_it_is_read() {
        let whole = |beginning| matches!(beginning, Beginning::Whole { trailers: None, .. });
        assert!(whole(beginning(Body::from("text")).await));
        assert!(whole(beginning(frames([data("text")])).await));
        let unary = frames([data("text"), Frame::trailers(HeaderMap::new())]);
        assert!(matches!(beginning(unary).await, Beginning::Whole { trailers: Some(_), .. }));
        for piecewise in
            [frames([data("a"), data("b")]), frames([]), frames([Frame::trailers(HeaderMap::new())])]
        {
            assert!(matches!(beginning(piecewise).await, Beginning::Piecewise(_)));
        }
    }

    #[tokio::test]
    async fn what_was_looked_at_is_sent_all_the_same() {
        let many = || frames([data("a"), data("b"), data("c"), Frame::trailers(HeaderMap::new())]);
        let Beginning::Piecewise(resumed) = beginning(many()).await else { panic!("it has several pieces") };
        let collected = Body::new(resumed).collect().await.expect("no error");
        assert!(collected.trailers().is_some());
        assert_eq!(collected.to_bytes(), "abc");
        let late = stream::iter([Ok(Bytes::from_static(b"a"))]).chain(stream::pending::<io::Result<Bytes>>());
        let Beginning::Piecewise(mut resumed) = beginning(Body::from_stream(late)).await else {
            panic!("it has not ended")
        };
        let first = poll_fn(|cx| Pin::new(&mut resumed).poll_frame(cx)).await;
        assert!(
            first.is_some_and(|frame| frame.is_ok_and(|frame| frame.is_data())) && !resumed.is_end_stream()
        );
        let broken = stream::iter([Err::<Bytes, _>(io::Error::other("broken"))]);
        let Beginning::Piecewise(resumed) = beginning(Body::from_stream(broken)).await else {
            panic!("an error is no end")
        };
        assert!(Body::new(resumed).collect().await.is_err());
    }
}
