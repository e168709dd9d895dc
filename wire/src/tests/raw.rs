//! A client that says what it likes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::{PathAndQuery, Uri};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};

use super::PATIENCE;
use crate::codec::FrameCodec;
use crate::handshake::{Challenge, Hello, Proof};
use crate::keys::{Frame, Greeting, Keys, Opener, Sealer};
use crate::secret::{from_hex, to_hex};
use crate::session::Calls;
use crate::{METHOD, PROTOCOL, Secret};

pub(super) const NONCE: [u8; 32] = [7; 32];

pub(super) struct Raw {
    to: UnboundedSender<Frame>,
    from: Streaming<Bytes>,
}

struct Said(UnboundedReceiver<Frame>);

impl Stream for Said {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll_recv(context)
    }
}

/// Runs something asynchronous.
pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

pub(super) fn hello() -> Hello {
    Hello { protocol: PROTOCOL, version: super::settings().version, nonce: to_hex(&NONCE) }
}

/// A frame as it travels.
pub(super) fn bytes(frame: Frame) -> Vec<u8> {
    let mut bytes = frame.head.map(Vec::from).unwrap_or_default();
    bytes.extend_from_slice(&frame.payload);
    bytes.extend(frame.tag.iter().flat_map(|tag| tag.as_ref().iter().copied()));
    bytes
}

impl Raw {
    pub(super) async fn connect(address: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let builder = http2::Builder::new(TokioExecutor::new());
        let (calls, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let (to, said) = unbounded_channel();
        let origin = Uri::from_static("http://controller");
        let mut grpc = Grpc::with_origin(Calls(calls), origin);
        let method = PathAndQuery::from_static(METHOD);
        let answer = grpc.streaming(Request::new(Said(said)), method, FrameCodec);
        let from = timeout(PATIENCE, answer).await.unwrap().unwrap().into_inner();
        Self { to, from }
    }

    pub(super) fn say(&self, bytes: impl Into<Vec<u8>>) {
        drop(self.to.send(Frame::plain(Bytes::from(bytes.into()))));
    }

    pub(super) async fn hear(&mut self) -> Result<Option<Bytes>, Status> {
        timeout(PATIENCE, self.from.message()).await.unwrap()
    }

    /// Everything until the end, and how it ended.
    pub(super) async fn end(&mut self) -> Option<Status> {
        loop {
            match self.hear().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }

    /// Says hello, and has the proof of an agent that knows this secret.
    pub(super) async fn challenged(&mut self, secret: &Secret) -> (Keys, Vec<u8>) {
        self.say(serde_json::to_vec(&hello()).unwrap());
        let challenge = self.hear().await.unwrap().unwrap();
        let challenge: Challenge = serde_json::from_slice(&challenge).unwrap();
        let greeting = Greeting {
            protocol: PROTOCOL,
            version: &hello().version,
            agent: NONCE,
            controller: from_hex(&challenge.nonce).unwrap(),
        };
        let keys = Keys::derive(secret, &greeting).ok().unwrap();
        let proof = Proof { proof: to_hex(keys.proof_of_agent().as_ref()) };
        (keys, serde_json::to_vec(&proof).unwrap())
    }

    /// One that the controller takes for an agent, and the first sealed frame from there.
    pub(super) async fn known(address: &str, secret: &Secret) -> (Self, Sealer, Opener, Bytes) {
        let mut raw = Self::connect(address).await;
        let (keys, proof) = raw.challenged(secret).await;
        raw.say(proof);
        let welcome = raw.hear().await.unwrap().unwrap();
        let (sealer, mut opener) = keys.of_agent();
        opener.open(&welcome).unwrap();
        (raw, sealer, opener, welcome)
    }
}
