//! `/v1/events`: nodes and alerts as they change, as server-sent events. A slow reader skips what it missed in between:
//! what it gets is always the newest state, and nothing is queued for it.

use crate::edge::answers::{AnswerReader, Unsent};
use crate::edge::authenticate::{self, CredentialHolder};
use crate::edge::capacity::EVENT_STREAMS_EACH;
use crate::edge::fed;
use crate::edge::sharer::{Sharer, sharers};
use crate::edge::shares::PoolPlace;
use crate::fleet::news::News;
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header;
use journal::View;
use lifecycle::names::Source;
use lifecycle::registry::{Act, Actor, may_reach};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A comment now and then, so that both ends notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Changes from here on are sent in pieces, and count as a large answer while they are not read; those that others are told of
/// with the same text cost nothing.
const WHOLE: usize = 16 * 1024;
/// When to try again for whom there is no place.
const RETRY_SECONDS: u32 = 5;

/// One reader, and what it knows.
struct Follower {
    app: Arc<App>,
    actor: Actor,
    news: watch::Receiver<Option<Arc<News>>>,
    seen: Arc<View>,
    sharers: [Sharer; 2],
    source: Source,
    /// What is left of changes that were many.
    unsent: Option<Unsent>,
    _place: PoolPlace<Sharer>,
}

pub async fn follow(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    authenticate::node_reader(&app, &caller.actor, Act::ReadNodes)?;
    let holder = CredentialHolder::of(&caller.actor);
    let sharers = holder.map(|holder| sharers(&app.view().state, &holder));
    let placed = sharers.and_then(|sharers| Some((app.edge.capacity.event_stream(&sharers)?, sharers)));
    let (place, sharers) = placed.ok_or_else(|| {
        let most =
            format!("this credential has {EVENT_STREAMS_EACH} event streams already, or there are too many");
        Failure::new(code::TOO_MANY_STREAMS, most).retry_after(RETRY_SECONDS)
    })?;
    // Subscribed before the first look, so that nothing falls in between.
    let news = app.fleet.news.subscribe();
    let seen = app.view();
    let (actor, source, over) = (caller.actor, caller.origin.source, place.displaced.clone());
    let follower = Follower { app, actor, news, seen, sharers, source, unsent: None, _place: place };
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, fed::body(changes(follower), None, over)).into_response())
}

fn changes(follower: Follower) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    let greeting = futures::stream::iter([Ok(Bytes::from_static(b": following\n\n"))]);
    let rest = futures::stream::unfold(follower, |mut follower| async move {
        loop {
            if let Some(piece) = follower.unsent.as_mut().and_then(Unsent::piece) {
                return Some((piece, follower));
            }
            let text = follower.next().await?;
            if text.len() > WHOLE && text.is_unique() {
                let reader = AnswerReader { sharers: Some(&follower.sharers), source: follower.source };
                // Without room the stream ends: whoever comes again is told of what is so then.
                follower.unsent = Some(Unsent::new(&follower.app, &text, reader)?);
            } else if !text.is_empty() {
                return Some((Ok(text), follower));
            }
        }
    });
    greeting.chain(rest)
}

impl Follower {
    /// What is sent next; none when the stream ends: rights may go by a change, or by time alone.
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            changed = self.news.changed() => {
                changed.ok()?;
                let news = self.news.borrow_and_update().clone()?;
                let reach = may_reach(&news.after.state, &self.actor, Act::ReadNodes).ok()?;
                let text = news.text(&self.app, &self.seen, &reach).await;
                self.seen = news.after.clone();
                Some(text)
            }
            () = tokio::time::sleep(KEEP_ALIVE) => {
                let mut state = self.app.view().state.clone();
                state.at = self.app.now();
                may_reach(&state, &self.actor, Act::ReadNodes).ok()?;
                self.seen = self.app.fleet.news.refreshed(&self.seen);
                Some(Bytes::from_static(b": still here\n\n"))
            }
            () = self.app.stopped() => None,
        }
    }
}
