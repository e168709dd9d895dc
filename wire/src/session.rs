//! One attempt of an agent: a connection and its stream, from beginning to end.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::{PathAndQuery, Uri};
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Request, Streaming};

use crate::codec::{FrameCodec, Gate};
use crate::connection::{Event, Shared};
use crate::driver::race;
use crate::handshake::{Refusal, as_agent, hello, refused, words};
use crate::keys::{Kind, OVERHEAD, Opener};
use crate::mailbox::{Mailbox, OutgoingOfClient};
use crate::{LARGEST_MESSAGE, METHOD};

/// Bytes that may be under way to us before we have read any.
const WINDOW: u32 = 1024 * 1024;

/// How an attempt has ended.
pub(crate) enum End {
    /// There was a stream, and there is none any more.
    Lost(String),
    /// The other side is not the right one, or says so of us.
    Refused(String),
    /// There was nobody.
    Unreachable(String),
}

/// Connects, and stays connected as long as that goes well.
pub(crate) async fn attempt(shared: &Shared) -> End {
    let limit = shared.settings.handshake;
    let socket = match timeout(limit, connect(&shared.address)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return End::Unreachable(error.to_string()),
        Err(_) => return End::Unreachable(format!("no answer within {limit:?}")),
    };
    let tasks = Tasks::default();
    let _ending = Ending(tasks.clone());
    let made = http2::Builder::new(tasks.clone())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(TokioIo::new(socket))
        .await;
    match made {
        Ok((calls, connection)) => {
            // It moves bytes for the stream, which sees by itself when there are no more.
            let moving = async {
                drop(connection.await);
                pending().await
            };
            race(stream(shared, Calls(calls)), moving).await
        }
        Err(error) => End::Unreachable(error.to_string()),
    }
}

fn closed() -> String {
    "the connection was closed".to_owned()
}

/// The tasks of one connection, which end with it: they hold the socket.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
    }
}

/// Ends them.
struct Ending(Tasks);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// The first of the addresses of a name that answers.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut failure = None;
    for address in lookup_host(address).await? {
        match TcpStream::connect(address).await {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("this name has no address")))
}

async fn stream(shared: &Shared, calls: Calls) -> End {
    let mailbox = Arc::new(Mailbox::new(&shared.settings));
    let limit = shared.settings.answer;
    let greeted = timeout(limit, greet(shared, calls, &mailbox)).await;
    let (incoming, opener) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(Refusal { why, broken: true, .. })) => return End::Unreachable(why),
        Ok(Err(Refusal { why, broken: false, .. })) => return End::Refused(why),
        Err(_) => return End::Unreachable(format!("no answer within {limit:?}")),
    };
    shared.enter(&mailbox);
    shared.tell(Event::Connected);
    let talking = race(beat(shared, &mailbox), hear(shared, &mailbox, incoming, opener));
    let why = race(mailbox.ended(), talking).await;
    shared.leave(&mailbox, &why);
    End::Lost(why)
}

async fn greet(
    shared: &Shared,
    calls: Calls,
    mailbox: &Arc<Mailbox>,
) -> Result<(Streaming<Bytes>, Opener), Refusal> {
    let version = &shared.settings.version;
    let nonce = hello(mailbox, version)?;
    let request = Request::new(OutgoingOfClient(Arc::clone(mailbox)));
    let mut grpc = Grpc::with_origin(calls, Uri::from_static("http://controller"))
        .max_decoding_message_size(LARGEST_MESSAGE + OVERHEAD)
        .max_encoding_message_size(LARGEST_MESSAGE + OVERHEAD);
    let answer = grpc
        .streaming(request, PathAndQuery::from_static(METHOD), FrameCodec)
        .await
        .map_err(|status| refused(&status))?;
    let mut incoming = answer.into_inner();
    let opener = as_agent(&mut incoming, mailbox, &shared.secret, version, nonce).await?;
    shared.acknowledged(mailbox, 0);
    Ok((incoming, opener))
}

/// Asks for signs of life, and gives up if there is no answer to them.
async fn beat(shared: &Shared, mailbox: &Mailbox) -> String {
    let mut ticks = interval(shared.settings.beat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    shared.hear();
    loop {
        ticks.tick().await;
        let silent = shared.silent_for();
        if silent > shared.settings.silence {
            return format!("nothing was heard of the controller for {silent:.1?}");
        }
        mailbox.beat();
    }
}

/// Takes frames until there are no more, and says why.
async fn hear(
    shared: &Shared,
    mailbox: &Mailbox,
    mut incoming: Streaming<Bytes>,
    mut opener: Opener,
) -> String {
    loop {
        let frame = match incoming.message().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return closed(),
            Err(status) => return format!("the connection broke: {}", words(&status)),
        };
        let (kind, payload) = match opener.open(&frame) {
            Ok(opened) => opened,
            Err(forged) => return forged.to_string(),
        };
        shared.hear();
        match kind {
            Kind::Acknowledgement => match <[u8; 8]>::try_from(&payload[..]) {
                Ok(counter) => shared.acknowledged(mailbox, u64::from_be_bytes(counter)),
                Err(_) => return "an acknowledgement has no number".to_owned(),
            },
            Kind::Message => {
                if let Err(why) = shared.ask(Event::Message(&payload)) {
                    return why;
                }
            }
            Kind::Close => return String::from_utf8_lossy(&payload).into_owned(),
            Kind::Beat => return "the controller beats, which only agents do".to_owned(),
        }
    }
}

/// The calls that can be made on a connection.
pub(crate) struct Calls(pub(crate) http2::SendRequest<Body>);

impl GrpcService<Body> for Calls {
    type ResponseBody = Gate;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Gate>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.send_request(request);
        Box::pin(async move { Ok(answer.await?.map(Gate::new)) })
    }
}

/// When something was last heard, and how long ago.
pub(crate) fn since(at: Option<Instant>) -> Duration {
    at.map_or(Duration::ZERO, |at| at.elapsed())
}
