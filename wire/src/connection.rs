//! The side of an agent.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

use crate::driver::Driver;
use crate::error::Unsent;
use crate::listener::{parse, write};
use crate::mailbox::Mailbox;
use crate::secret::random;
use crate::session::{End, attempt, since};
use crate::{Secret, Settings};

/// What happens to a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FromController<Down> {
    /// The controller of this run is there.
    Connected,
    /// It says something.
    Message(Down),
    /// It is gone; the connection tries to find it again.
    Disconnected {
        /// Why.
        why: String,
    },
    /// Somebody is there, but not the controller of this run, or it does not take this agent. Whoever is there may say so:
    /// nothing is proven. The connection goes on trying.
    Refused {
        /// Why.
        why: String,
    },
    /// Nobody is there. Said again only with another reason; the connection goes on trying.
    Unreachable {
        /// Why.
        why: String,
    },
}

/// As [`FromController`], before the message is read.
pub(crate) enum Event<'a> {
    Connected,
    Message(&'a [u8]),
    Disconnected(String),
    Refused(String),
    Unreachable(String),
}

type Report = Box<dyn Fn(Event<'_>) -> Result<(), String> + Send + Sync>;

/// What a connection and its driver have in common.
pub(crate) struct Shared {
    pub(crate) address: String,
    pub(crate) secret: Secret,
    pub(crate) settings: Settings,
    report: Report,
    state: Mutex<State>,
    /// Something was acknowledged, or the stream has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Of the stream that there is.
    mailbox: Option<Arc<Mailbox>>,
    heard: Option<Instant>,
    acknowledged: Option<Instant>,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports something; an error says that it is not understood.
    pub(crate) fn ask(&self, event: Event<'_>) -> Result<(), String> {
        if self.state().closed { Ok(()) } else { (self.report)(event) }
    }

    /// Reports something that can be no error.
    pub(crate) fn tell(&self, event: Event<'_>) {
        drop(self.ask(event));
    }

    pub(crate) fn enter(&self, mailbox: &Arc<Mailbox>) {
        self.state().mailbox = Some(Arc::clone(mailbox));
    }

    pub(crate) fn leave(&self, mailbox: &Mailbox, why: &str) {
        mailbox.end(why.to_owned());
        self.state().mailbox = None;
        self.changed.notify_all();
    }

    pub(crate) fn hear(&self) {
        self.state().heard = Some(Instant::now());
    }

    pub(crate) fn silent_for(&self) -> Duration {
        since(self.state().heard)
    }

    pub(crate) fn acknowledged(&self, mailbox: &Mailbox, counter: u64) {
        if let Some(sent) = mailbox.acknowledged(counter) {
            let mut state = self.state();
            state.acknowledged = state.acknowledged.max(Some(sent));
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// Keeps a stream to the controller, and sends it messages of type `Up`.
///
/// It tries until it is dropped, with a pause that grows. Dropped, it breaks the stream at once; see [`Self::delivered`].
pub struct Connection<Up> {
    shared: Arc<Shared>,
    task: AbortHandle,
    /// Last: the rest is still there when it ends.
    _driver: Arc<Driver>,
    _up: PhantomData<fn(&Up)>,
}

impl<Up: Serialize> Connection<Up> {
    /// Begins to connect to `host:port`, whose name is looked up each time. `report` runs on the thread that drives the
    /// connection and must not wait.
    ///
    /// # Errors
    /// There is no memory for a thread.
    pub fn open<Down: DeserializeOwned>(
        address: &str,
        secret: Secret,
        report: impl Fn(FromController<Down>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let driver = Arc::new(Driver::start("control-channel")?);
        Ok(Self::open_on(&driver, address, secret, Settings::default(), report))
    }

    /// As [`Self::open`], on a thread that may drive other connections too, and with other settings.
    pub fn open_on<Down: DeserializeOwned>(
        driver: &Arc<Driver>,
        address: &str,
        secret: Secret,
        settings: Settings,
        report: impl Fn(FromController<Down>) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            secret,
            settings,
            report: Box::new(move |event| read(event).map(&report)),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let task = driver.handle().spawn(keep(Arc::clone(&shared))).abort_handle();
        Self { shared, task, _driver: Arc::clone(driver), _up: PhantomData }
    }

    /// Queues a message.
    ///
    /// # Errors
    /// The controller is away, the queue is full (the stream is then ended), or the message is too large.
    pub fn send(&self, message: &Up) -> Result<(), Unsent> {
        let message = write(message)?;
        let mailbox = self.shared.state().mailbox.clone();
        mailbox.ok_or(Unsent::Away)?.message(message)
    }

    /// How long ago the newest of the frames was sent that the controller is known to have. By this clock alone: an agent
    /// that has this grow beyond its lease knows that the controller may have given it up. `None` if there was none yet.
    /// The clock stands still while the machine is suspended.
    pub fn acknowledged(&self) -> Option<Duration> {
        self.shared.state().acknowledged.map(|sent| sent.elapsed())
    }

    /// Waits until the controller has all that was queued before, but no longer than this. Says whether it has.
    pub fn delivered(&self, within: Duration) -> bool {
        let end = Instant::now() + within;
        let Some(mailbox) = self.shared.state().mailbox.clone() else { return false };
        let wanted = mailbox.flush();
        let mut state = self.shared.state();
        loop {
            if mailbox.confirmed() >= wanted {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            let same = state.mailbox.as_ref().is_some_and(|now| Arc::ptr_eq(now, &mailbox));
            if left.is_zero() || !same {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<Up> Drop for Connection<Up> {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.task.abort();
    }
}

impl<Up> fmt::Debug for Connection<Up> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

fn read<Down: DeserializeOwned>(event: Event<'_>) -> Result<FromController<Down>, String> {
    Ok(match event {
        Event::Connected => FromController::Connected,
        Event::Message(json) => FromController::Message(parse(json)?),
        Event::Disconnected(why) => FromController::Disconnected { why },
        Event::Refused(why) => FromController::Refused { why },
        Event::Unreachable(why) => FromController::Unreachable { why },
    })
}

/// Connects again and again.
async fn keep(shared: Arc<Shared>) {
    let settings = &shared.settings;
    let mut pause = settings.first_pause;
    let mut known = None;
    loop {
        match attempt(&shared).await {
            End::Lost(why) => {
                pause = settings.first_pause;
                known = None;
                shared.tell(Event::Disconnected(why));
            }
            End::Refused(why) => shared.tell(Event::Refused(why)),
            End::Unreachable(why) if known.as_ref() != Some(&why) => {
                shared.tell(Event::Unreachable(why.clone()));
                known = Some(why);
            }
            End::Unreachable(_) => {}
        }
        tokio::time::sleep(spread(pause)).await;
        pause = (2 * pause).min(settings.longest_pause);
    }
}

/// Between half and the whole of a pause: thousands of agents lose the controller at the same time.
fn spread(pause: Duration) -> Duration {
    let part = random().map_or(u8::MAX, |bytes| bytes[0]);
    pause / 2 + pause * u32::from(part) / 512
}
