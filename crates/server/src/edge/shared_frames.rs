//! Messages that many streams send, each encoded once: they bypass tonic's encoder, which would copy them for every stream, and
//! go as the same bytes into every connection. A document of 256 KiB for 5,000 hosts is one, and not 1.3 GB.

use crate::fleet::overlays::tap::OverlayTap;
use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use http_body::Frame;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// gRPC's prefix of a message: not compressed, and its length.
const PREFIX: usize = 5;

/// A message as it goes over the wire.
pub fn frame(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A buffer that grows has room for everything.
    let _ = message.encode(&mut bytes);
    bytes.freeze()
}

/// Marks the answer of a gRPC stream that sends shared messages beside its own. They come after those of its own
/// that were ready before, and before its end.
#[derive(Clone)]
pub struct SharedFrames {
    frames: Arc<Mutex<Option<mpsc::Receiver<Bytes>>>>,
    tap: Option<Arc<OverlayTap>>,
}

impl SharedFrames {
    pub fn new(frames: mpsc::Receiver<Bytes>) -> Self {
        Self { frames: Arc::new(Mutex::new(Some(frames))), tap: None }
    }

    /// The stream tells its host of its peers too: what comes next of that is taken when there is nothing else to send.
    pub fn with_tap(self, tap: Arc<OverlayTap>) -> Self {
        Self { tap: Some(tap), ..self }
    }
}

/// Lets an answer send its shared messages, if it is marked.
pub fn interleaved(mut response: Response<Body>) -> Response<Body> {
    let Some(SharedFrames { frames, tap }) = response.extensions_mut().remove::<SharedFrames>() else {
        return response;
    };
    let frames = frames.lock().unwrap_or_else(PoisonError::into_inner).take();
    match frames {
        Some(shared) => {
            response.map(|own| Body::new(Interleaved { own, shared, tap, of_peers: None, end: None }))
        }
        None => response,
    }
}

type BodyFrame = Option<Result<Frame<Bytes>, axum::Error>>;

struct Interleaved {
    /// Data frames of whole messages, as tonic makes them.
    own: Body,
    shared: mpsc::Receiver<Bytes>,
    tap: Option<Arc<OverlayTap>>,
    /// What was taken from the tap. What was queued before it was there to be taken goes first.
    of_peers: Option<Bytes>,
    /// What ends it, once all that is shared has left.
    end: Option<BodyFrame>,
}

impl http_body::Body for Interleaved {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BodyFrame> {
        loop {
            if self.end.is_none() {
                match Pin::new(&mut self.own).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) if frame.is_data() => return Poll::Ready(Some(Ok(frame))),
                    // Trailers, an error, or nothing at all.
                    Poll::Ready(last) => self.end = Some(last),
                    Poll::Pending => {}
                }
            }
            let ended = self.end.is_some();
            if ended {
                self.shared.close();
            }
            match self.shared.poll_recv(cx) {
                Poll::Ready(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Poll::Ready(None) if ended => return Poll::Ready(self.end.replace(None).flatten()),
                Poll::Ready(None) | Poll::Pending => {}
            }
            if let Some(bytes) = self.of_peers.take() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let Some(tap) = self.tap.as_ref().filter(|_| !ended) else { return Poll::Pending };
            self.of_peers = Some(std::task::ready!(tap.poll_frame(cx)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::future::poll_fn;

    async fn next(body: &mut Body) -> Option<Bytes> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        frame.ok()?.into_data().ok()
    }

    #[tokio::test]
    async fn shared_messages_come_after_its_own_and_before_the_end() {
        let (send, frames) = mpsc::channel(4);
        let mut response = Response::new(Body::from("own"));
        response.extensions_mut().insert(SharedFrames::new(frames));
        send.try_send(Bytes::from_static(b"one")).expect("a place");
        send.try_send(Bytes::from_static(b"two")).expect("a place");
        let mut body = interleaved(response).into_body();
        for expected in [Some("own"), Some("one"), Some("two"), None, None] {
            assert_eq!(next(&mut body).await.as_deref(), expected.map(str::as_bytes));
        }
        assert!(send.is_closed());
    }

    /// A message that is queued between two looks.
    struct Late(bool);

    impl http_body::Body for Late {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<BodyFrame> {
            let late = self.0;
            self.0 = !late;
            if late { Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"own"))))) } else { Poll::Pending }
        }
    }

    #[tokio::test]
    async fn what_was_queued_before_the_peers_comes_before_them() {
        let (_send, frames) = mpsc::channel(4);
        let tap = OverlayTap::new(Arc::default());
        tap.empty();
        let mut response = Response::new(Body::new(Late(false)));
        response.extensions_mut().insert(SharedFrames::new(frames).with_tap(tap));
        let mut body = interleaved(response).into_body();
        assert_eq!(next(&mut body).await.as_deref(), Some(b"own".as_slice()));
        assert_ne!(next(&mut body).await.as_deref(), Some(b"own".as_slice()));
    }

    #[test]
    fn a_frame_is_a_flag_a_length_and_the_message() {
        assert_eq!(&frame(&"abc".to_owned())[..], b"\0\0\0\0\x05\x0a\x03abc");
    }
}
