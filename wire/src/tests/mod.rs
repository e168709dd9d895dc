//! Both sides over loopback, and those who would be one of them.

mod attacks;
mod endings;
mod proxy;
mod raw;
mod talk;

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Connection, Driver, FromController, Incoming, Listener, PeerId, Secret, Settings};

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test that must not take longer than this.
fn limit(seconds: u64, test: impl FnOnce() + Send + 'static) {
    let (done, wait) = channel();
    let thread = thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match wait.recv_timeout(Duration::from_secs(seconds)) {
        Err(RecvTimeoutError::Timeout) => panic!("not done after {seconds} s"),
        _ => drop(thread.join().map_err(|panic| resume_unwind(panic))),
    }
}

fn settings() -> Settings {
    Settings {
        beat: Duration::from_millis(20),
        first_pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(50),
        ..Settings::default()
    }
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

struct Controller {
    listener: Listener<String>,
    events: Receiver<Incoming<String>>,
}

impl Controller {
    fn start(secret: &Secret) -> Self {
        Self::start_with(loopback(), secret, settings())
    }

    fn start_with(address: SocketAddr, secret: &Secret, settings: Settings) -> Self {
        let (tell, events) = channel();
        let report = move |event| drop(tell.send(event));
        let listener = Listener::bind_with(address, secret.clone(), settings, report).unwrap();
        Self { listener, events }
    }

    fn address(&self) -> String {
        self.listener.local_addr().to_string()
    }

    fn next(&self) -> Incoming<String> {
        self.events.recv_timeout(PATIENCE).expect("something happens at the controller")
    }

    fn connected(&self) -> PeerId {
        match self.next() {
            Incoming::Connected { peer, .. } => peer,
            other => panic!("{other:?}"),
        }
    }

    fn message(&self) -> String {
        match self.next() {
            Incoming::Message { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    fn disconnected(&self) -> String {
        match self.next() {
            Incoming::Disconnected { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self) -> String {
        match self.next() {
            Incoming::Refused { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }
}

struct Agent {
    connection: Connection<String>,
    events: Receiver<FromController<String>>,
}

impl Agent {
    fn start(address: &str, secret: &Secret) -> Self {
        Self::start_with(address, secret, settings())
    }

    fn start_with(address: &str, secret: &Secret, settings: Settings) -> Self {
        let driver = Arc::new(Driver::start("agent").unwrap());
        let (tell, events) = channel();
        let report = move |event| drop(tell.send(event));
        let connection = Connection::open_on(&driver, address, secret.clone(), settings, report);
        Self { connection, events }
    }

    fn next(&self) -> FromController<String> {
        self.events.recv_timeout(PATIENCE).expect("something happens at the agent")
    }

    fn connected(&self) {
        assert_eq!(self.next(), FromController::Connected);
    }

    fn message(&self) -> String {
        match self.next() {
            FromController::Message(message) => message,
            other => panic!("{other:?}"),
        }
    }

    fn disconnected(&self) -> String {
        match self.next() {
            FromController::Disconnected { why } => why,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self) -> String {
        match self.next() {
            FromController::Refused { why } => why,
            other => panic!("{other:?}"),
        }
    }
}

/// A controller and an agent that know each other.
fn pair() -> (Controller, Agent, PeerId) {
    let secret = Secret::generate().unwrap();
    let controller = Controller::start(&secret);
    let agent = Agent::start(&controller.address(), &secret);
    let peer = controller.connected();
    agent.connected();
    (controller, agent, peer)
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not yet");
        thread::sleep(Duration::from_millis(2));
    }
}

fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{text:?} has no {part:?}");
}
