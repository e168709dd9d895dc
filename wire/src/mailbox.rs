//! What waits to be sent on one stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_stream::Stream;
use tonic::Status;

use crate::Settings;
use crate::error::Unsent;
use crate::keys::{Frame, Kind, Sealer};

/// What waits to be sent on one stream. Nothing that is put in ever waits for room.
pub(crate) struct Mailbox {
    state: Mutex<State>,
    ended: Notify,
    most: usize,
    most_bytes: usize,
}

#[derive(Default)]
struct State {
    /// Frames of the handshake.
    plain: VecDeque<Bytes>,
    /// There is none until the other side is known.
    sealer: Option<Sealer>,
    messages: VecDeque<Bytes>,
    bytes: usize,
    /// The counter to acknowledge: only the newest matters, so a slow reader gets few.
    acknowledge: Option<u64>,
    beat: bool,
    /// Those that are not acknowledged.
    beats: VecDeque<Beat>,
    /// A beat is wanted as soon as no message waits.
    flush: bool,
    /// Messages that were ever put in.
    taken: u64,
    /// Messages that the other side is known to have.
    confirmed: u64,
    /// Set once: nothing more is taken.
    closing: Option<Closing>,
    /// Why the stream is over.
    why: Option<String>,
    waker: Option<Waker>,
}

/// A sign of life that was sent.
struct Beat {
    counter: u64,
    sent: Instant,
    /// Messages that were sent before it.
    messages: u64,
}

enum Closing {
    /// After the messages, the reason.
    Say { why: String, since: Instant },
    /// The status of a refusal.
    Refuse(Status),
    /// No more at all.
    Said,
}

impl Mailbox {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            state: Mutex::default(),
            ended: Notify::new(),
            most: settings.queued,
            most_bytes: settings.queued_bytes,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// A frame of the handshake.
    pub(crate) fn plain(&self, frame: Vec<u8>) {
        self.change(|state| state.plain.push_back(Bytes::from(frame)));
    }

    /// The other side is known: messages are taken from now on.
    pub(crate) fn unlock(&self, sealer: Sealer) {
        self.change(|state| state.sealer = Some(sealer));
    }

    /// A message. One too many ends the stream: the other side does not read.
    pub(crate) fn message(&self, message: Bytes) -> Result<(), Unsent> {
        let (most, most_bytes) = (self.most, self.most_bytes);
        let taken = self.change(|state| {
            if state.sealer.is_none() || state.closing.is_some() || state.why.is_some() {
                return Err(Unsent::Away);
            }
            let bytes = state.bytes + message.len();
            let full = state.messages.len() >= most || bytes > most_bytes;
            if full && !state.messages.is_empty() {
                return Err(Unsent::Overflow);
            }
            state.bytes = bytes;
            state.taken += 1;
            state.messages.push_back(message);
            Ok(())
        });
        if taken == Err(Unsent::Overflow) {
            self.end("it does not read what it is sent: too much was waiting".to_owned());
        }
        taken
    }

    /// Says that frames up to this one have come.
    pub(crate) fn acknowledge(&self, counter: u64) {
        self.change(|state| state.acknowledge = Some(counter));
    }

    /// Asks for a sign of life. It is made when it can be sent, so there is never more than one.
    pub(crate) fn beat(&self) {
        self.change(|state| state.beat = true);
    }

    /// Something was sent at this time that an acknowledgement of 0 is for.
    pub(crate) fn greeted(&self, sent: Instant) {
        self.state().beats.push_back(Beat { counter: 0, sent, messages: 0 });
    }

    /// When the newest of the beats up to this counter was sent. They are forgotten.
    pub(crate) fn acknowledged(&self, counter: u64) -> Option<Instant> {
        let mut state = self.state();
        let known = state.beats.partition_point(|beat| beat.counter <= counter);
        let newest = state.beats.drain(..known).next_back()?;
        state.confirmed = newest.messages;
        Some(newest.sent)
    }

    /// Asks for a beat after what is waiting, and says how many messages will then be confirmed.
    pub(crate) fn flush(&self) -> u64 {
        self.change(|state| {
            state.flush = true;
            state.taken
        })
    }

    /// Messages that the other side is known to have.
    pub(crate) fn confirmed(&self) -> u64 {
        self.state().confirmed
    }

    /// Ends the stream after what is waiting.
    pub(crate) fn close(&self, why: String) {
        self.change(|state| {
            if state.closing.is_none() {
                state.closing = Some(Closing::Say { why, since: Instant::now() });
            }
        });
    }

    /// Ends the handshake.
    pub(crate) fn refuse(&self, status: Status) {
        self.change(|state| state.closing = Some(Closing::Refuse(status)));
    }

    /// Since when the other side could have read what was waiting when this stream was closed.
    pub(crate) fn closing_since(&self) -> Option<Instant> {
        match self.state().closing {
            Some(Closing::Say { since, .. }) => Some(since),
            _ => None,
        }
    }

    /// Ends the stream now. The first reason counts.
    pub(crate) fn end(&self, why: String) {
        self.change(|state| state.finish(why));
        self.ended.notify_one();
    }

    /// Waits for the end of the stream.
    pub(crate) async fn ended(&self) -> String {
        loop {
            if let Some(why) = &self.state().why {
                return why.clone();
            }
            self.ended.notified().await;
        }
    }

    /// The next frame to send.
    fn poll(&self, context: &Context<'_>) -> Poll<Option<Result<Frame, Status>>> {
        let mut state = self.state();
        let next = state.next();
        if matches!(next, Poll::Pending) {
            state.waker = Some(context.waker().clone());
        }
        let said = matches!(state.closing, Some(Closing::Said)) && state.why.is_some();
        drop(state);
        if said {
            self.ended.notify_one();
        }
        next
    }
}

impl State {
    fn next(&mut self) -> Poll<Option<Result<Frame, Status>>> {
        if let Some(frame) = self.plain.pop_front() {
            return Poll::Ready(Some(Ok(Frame::plain(frame))));
        }
        match self.sealed() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => match self.closing.take() {
                Some(Closing::Refuse(status)) => {
                    self.closing = Some(Closing::Said);
                    Poll::Ready(Some(Err(status)))
                }
                Some(Closing::Say { why, .. }) => {
                    self.finish(format!("closed by this side: {why}"));
                    let frame = |sealer: &mut Sealer| sealer.seal(Kind::Close, Bytes::from(why));
                    Poll::Ready(self.sealer.as_mut().map(frame).map(Ok))
                }
                Some(Closing::Said) => {
                    self.closing = Some(Closing::Said);
                    Poll::Ready(None)
                }
                None => Poll::Pending,
            },
        }
    }

    fn sealed(&mut self) -> Option<Frame> {
        let sealer = self.sealer.as_mut()?;
        if let Some(counter) = self.acknowledge.take() {
            let counter = Bytes::copy_from_slice(&counter.to_be_bytes());
            return Some(sealer.seal(Kind::Acknowledgement, counter));
        }
        if self.beat || (self.flush && self.messages.is_empty()) {
            self.flush &= !self.messages.is_empty();
            self.beat = false;
            // Before the frame is made: what was sent later than this is not claimed to be known.
            let sent = Instant::now();
            let frame = sealer.seal(Kind::Beat, Bytes::new());
            let messages = self.taken - self.messages.len() as u64;
            self.beats.push_back(Beat { counter: sealer.last(), sent, messages });
            return Some(frame);
        }
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        Some(sealer.seal(Kind::Message, message))
    }

    fn finish(&mut self, why: String) {
        self.messages = VecDeque::new();
        self.bytes = 0;
        self.closing = Some(Closing::Said);
        self.why.get_or_insert(why);
    }
}

/// The stream of an agent or the controller, as gRPC reads it.
pub(crate) struct Outgoing(pub(crate) Arc<Mailbox>);

impl Stream for Outgoing {
    type Item = Result<Frame, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}

/// The same for the client side of gRPC, which has no status to send.
pub(crate) struct OutgoingOfClient(pub(crate) Arc<Mailbox>);

impl Stream for OutgoingOfClient {
    type Item = Frame;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll(context).map(|frame| frame?.ok())
    }
}
