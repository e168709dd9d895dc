//! Many agents: 512, or as many as `TITAN_TEST_AGENTS` says, alone in this process.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "this is a test, with figures for people"
)]

use std::env;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use titan_wire::{Connection, Driver, FromController, Incoming, Listener, Secret, Settings};

/// How long a broadcast may take.
const BROADCAST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });

fn number() -> usize {
    let number = env::var("TITAN_TEST_AGENTS").ok().and_then(|number| number.parse().ok());
    number.unwrap_or(512).clamp(1, 4096)
}

/// Each agent is two sockets here.
fn allow_descriptors(wanted: u64) {
    let mut limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= wanted) {
        return;
    }
    limits.current = Some(limits.maximum.map_or(wanted, |most| most.min(wanted)));
    setrlimit(Resource::Nofile, limits).unwrap();
}

/// Seconds of processor time of this process.
fn processor_time() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

#[test]
fn many_agents_connect_and_hear_a_broadcast() {
    let thread = thread::spawn(|| {
        let number = number();
        allow_descriptors(2 * number as u64 + 500);
        let secret = Secret::generate().unwrap();
        let [connected, answers, gone] = [0; 3].map(|none| Arc::new(AtomicUsize::new(none)));
        let counts = [&connected, &answers, &gone].map(Arc::clone);
        let report = move |event: Incoming<u32>| {
            let [connected, answers, gone] = &counts;
            match event {
                Incoming::Connected { .. } => connected.fetch_add(1, SeqCst),
                Incoming::Message { message: 7, .. } => answers.fetch_add(1, SeqCst),
                _ => gone.fetch_add(1, SeqCst),
            };
        };
        let listener =
            Listener::<u32>::bind(([127, 0, 0, 1], 0).into(), secret.clone(), report).unwrap();
        let begun = Instant::now();
        let reached = Arc::new(AtomicUsize::new(0));
        let agents = agents(&listener.local_addr().to_string(), &secret, number, &reached);
        wait("all agents", || connected.load(SeqCst) == number);
        println!("{number} agents connected after {:.2?}", begun.elapsed());

        let (begun, used) = (Instant::now(), processor_time());
        sleep(Duration::from_secs(5));
        let share = 100.0 * (processor_time() - used) / begun.elapsed().as_secs_f64();
        println!("heartbeats take {share:.1} % of a core on both sides together");
        let heard = listener.last_heard();
        assert_eq!(heard.len(), number);
        let oldest = heard.iter().map(|(_, heard)| heard.elapsed()).max().unwrap();
        assert!(oldest < Duration::from_secs(3), "one was not heard of for {oldest:?}");

        let begun = Instant::now();
        assert_eq!(listener.send_all(&7), Ok(number));
        wait("the broadcast everywhere", || reached.load(SeqCst) == number);
        let took = begun.elapsed();
        wait("all answers", || answers.load(SeqCst) == number);
        println!(
            "a broadcast was everywhere after {took:.2?}, answered after {:.2?}",
            begun.elapsed()
        );
        assert!(took < BROADCAST, "{took:?}");
        assert_eq!(gone.load(SeqCst), 0);
        drop(agents);
    });
    wait("the end", || thread.is_finished());
    thread.join().unwrap();
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}: not yet");
        sleep(Duration::from_millis(2));
    }
}

type Place = Arc<OnceLock<Connection<u32>>>;

/// Agents that send back what they get.
fn agents(address: &str, secret: &Secret, number: usize, reached: &Arc<AtomicUsize>) -> Vec<Place> {
    let driver = Arc::new(Driver::start("agents").unwrap());
    let connect = |_| {
        let place = Place::default();
        let (me, reached) = (Arc::downgrade(&place), Arc::clone(reached));
        let report = move |event: FromController<u32>| {
            if let FromController::Message(message) = event {
                reached.fetch_add(1, SeqCst);
                me.upgrade().unwrap().get().unwrap().send(&message).unwrap();
            }
        };
        let settings = Settings::default();
        place.get_or_init(|| {
            Connection::open_on(&driver, address, secret.clone(), settings, report)
        });
        place
    };
    (0..number).map(connect).collect()
}
