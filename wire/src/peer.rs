//! The controller's end of one connection.

use std::future::{Future, pending, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming as HttpBody;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use crate::codec::{FrameCodec, Gate};
use crate::driver::race;
use crate::handshake::{Refusal, as_controller, words};
use crate::keys::{Kind, OVERHEAD, Opener};
use crate::listener::{Event, PeerId, Shared};
use crate::mailbox::{Mailbox, Outgoing};
use crate::{LARGEST_MESSAGE, METHOD};

/// Bytes that may be under way to us before we have read any.
const WINDOW: u32 = 1024 * 1024;
/// Bytes of a stream that wait for the network. More wait in the mailbox, where they are counted.
const SEND_BUFFER: usize = 64 * 1024;

/// An agent that is known.
pub(crate) struct Peer {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Nanoseconds from the start of the listener until it was last heard of.
    heard: AtomicU64,
}

impl Peer {
    fn new(mailbox: Arc<Mailbox>, since: Duration) -> Self {
        let peer = Self { mailbox, heard: AtomicU64::new(0) };
        peer.hear(since);
        peer
    }

    fn hear(&self, since: Duration) {
        let nanoseconds = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.heard.store(nanoseconds, Ordering::Relaxed);
    }

    /// How long after the start of the listener it was last heard of.
    pub(crate) fn heard(&self) -> Duration {
        Duration::from_nanos(self.heard.load(Ordering::Relaxed))
    }
}

/// One connection and its only stream.
pub(crate) struct Link {
    shared: Arc<Shared>,
    address: SocketAddr,
    mailbox: Arc<Mailbox>,
    /// Given back when it is known who this is.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    taken: AtomicBool,
    known: AtomicBool,
    done: Notify,
}

/// Serves one connection until it is over.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    socket: TcpStream,
    address: SocketAddr,
    permit: OwnedSemaphorePermit,
) {
    // A connection that breaks here is noticed below.
    drop(socket.set_nodelay(true));
    let mailbox = Arc::new(Mailbox::new(&shared.settings));
    let (taken, known, done) = Default::default();
    let permit = Mutex::new(Some(permit));
    let link = Arc::new(Link { shared, address, mailbox, permit, taken, known, done });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(1)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(4096)
        .serve_connection(TokioIo::new(socket), Calls(Arc::clone(&link)));
    // Tasks of their own: what is polled together is polled for every frame.
    let moving = tokio::spawn(async { drop(connection.await) });
    let watching = tokio::spawn(Arc::clone(&link).watch(moving.abort_handle()));
    drop(moving.await);
    watching.abort();
    link.let_another_in();
    if !link.taken.load(Ordering::Acquire) {
        let why = "it connected and did not say what it is".to_owned();
        link.shared.tell(Event::Refused { address, why });
    }
    link.mailbox.end("the connection was closed".to_owned());
}

impl Link {
    /// Waits until the connection has no use any more, and breaks it.
    async fn watch(self: Arc<Self>, moving: AbortHandle) {
        let late = async {
            tokio::time::sleep(self.shared.settings.handshake).await;
            if self.known.load(Ordering::Acquire) {
                pending::<()>().await;
            }
        };
        race(self.done.notified(), late).await;
        // The last words are still to be sent; a side that has read them closes the connection at once.
        tokio::time::sleep(self.shared.settings.grace).await;
        moving.abort();
    }

    async fn talk(self: Arc<Self>, mut incoming: Streaming<Bytes>) {
        let limit = self.shared.settings.handshake;
        let greeting = as_controller(
            &mut incoming,
            &self.mailbox,
            &self.shared.secret,
            &self.shared.settings.version,
        );
        match tokio::time::timeout(limit, greeting).await {
            Ok(Ok(opener)) => Arc::clone(&self).know(incoming, opener).await,
            Ok(Err(refusal)) => self.refuse(refusal),
            Err(_) => self.refuse(Refusal {
                code: tonic::Code::DeadlineExceeded,
                why: format!("it did not say who it is within {limit:?}"),
                broken: false,
            }),
        }
        self.done.notify_one();
    }

    fn let_another_in(&self) {
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn refuse(&self, refusal: Refusal) {
        self.let_another_in();
        self.mailbox.refuse(refusal.status());
        self.shared.tell(Event::Refused { address: self.address, why: refusal.why });
    }

    async fn know(self: Arc<Self>, incoming: Streaming<Bytes>, opener: Opener) {
        self.known.store(true, Ordering::Release);
        self.let_another_in();
        let now = self.shared.begun.elapsed();
        let peer = Arc::new(Peer::new(Arc::clone(&self.mailbox), now));
        let id = self.shared.enter(Arc::clone(&peer));
        self.shared.tell(Event::Connected { peer: id, address: self.address });
        let hearing = tokio::spawn(Arc::clone(&self).hear(id, peer, incoming, opener));
        let why = self.mailbox.ended().await;
        // Nothing is heard of it after it is gone.
        hearing.abort();
        drop(hearing.await);
        self.shared.leave(id);
        self.shared.tell(Event::Disconnected { peer: id, why });
    }

    /// Takes frames until there are no more.
    async fn hear(
        self: Arc<Self>,
        id: PeerId,
        peer: Arc<Peer>,
        mut incoming: Streaming<Bytes>,
        mut opener: Opener,
    ) {
        let why = loop {
            let frame = match incoming.message().await {
                Ok(Some(frame)) => frame,
                Ok(None) => break "it has ended the stream".to_owned(),
                Err(status) => break format!("the connection broke: {}", words(&status)),
            };
            if let Err(why) = self.take(id, &frame, &mut opener) {
                break why;
            }
            peer.hear(self.shared.begun.elapsed());
        };
        self.mailbox.end(why);
    }

    /// Takes one frame; an error is why there can be no more.
    fn take(&self, id: PeerId, frame: &Bytes, opener: &mut Opener) -> Result<(), String> {
        let (kind, payload) = opener.open(frame).map_err(|forged| forged.to_string())?;
        match kind {
            Kind::Beat => self.mailbox.acknowledge(opener.last()),
            Kind::Message => self.shared.ask(Event::Message { peer: id, json: &payload })?,
            Kind::Close => return Err(String::from_utf8_lossy(&payload).into_owned()),
            Kind::Acknowledgement => return Err("it acknowledges, as agents do not".to_owned()),
        }
        Ok(())
    }
}

/// The calls of one connection, of which the first counts.
struct Calls(Arc<Link>);

impl Service<http::Request<HttpBody>> for Calls {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: http::Request<HttpBody>) -> Self::Future {
        let link = Arc::clone(&self.0);
        if request.uri().path() != METHOD || link.taken.swap(true, Ordering::AcqRel) {
            let status = Status::unimplemented("this is the control channel of titan-tpu");
            return Box::pin(ready(Ok(status.into_http())));
        }
        Box::pin(async move {
            let mut grpc = Grpc::new(FrameCodec)
                .max_decoding_message_size(LARGEST_MESSAGE + OVERHEAD)
                .max_encoding_message_size(LARGEST_MESSAGE + OVERHEAD);
            Ok(grpc.streaming(Call(link), request.map(Gate::new)).await)
        })
    }
}

/// The one call that there is.
struct Call(Arc<Link>);

impl StreamingService<Bytes> for Call {
    type Response = crate::keys::Frame;
    type ResponseStream = Outgoing;
    type Future = std::future::Ready<Result<Response<Outgoing>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let link = Arc::clone(&self.0);
        let outgoing = Outgoing(Arc::clone(&link.mailbox));
        tokio::spawn(link.talk(request.into_inner()));
        ready(Ok(Response::new(outgoing)))
    }
}

/// Ends the streams of those that are silent, or do not let us close.
pub(crate) async fn sweep(shared: Arc<Shared>) {
    let settings = &shared.settings;
    let often = (settings.silence / 4).min(settings.grace / 2).max(Duration::from_millis(10));
    loop {
        tokio::time::sleep(often).await;
        let now = Instant::now();
        for (_, peer) in shared.all() {
            let silent = now.saturating_duration_since(shared.begun + peer.heard());
            let closing = peer.mailbox.closing_since();
            if silent > settings.silence {
                peer.mailbox.end(format!("nothing was heard of it for {silent:.1?}"));
            } else if closing.is_some_and(|since| now > since + settings.grace) {
                peer.mailbox.end("closed by this side, and it did not read why".to_owned());
            }
        }
    }
}
