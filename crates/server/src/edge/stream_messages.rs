//! What tonic sends on a stream, held in as little memory as can be: there are as many of these as hosts.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;

/// A message on its way, or what ends the stream. tokio's channel has room for 32 of them from the first on: they are
/// boxed so that this is room for pointers.
pub type BoxedMessage<T> = Box<Result<T, Status>>;

/// The messages of one stream.
pub struct StreamMessages<T>(mpsc::Receiver<BoxedMessage<T>>);

impl<T> StreamMessages<T> {
    pub fn channel(backlog: usize) -> (mpsc::Sender<BoxedMessage<T>>, Self) {
        let (send, messages) = mpsc::channel(backlog);
        (send, Self(messages))
    }
}

impl<T> Stream for StreamMessages<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|message| message.map(|message| *message))
    }
}

/// A stream without messages of its own, which only ends: with a status, or well when the sender is dropped.
pub struct StreamEnd<T> {
    end: Option<oneshot::Receiver<Status>>,
    messages: PhantomData<fn() -> T>,
}

impl<T> StreamEnd<T> {
    pub fn channel() -> (oneshot::Sender<Status>, Self) {
        let (send, end) = oneshot::channel();
        (send, Self { end: Some(end), messages: PhantomData })
    }
}

impl<T> Stream for StreamEnd<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let ended = std::task::ready!(Pin::new(end).poll(cx));
        self.end = None;
        Poll::Ready(ended.ok().map(Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn a_stream_that_only_ends_does_so_once() {
        let (end, mut stream) = StreamEnd::<()>::channel();
        let _ = end.send(Status::unavailable("over"));
        assert_eq!(
            stream.next().await.and_then(Result::err).map(|status| status.code()),
            Some(tonic::Code::Unavailable)
        );
        assert!(stream.next().await.is_none());
        let (end, mut stream) = StreamEnd::<()>::channel();
        drop(end);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn messages_come_in_order_and_end_with_their_sender() {
        let (send, mut stream) = StreamMessages::channel(2);
        for message in [Ok(1), Err(Status::unavailable("over"))] {
            send.try_send(Box::new(message)).expect("a place");
        }
        drop(send);
        assert_eq!(stream.next().await.and_then(Result::ok), Some(1));
        assert!(stream.next().await.is_some_and(|message| message.is_err()));
        assert!(stream.next().await.is_none());
    }
}
