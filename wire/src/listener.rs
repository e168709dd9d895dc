//! The side of the controller.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;

use crate::driver::Driver;
use crate::error::{Error, Result, Unsent};
use crate::peer::{Peer, serve, sweep};
use crate::{LARGEST_MESSAGE, Secret, Settings, holder};

/// Connections that may wait to be accepted: all agents of a run come at once.
const BACKLOG: u32 = 4096;
/// Connections that may be in their handshake. The others wait to be accepted: if thousands were greeted at the same time,
/// none would be done in time.
const STRANGERS: usize = 256;

/// One connection of an agent. Numbers are not used again: an agent that comes back has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// What happens to a listener.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Incoming<Up> {
    /// An agent of this run has come.
    Connected {
        /// Which.
        peer: PeerId,
        /// From where.
        address: SocketAddr,
    },
    /// It says something.
    Message {
        /// Which.
        peer: PeerId,
        /// What.
        message: Up,
    },
    /// It is gone.
    Disconnected {
        /// Which.
        peer: PeerId,
        /// Why.
        why: String,
    },
    /// Somebody came who is no agent of this run.
    Refused {
        /// From where.
        address: SocketAddr,
        /// Why.
        why: String,
    },
}

/// As [`Incoming`], before the message is read.
pub(crate) enum Event<'a> {
    Connected { peer: PeerId, address: SocketAddr },
    Message { peer: PeerId, json: &'a [u8] },
    Disconnected { peer: PeerId, why: String },
    Refused { address: SocketAddr, why: String },
}

type Report = Box<dyn Fn(Event<'_>) -> Result<(), String> + Send + Sync>;

/// What all connections of a listener have in common.
pub(crate) struct Shared {
    pub(crate) secret: Secret,
    pub(crate) settings: Settings,
    pub(crate) begun: Instant,
    report: Report,
    peers: Mutex<BTreeMap<PeerId, Arc<Peer>>>,
    next: AtomicU64,
    /// No more are taken.
    pub(crate) finishing: AtomicBool,
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, BTreeMap<PeerId, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<(PeerId, Arc<Peer>)> {
        self.peers().iter().map(|(id, peer)| (*id, Arc::clone(peer))).collect()
    }

    pub(crate) fn enter(&self, peer: Arc<Peer>) -> PeerId {
        let id = PeerId(self.next.fetch_add(1, Ordering::Relaxed));
        self.peers().insert(id, peer);
        id
    }

    pub(crate) fn leave(&self, id: PeerId) {
        self.peers().remove(&id);
    }

    fn peer(&self, id: PeerId) -> Option<Arc<Peer>> {
        self.peers().get(&id).cloned()
    }

    /// Reports something; an error says that it is not understood.
    pub(crate) fn ask(&self, event: Event<'_>) -> Result<(), String> {
        (self.report)(event)
    }

    /// Reports something that can be no error.
    pub(crate) fn tell(&self, event: Event<'_>) {
        drop(self.ask(event));
    }
}

/// Listens for agents, and sends them messages of type `Down`.
///
/// Nothing waits for an agent: what cannot be sent to it is queued, and one whose queue is full is disconnected. Dropped, it
/// breaks all connections at once; see [`Self::finish`].
pub struct Listener<Down> {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Last: the rest is still there when it ends.
    _driver: Driver,
    _down: PhantomData<fn(&Down)>,
}

impl<Down: Serialize> Listener<Down> {
    /// Listens at an address; port 0 is any that is free. `report` runs on the thread that drives the connections and must
    /// not wait.
    ///
    /// # Errors
    /// The port is in use, the address cannot be used, or there is no memory for a thread.
    pub fn bind<Up: DeserializeOwned>(
        address: SocketAddr,
        secret: Secret,
        report: impl Fn(Incoming<Up>) + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::bind_with(address, secret, Settings::default(), report)
    }

    /// As [`Self::bind`], with other settings.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_with<Up: DeserializeOwned>(
        address: SocketAddr,
        secret: Secret,
        settings: Settings,
        report: impl Fn(Incoming<Up>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let driver = Driver::start("control-channel")?;
        let socket = {
            let _inside = driver.handle().enter();
            listen(address).map_err(|error| explain(address, error))?
        };
        let bound = socket.local_addr().map_err(|error| explain(address, error))?;
        let shared = Arc::new(Shared {
            secret,
            settings,
            begun: Instant::now(),
            report: Box::new(move |event| read(event).map(&report)),
            peers: Mutex::default(),
            next: AtomicU64::new(1),
            finishing: AtomicBool::new(false),
        });
        driver.handle().spawn(accept(Arc::clone(&shared), socket));
        driver.handle().spawn(sweep(Arc::clone(&shared)));
        Ok(Self { shared, address: bound, _driver: driver, _down: PhantomData })
    }

    /// Where agents can connect, with the port that was chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Queues a message to one agent.
    ///
    /// # Errors
    /// It is gone, its queue is full (it is then disconnected), or the message is too large.
    pub fn send(&self, peer: PeerId, message: &Down) -> Result<(), Unsent> {
        let message = write(message)?;
        self.shared.peer(peer).ok_or(Unsent::Away)?.mailbox.message(message)
    }

    /// Queues a message to all agents, and says to how many.
    ///
    /// # Errors
    /// The message is too large.
    pub fn send_all(&self, message: &Down) -> Result<usize, Unsent> {
        let message = write(message)?;
        let sent = |(_, peer): &(PeerId, Arc<Peer>)| peer.mailbox.message(message.clone()).is_ok();
        Ok(self.shared.all().iter().filter(|peer| sent(peer)).count())
    }

    /// Ends the stream of an agent after what is queued for it. It is told why.
    pub fn close(&self, peer: PeerId, why: &str) {
        if let Some(peer) = self.shared.peer(peer) {
            peer.mailbox.close(why.to_owned());
        }
    }

    /// When each agent that is connected was last heard of.
    pub fn last_heard(&self) -> Vec<(PeerId, Instant)> {
        let begun = self.shared.begun;
        self.shared.peers().iter().map(|(id, peer)| (*id, begun + peer.heard())).collect()
    }

    /// Closes the streams of all agents after what is queued for them, waits until they have gone, but no longer than this,
    /// and ends. Says whether all have gone.
    pub fn finish(self, why: &str, within: Duration) -> bool {
        let end = Instant::now() + within;
        // An agent that is closed comes back at once.
        self.shared.finishing.store(true, Ordering::Release);
        let all = self.shared.all();
        for (_, peer) in &all {
            peer.mailbox.close(why.to_owned());
        }
        while all.iter().any(|(id, _)| self.shared.peer(*id).is_some()) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl<Down> fmt::Debug for Listener<Down> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A message as JSON.
pub(crate) fn write(message: &impl Serialize) -> Result<Bytes, Unsent> {
    let json = serde_json::to_vec(message).map_err(|error| Unsent::NotJson(error.to_string()))?;
    if json.len() > LARGEST_MESSAGE {
        return Err(Unsent::TooLarge { bytes: json.len(), most: LARGEST_MESSAGE });
    }
    Ok(Bytes::from(json))
}

fn read<Up: DeserializeOwned>(event: Event<'_>) -> Result<Incoming<Up>, String> {
    Ok(match event {
        Event::Connected { peer, address } => Incoming::Connected { peer, address },
        Event::Message { peer, json } => Incoming::Message { peer, message: parse(json)? },
        Event::Disconnected { peer, why } => Incoming::Disconnected { peer, why },
        Event::Refused { address, why } => Incoming::Refused { address, why },
    })
}

/// A message from JSON, or why it is none.
pub(crate) fn parse<M: DeserializeOwned>(json: &[u8]) -> Result<M, String> {
    serde_json::from_slice(json).map_err(|error| format!("a message cannot be understood: {error}"))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A run that is started again must not wait for the connections of the one before to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn explain(address: SocketAddr, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::AddrInUse {
        return Error::Busy { address, holder: holder::of(address) };
    }
    Error::Listen { address, source }
}

async fn accept(shared: Arc<Shared>, socket: TcpListener) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    // It is never closed.
    while let Ok(permit) = Arc::clone(&strangers).acquire_owned().await {
        match socket.accept().await {
            Ok(_) if shared.finishing.load(Ordering::Acquire) => {}
            Ok((stream, address)) => {
                tokio::spawn(serve(Arc::clone(&shared), stream, address, permit));
            }
            // Out of file descriptors, most of all: others have to go before another can come.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
