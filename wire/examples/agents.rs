//! How much many agents cost: `agents [NUMBER]` connects that many (4096 if not said) to one listener over loopback, first
//! from a process of their own and then in this process.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is a measurement for people")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use titan_wire::{Connection, Driver, FromController, Incoming, Listener, Secret, Settings};

/// Where the agents find the secret.
const VARIABLE: &str = "TITAN_WIRE_SECRET";
/// How long heartbeats are watched.
const WATCH: Duration = Duration::from_secs(10);

fn main() {
    let most = Rlimit { current: Some(20_000), maximum: Some(20_000) };
    setrlimit(Resource::Nofile, most).unwrap();
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [mode, address, number] if mode == "agents" => be_agents(address, number.parse().unwrap()),
        [number] => measure(number.parse().unwrap()),
        _ => measure(4096),
    }
}

fn measure(number: usize) {
    println!("{number} agents in a process of their own:");
    measure_with(number, |address, secret| Apart::start(address, secret, number));
    println!("{number} agents in this process:");
    measure_with(number, |address, secret| agents(address, &secret, number));
}

fn measure_with<A: Agents>(number: usize, start: impl FnOnce(&str, Secret) -> A) {
    let secret = Secret::generate().unwrap();
    let (connected, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (come, answered) = (Arc::clone(&connected), Arc::clone(&answers));
    let report = move |event| match event {
        Incoming::Connected { .. } => drop(come.fetch_add(1, SeqCst)),
        Incoming::Message { message, .. } => drop(answered.fetch_max(message, SeqCst)),
        Incoming::Refused { why, .. } => println!("  refused: {why}"),
        _ => {}
    };
    let listener = Listener::<usize>::bind(([127, 0, 0, 1], 0).into(), secret.clone(), report);
    let listener = listener.unwrap();
    let begun = Instant::now();
    let mut agents = start(&listener.local_addr().to_string(), secret);
    wait(|| connected.load(SeqCst) == number);
    println!("  all connected after {:.2?}", begun.elapsed());
    sleep(Duration::from_secs(1));
    let (here, there) = (processor_time(), agents.processor_time());
    sleep(WATCH);
    let share = |from: f64, to: f64| 100.0 * (to - from) / WATCH.as_secs_f64();
    println!("  heartbeats: {:.1} % of a core in this process", share(here, processor_time()));
    println!("  heartbeats: {:.1} % in that of the agents", share(there, agents.processor_time()));
    for round in 1..=3 {
        let begun = Instant::now();
        assert_eq!(listener.send_all(&(round * number)).unwrap(), number);
        let queued = begun.elapsed();
        // The agent that has it last says so.
        wait(|| answers.load(SeqCst) >= round * number);
        println!(
            "  broadcast: queued in {queued:.2?}, known to be everywhere after {:.2?}",
            begun.elapsed()
        );
    }
    println!("  memory of this process: {} MiB", resident());
    let begun = Instant::now();
    assert!(listener.finish("the measurement is over", Duration::from_secs(10)));
    println!("  all closed after {:.2?}", begun.elapsed());
}

/// Agents, wherever they are.
trait Agents {
    /// Seconds of processor time of their process.
    fn processor_time(&mut self) -> f64;
}

type Here = Vec<Arc<OnceLock<Connection<usize>>>>;

impl Agents for Here {
    fn processor_time(&mut self) -> f64 {
        processor_time()
    }
}

/// Connects agents; the last of them that gets a number sends it back.
fn agents(address: &str, secret: &Secret, number: usize) -> Here {
    let driver = Arc::new(Driver::start("agents").unwrap());
    let messages = Arc::new(AtomicUsize::new(0));
    let connect = |_| {
        let place: Arc<OnceLock<Connection<usize>>> = Arc::default();
        let (me, messages) = (Arc::downgrade(&place), Arc::clone(&messages));
        let report = move |event| {
            if let FromController::Message(last) = event
                && messages.fetch_add(1, SeqCst) + 1 == last
            {
                me.upgrade().unwrap().get().unwrap().send(&last).unwrap();
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

/// Agents in a process of their own.
struct Apart {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Apart {
    fn start(address: &str, secret: Secret, number: usize) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["agents", address, &number.to_string()])
            .env(VARIABLE, secret.expose())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take(), process.stdout.take().unwrap());
        Self { process, to, from: BufReader::new(from) }
    }
}

impl Agents for Apart {
    fn processor_time(&mut self) -> f64 {
        self.to.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.to.take());
        self.process.wait().unwrap();
    }
}

/// Runs agents until the standard input ends; each line asks for the processor time.
fn be_agents(address: &str, number: usize) {
    let secret = Secret::from_variable(VARIABLE).unwrap().unwrap();
    let agents = agents(address, &secret, number);
    for _ in stdin().lock().lines() {
        println!("{}", processor_time());
    }
    drop(agents);
}

fn wait(done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "this takes too long");
        sleep(Duration::from_millis(1));
    }
}

/// Seconds that this process has used, all threads.
fn processor_time() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_ascii_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// MiB of memory that this process has now.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096 / (1024 * 1024)
}
