//! One connection's requests: ids in and out, limits, the router.

use crate::doors;
use crate::edge::answers::{self, AnswerReader};
use crate::edge::authenticate::{self, CallerClass, ConnectionPeer, CredentialHolder};
use crate::edge::body::{self, BODY_LIMIT, Bounded, Pace};
use crate::edge::control_frames::ControlFrames;
use crate::edge::first_contact;
use crate::edge::keepalive;
use crate::edge::limits::counts_as_failure;
use crate::edge::logged::fit_for_the_log;
use crate::edge::phase::{ConnectionWatch, OpenRequest, RequestPhase, SharedPlace, Working};
use crate::edge::shared_frames::interleaved;
use crate::edge::sharer::{Sharer, sharers};
use crate::edge::shares::PoolPlace;
use crate::edge::unread;
use crate::http::failure::{Failure, FailureCode};
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::error::Wording;
use api::{code, header};
use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use lifecycle::names::{Label, Source, Span, Timestamp};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a connection that is cut may still take to send what was said on it.
const LAST_WORDS: Duration = Duration::from_millis(100);
const HEADER_LIMIT: Duration = Duration::from_secs(10);
const HEADER_BYTES: u32 = 16 * 1024;
/// The same on a connection over HTTP/2 on which nobody known has asked anything.
const UNAUTHENTICATED_HEADER_BYTES: u32 = 8 * 1024;
/// What one HTTP/2 stream may send before its body is read, and one on which nobody known has asked anything.
const STREAM_WINDOW: u32 = 64 * 1024;
const UNAUTHENTICATED_STREAM_WINDOW: u32 = 16 * 1024;
/// How long a connection may be open with nothing asked.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How long requests in progress may take once the process stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
const QUIET_DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// How long a connection may go without a look at the clock.
const CLOCK_LOOK: Duration = Duration::from_secs(30);
/// What one HTTP/2 stream may have in the connection beyond the frame that it is at; large answers come in pieces of that size.
const SEND_BYTES: usize = 16 * 1024;
const STREAMS: u32 = 64;
const UNAUTHENTICATED_STREAMS: u32 = 8;
/// How long a connection may last on which nobody known has asked anything.
const UNAUTHENTICATED_LIMIT: Duration = Duration::from_secs(60);

/// Marks an answer that lasts as long as both ends want.
#[derive(Debug, Clone, Copy)]
pub struct Lasting;

/// The place of an answer that lasts and the phase that protects its connection's, kept until it ends.
#[derive(Clone)]
pub struct StreamPlace {
    _place: Arc<PoolPlace<CredentialHolder>>,
    _phase: Arc<RequestPhase>,
}

impl StreamPlace {
    fn new(place: PoolPlace<CredentialHolder>, phase: Arc<RequestPhase>) -> Self {
        Self { _place: Arc::new(place), _phase: phase }
    }
}

/// Marks an answer after which the connection ends.
#[derive(Debug, Clone, Copy)]
struct LastAnswer;

/// How long the end of a connection may take: while something is asked, longer than when nothing is.
fn drain_limit(watch: &ConnectionWatch) -> Duration {
    if watch.open.load(Ordering::Relaxed) == 0 { QUIET_DRAIN_LIMIT } else { DRAIN_LIMIT }
}

/// Serves one connection to its end.
pub async fn serve<S>(
    app: Arc<App>,
    router: Router,
    stream: S,
    peer: ConnectionPeer,
    bound: Option<CertificateBound>,
    place: Option<SharedPlace>,
    http2: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Who has a place of the strangers is one, also with a certificate, until that is on record.
    let unauthenticated = place.as_ref().is_some_and(|place| !place.is_known());
    let watch = ConnectionWatch::new(place);
    let pings = peer.keepalive.as_ref().map_or(keepalive::LONGEST, |keepalive| keepalive.pings());
    let service = service_fn({
        let (app, watch) = (app.clone(), watch.clone());
        move |request: Request<Incoming>| {
            let open = OpenRequest::new(&watch);
            let (app, peer, router) = (app.clone(), peer.clone(), router.clone());
            async move {
                let working = Working::new(&open.0);
                let mut response = answer(&app, peer, router, request, &open.0).await;
                // A live stream is at work until it ends.
                let working = Some(working).filter(|_| response.extensions().get::<Lasting>().is_some());
                if response.extensions().get::<LastAnswer>().is_some() {
                    open.0.enough.notify_one();
                }
                let place = response.extensions_mut().remove::<StreamPlace>();
                Ok::<_, Infallible>(
                    response.map(|body| Body::new(OpenBody { body, open, _working: working, _place: place })),
                )
            }
        }
    });
    let over = std::pin::pin!(async {
        tokio::select! {
            () = idle(&watch) => {}
            () = unauthenticated_limit(&watch) => {}
            () = watch.enough.notified() => {}
            () = app.stopped() => {}
        }
    });
    let cut = std::pin::pin!(async {
        tokio::select! {
            () = cut(&app, bound) => {}
            () = watch.displaced.cancelled() => app.metrics.displaced("connection"),
        }
    });
    // Boxed once and never moved: there are as many of these as hosts.
    if http2 {
        let io = TokioIo::new(ControlFrames::new(stream, watch.clone()));
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let (streams, header_bytes, window) = if unauthenticated {
            (UNAUTHENTICATED_STREAMS, UNAUTHENTICATED_HEADER_BYTES, UNAUTHENTICATED_STREAM_WINDOW)
        } else {
            (STREAMS, HEADER_BYTES, STREAM_WINDOW)
        };
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams)
            .max_header_list_size(header_bytes)
            .max_pending_accept_reset_streams(32)
            .initial_stream_window_size(window)
            .initial_connection_window_size(128 * 1024)
            .max_send_buf_size(SEND_BYTES)
            .keep_alive_interval(pings)
            .keep_alive_timeout(keepalive::ANSWER_LIMIT);
        drive(Box::pin(builder.serve_connection(io, service)).as_mut(), over, cut, &watch).await;
    } else {
        let io = TokioIo::new(stream);
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(HEADER_BYTES as usize);
        drive(Box::pin(builder.serve_connection(io, service)).as_mut(), over, cut, &watch).await;
    }
}

/// Serves until the peer leaves. When it is `over`, what was asked may still be answered; when it is `cut`,
/// nothing is.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    over: Pin<&mut impl Future<Output = ()>>,
    mut cut: Pin<&mut impl Future<Output = ()>>,
    watch: &ConnectionWatch,
) {
    tokio::select! {
        _ = connection.as_mut() => return,
        () = over => {}
        () = cut.as_mut() => {
            // Every request is refused by now; what was said to a node that is gone is still sent. It ends with its streams, which
            // have ended themselves.
            connection.as_mut().graceful_shutdown();
            _ = tokio::time::timeout(LAST_WORDS, connection).await;
            return;
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = tokio::time::timeout(drain_limit(watch), connection) => {}
        () = cut => {}
    }
}

/// What ends a connection with a client certificate, whatever it is doing.
pub struct CertificateBound {
    pub cut: CancellationToken,
    pub until: Timestamp,
}

/// Ends when the certificate does, or when it is no longer good. Looks at the clock now and then, because a
/// clock may be set.
async fn cut(app: &App, bound: Option<CertificateBound>) {
    let Some(bound) = bound else { return std::future::pending().await };
    loop {
        let left = bound.until.since(app.now());
        if left == Span::from_millis(0) {
            return;
        }
        let pause = Duration::from_millis(left.millis()).min(CLOCK_LOOK);
        tokio::select! {
            () = bound.cut.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Ends when the first request does not come in time, when nothing has been asked for a while, or when an
/// answer is ready and the peer does not take it.
async fn idle(watch: &ConnectionWatch) {
    let mut limit = HEADER_LIMIT;
    loop {
        let before = watch.progress.load(Ordering::Relaxed);
        tokio::time::sleep(limit).await;
        let quiet = watch.progress.load(Ordering::Relaxed) == before;
        if quiet && watch.working.load(Ordering::Relaxed) == 0 {
            return;
        }
        limit = IDLE_LIMIT;
    }
}

/// Ends when an unauthenticated connection has lasted long enough to enroll many times over.
async fn unauthenticated_limit(watch: &ConnectionWatch) {
    loop {
        tokio::time::sleep(UNAUTHENTICATED_LIMIT).await;
        if !watch.known.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// A body that keeps its request open until it is sent.
struct OpenBody {
    body: Body,
    open: OpenRequest,
    _working: Option<Working>,
    _place: Option<StreamPlace>,
}

impl http_body::Body for OpenBody {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            self.open.0.progress.fetch_add(1, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

async fn answer(
    app: &Arc<App>,
    peer: ConnectionPeer,
    router: Router,
    mut request: Request<Incoming>,
    watch: &Arc<ConnectionWatch>,
) -> Response<Body> {
    let own = label(request.headers(), header::REQUEST_ID);
    let drawn = chance::ulid(app.now()).map(|id| id.to_string()).unwrap_or_default();
    let id = own.as_ref().map_or(drawn, ToString::to_string);
    let correlation_id = label(request.headers(), header::CORRELATION_ID);
    // The caller's id is recorded; when it brought none, the command's own id is.
    let origin = Provenance { source: peer.source, request_id: Label::parse(&id).ok(), correlation_id };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let holder = authenticate::credential_holder(app, &peer, request.headers());
    let sharers = holder.as_ref().map(|holder| sharers(&app.view().state, holder));
    let sharers = sharers.as_ref().map(|sharers| &sharers[..]);
    if let Some((holder, sharers)) = holder.as_ref().zip(sharers) {
        watch.known(&app.edge.capacity, holder, sharers);
    }
    let class = holder.as_ref().map_or(CallerClass::Unauthenticated, CredentialHolder::class);
    let unauthenticated = class == CallerClass::Unauthenticated;
    if class == CallerClass::Node {
        first_contact::note(app, &peer, &origin, &path).await;
    }
    let source = peer.source;
    let extensions = request.extensions_mut();
    extensions.insert(origin);
    extensions.insert(peer);
    let lasting = doors::lasts(&path) && class == CallerClass::Node;
    let expects = unread::expects(&request);
    let grpc = unread::is_grpc(request.headers());
    let limit = body::limit(&path, || holder.as_ref().is_some_and(|holder| holder.is_platform_admin(app)));
    let endless = lasting && doors::request_lasts(&path);
    let mut response = match unread::admitted(app, request, limit, endless) {
        Ok(request) if lasting => {
            let limit = Some(limit).filter(|_| !endless);
            streamed(app, router, request, limit, holder.as_ref(), watch).await
        }
        Ok(request) => {
            served(app, router, request, (source, limit), holder.as_ref().zip(sharers), watch).await
        }
        Err(response) => response,
    };
    if !lasting {
        let placed = answers::with_place(app, response, AnswerReader { sharers, source }).await;
        response = placed.unwrap_or_else(|| {
            app.metrics.displaced("answer");
            overloaded(grpc, &path, "too much of what was asked for before was not read yet")
        });
    }
    if response.headers().contains_key("grpc-status") {
        response = doors::native::marked(&path, response);
    }
    if expects && !response.status().is_success() {
        unread::close(&mut response);
    }
    if lasting {
        response.extensions_mut().insert(Lasting);
    }
    if unauthenticated {
        response = limited(app, &path, source, response);
    }
    if let Some(FailureCode(code)) = response.extensions().get().copied() {
        response = worded(response, &path, &id);
        // Only those who run the fleet may write into the log; the audit trail has the sum of the rest.
        let path = fit_for_the_log(&path);
        if class == CallerClass::Operator {
            tracing::info!(request_id = id, %source, %method, path, code = code.word, "refused");
        } else {
            tracing::debug!(request_id = id, %source, %method, path, code = code.word, "refused");
        }
    }
    finish(app, response, &id)
}

/// Routes a request that lasts.
async fn streamed(
    app: &App,
    router: Router,
    request: Request<Incoming>,
    limit: Option<u64>,
    holder: Option<&CredentialHolder>,
    watch: &Arc<ConnectionWatch>,
) -> Response<Body> {
    let Some(place) = holder.and_then(|holder| app.edge.capacity.stream(holder)) else {
        let failure = Failure::new(code::TOO_MANY_STREAMS, "this node has too many live streams already");
        return unread::refusal(true, request.uri().path(), failure.retry_after(2));
    };
    let phase = RequestPhase::new(watch, None, None);
    let mut request = request.map(|body| match limit {
        Some(limit) => Body::new(Bounded::new(body, limit, Pace::Known, phase.clone())),
        None => Body::new(body),
    });
    // A request that lasts is here once its greeting is.
    request.extensions_mut().insert(phase.clone());
    let mut response = interleaved(routed(router, request).await);
    response.extensions_mut().insert(StreamPlace::new(place, phase));
    response
}

/// Routes a request whose body is worth reading. It is read only with a place for it.
async fn served(
    app: &App,
    router: Router,
    request: Request<Incoming>,
    (source, limit): (Source, u64),
    holder: Option<(&CredentialHolder, &[Sharer])>,
    watch: &Arc<ConnectionWatch>,
) -> Response<Body> {
    let grpc = unread::is_grpc(request.headers());
    let path = request.uri().path().to_owned();
    let overloaded = || overloaded(grpc, &path, "more requests than can be served now");
    let capacity = &app.edge.capacity;
    // While the handler is at work, whether or not there is a body.
    let _request = match holder {
        // The operator socket has its own bound, and so have strangers' connections.
        None | Some((CredentialHolder::Local(_), _)) => None,
        Some((holder, _)) => match capacity.request(holder).await {
            Some(place) => Some(place),
            None => return overloaded(),
        },
    };
    let place = match holder {
        _ if http_body::Body::is_end_stream(request.body()) => None,
        Some((CredentialHolder::Local(_), _)) => None,
        holder => {
            let length = http_body::Body::size_hint(request.body()).exact();
            match capacity.body(holder.map(|(_, sharers)| sharers), source, length).await {
                Some(place) => Some(place),
                None => return overloaded(),
            }
        }
    };
    // Kept until the request is answered: there are few of them, whoever asks.
    let large = limit > BODY_LIMIT && !http_body::Body::is_end_stream(request.body());
    let large = match holder.filter(|_| large) {
        Some((_, sharers)) => match capacity.large_body(sharers).await {
            Some(place) => Some(place),
            None => return overloaded(),
        },
        None => None,
    };
    let pace = if holder.is_some() { Pace::Known } else { Pace::Stranger };
    let phase = RequestPhase::new(watch, place, large);
    if http_body::Body::is_end_stream(request.body()) {
        phase.received();
    }
    let request = request.map(|body| Body::new(Bounded::new(body, limit, pace, phase.clone())));
    tokio::select! {
        // tonic takes a body that ended early for one that is no message, which would be final.
        response = routed(router, request) => match phase.too_slow.load(Ordering::Relaxed) {
            true if grpc => {
                let failure = Failure::new(code::TIMEOUT, "the body came too slowly");
                unread::refusal(grpc, &path, failure.retry_after(2))
            }
            _ => response,
        },
        () = phase.displaced() => {
            app.metrics.displaced("body");
            overloaded()
        }
    }
}

fn overloaded(grpc: bool, path: &str, message: &str) -> Response<Body> {
    unread::refusal(grpc, path, Failure::new(code::OVERLOADED, message).retry_after(2))
}

async fn routed(router: Router, request: Request<Body>) -> Response<Body> {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn label(headers: &HeaderMap, name: &str) -> Option<Label> {
    headers.get(name).and_then(|value| value.to_str().ok()).and_then(|text| Label::parse(text).ok())
}

/// A failure of an unauthenticated caller whose network has had too many becomes "slow down", and the connection ends.
fn limited(app: &App, path: &str, source: Source, response: Response<Body>) -> Response<Body> {
    let Some(FailureCode(code)) = response.extensions().get().copied() else { return response };
    let limit = app.view().state.policy.failures_per_minute;
    if !counts_as_failure(code) || !app.edge.failures.is_over(source, limit, app.clock.now()) {
        return response;
    }
    let failure = Failure::new(code::RATE_LIMITED, "too many failures from this network").retry_after(60);
    let grpc = response.headers().contains_key("grpc-status");
    let mut response = if grpc { doors::refusal(path, &failure) } else { failure.into_response() };
    response.extensions_mut().insert(LastAnswer);
    response
}

/// Id and time on every answer.
fn finish(app: &App, mut response: Response<Body>, id: &str) -> Response<Body> {
    app.metrics.answered(response.status());
    let headers = response.headers_mut();
    let now = app.now();
    for (name, value) in
        [(header::REQUEST_ID, id.to_owned()), (header::SERVER_TIME, now.millis().to_string())]
    {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    response
}

/// A failure in the shape of its path, with the id that the edge knows.
fn worded(mut response: Response<Body>, path: &str, id: &str) -> Response<Body> {
    if response.headers().contains_key("grpc-status") {
        if let Ok(value) = HeaderValue::try_from(id) {
            response.headers_mut().insert(header::GRPC_REQUEST_ID, value);
        }
        return response;
    }
    let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
    let mut worded = failure.worded(Wording::of(path), id);
    worded.extensions_mut().extend(std::mem::take(response.extensions_mut()));
    use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, X_CONTENT_TYPE_OPTIONS};
    for kept in [ALLOW, CONNECTION, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS] {
        if let Some(value) = response.headers_mut().remove(&kept) {
            worded.headers_mut().insert(kept, value);
        }
    }
    worded
}
