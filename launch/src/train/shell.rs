//! The processes of a run: the worker host, and the ranks forked from it.
//!
//! Every process is owned here. The launcher is the subreaper, so ranks become its own children and it sees how
//! each of them ends; each is in a process group of its own, is killed by the kernel if the launcher dies, and
//! kills itself if its channel to the launcher closes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, pidfd_open,
    set_child_subreaper, waitid,
};
use titan_control::{ExitStatus, Generation};
use titan_recipes::Secret;
use titan_trainer::channel::{Lines, packet_pair, receive_packet, send_packet, write_line};
use titan_trainer::protocol::{
    Assignment, Attachment, HostMessage, HostOrder, LAUNCHER_PID, RUN_ID, RankMessage, RankOrder,
    Rendezvous,
};
use titan_trainer::spec::RunSpec;

use super::event::Event;
use super::spin;

/// How long a rank waits for the others: at the meeting, and in every collective.
const RENDEZVOUS_SECONDS: u64 = 300;

/// How long the end of a rank is held back until all that it said has been read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long a killed worker host may take to disappear.
const HOST_LINGER: Duration = Duration::from_secs(2);

/// What workers are started with.
#[derive(Clone, Debug)]
pub(crate) struct WorkerSettings {
    /// The interpreter.
    pub(crate) python: PathBuf,
    /// Whether the interpreter is our own, and so must not be reached by `PYTHON*` variables of the user.
    pub(crate) isolated: bool,
    /// The folder that has the package `titan_tpu`.
    pub(crate) engine: PathBuf,
    /// The folder for logs.
    pub(crate) logs: PathBuf,
    /// The id of the run.
    pub(crate) run_id: String,
    /// Processes that are started, one for each device.
    pub(crate) world: usize,
    /// Threads that each computes with.
    pub(crate) threads: u64,
    /// Whether they save checkpoints.
    pub(crate) saves: bool,
    /// Weights of the model.
    pub(crate) parameters: u64,
    /// Variables that the recipe gives its workers, which nothing shows.
    pub(crate) variables: Vec<(String, Secret)>,
}

/// A process of the run.
struct Process {
    pid: Pid,
    exited: bool,
}

impl Process {
    fn kill(&self) {
        if !self.exited {
            // One that is gone already has an event of its own.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// A rank of this generation.
#[derive(Default)]
struct Rank {
    process: Option<Process>,
    channel: Option<UnixStream>,
    /// Tells the waiter of the process that its last message has been read.
    last_words: Option<Receiver<()>>,
}

/// The worker host.
struct Host {
    process: Process,
    channel: Arc<OwnedFd>,
}

/// All processes of a run on this host.
pub(crate) struct Workers {
    settings: WorkerSettings,
    host: Host,
    generation: Generation,
    ranks: Vec<Rank>,
    sender: Sender<Event>,
}

impl Workers {
    /// Starts the worker host. Its first message is an event on `sender`, like all that follows.
    ///
    /// Must be called on a thread that lives as long as the run: the kernel's parent-death signal follows the
    /// thread that started a process.
    pub(crate) fn start(settings: WorkerSettings, sender: Sender<Event>) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let host = start_host(&settings, &sender)?;
        Ok(Self { settings, host, generation: 0, ranks: Vec::new(), sender })
    }

    /// Whether there is a worker host.
    pub(crate) fn has_host(&self) -> bool {
        !self.host.process.exited
    }

    /// Whether this is the process id of the worker host, and not that of one before.
    pub(crate) fn is_host(&self, pid: i32) -> bool {
        self.host.process.pid.as_raw_nonzero().get() == pid
    }

    /// Starts a new worker host in place of one that has ended, or that does not do what it is there for. It has to become
    /// ready first.
    pub(crate) fn replace_host(&mut self) -> io::Result<()> {
        self.host.process.kill();
        self.host = start_host(&self.settings, &self.sender)?;
        Ok(())
    }

    /// Orders the host to fork every rank, and gives each its assignment.
    pub(crate) fn spawn_ranks(&mut self, generation: Generation, spec: &RunSpec) -> io::Result<()> {
        self.generation = generation;
        std::fs::create_dir_all(&self.settings.logs)?;
        self.ranks = (0..self.settings.world).map(|_| Rank::default()).collect();
        let world = self.ranks.len();
        // The launcher binds the port itself and hands the listening socket over: a port that is chosen first
        // and bound later can be taken by another run in between. Each generation has one of its own, and with it a
        // store in which nothing of the one before is left.
        let listener =
            if world > 1 { Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?) } else { None };
        let port =
            listener.as_ref().map_or(Ok(0), |l| l.local_addr().map(|address| address.port()))?;
        for rank in 0..world {
            let (ours, theirs) = UnixStream::pair()?;
            let log = log_file(&log_path(&self.settings.logs, rank), generation)?;
            let mut kinds = vec![Attachment::Channel, Attachment::Log];
            let mut descriptors = vec![theirs.as_fd(), log.as_fd()];
            if let (0, Some(listener)) = (rank, &listener) {
                kinds.push(Attachment::Rendezvous);
                descriptors.push(listener.as_fd());
            }
            let order = HostOrder::Spawn { generation, rank: rank as u64, attached: kinds };
            send_packet(&self.host.channel, &order, &descriptors)?;
            let rendezvous = Rendezvous {
                host: Ipv4Addr::LOCALHOST.to_string(),
                port,
                listen_fd: None,
                timeout_seconds: RENDEZVOUS_SECONDS,
            };
            let run = spec.clone();
            write_line(&ours, &Assignment { rank: rank as u64, rendezvous, run })?;
            let reader = ours.try_clone()?;
            let last_words = read_rank(generation, rank, reader, self.sender.clone())?;
            self.ranks[rank].last_words = Some(last_words);
            self.ranks[rank].channel = Some(ours);
        }
        Ok(())
    }

    /// Takes note of an event, before anything else is done about it.
    pub(crate) fn note(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Host(HostMessage::Spawned { generation, rank, pid }) => {
                let (generation, rank) = (*generation, *rank as usize);
                let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) else {
                    return Err(io::Error::other("the worker host named no process"));
                };
                let process = Process { pid, exited: false };
                let done = move |status| Event::RankExited(generation, rank, status);
                let is_current = generation == self.generation;
                let slot = if is_current { self.ranks.get_mut(rank) } else { None };
                let last_words = slot.and_then(|slot| {
                    slot.process = Some(process);
                    slot.last_words.take()
                });
                if !is_current {
                    // It was ordered for a start that has been given up meanwhile.
                    Process { pid, exited: false }.kill();
                }
                wait_for(pid, last_words, self.sender.clone(), done)?;
            }
            Event::HostExited(pid, _) if self.is_host(*pid) => self.host.process.exited = true,
            Event::RankExited(generation, rank, _) if *generation == self.generation => {
                if let Some(process) = self.ranks.get_mut(*rank).and_then(|r| r.process.as_mut()) {
                    process.exited = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks all ranks to stop after the step under way.
    pub(crate) fn order_stop(&self) {
        for channel in self.ranks.iter().filter_map(|rank| rank.channel.as_ref()) {
            // A rank that is gone has an event of its own.
            let _ = write_line(channel, &RankOrder::Stop);
        }
    }

    /// Kills all ranks with all that they have started.
    pub(crate) fn kill_ranks(&self) {
        self.ranks.iter().filter_map(|rank| rank.process.as_ref()).for_each(Process::kill);
    }

    /// The processes of the ranks that are there.
    pub(crate) fn processes(&self) -> Vec<(usize, Pid)> {
        let alive = |rank: &Rank| Some(rank.process.as_ref().filter(|p| !p.exited)?.pid);
        let ranks = self.ranks.iter().enumerate();
        ranks.filter_map(|(rank, slot)| Some((rank, alive(slot)?))).collect()
    }

    /// Ends the worker host. It holds nothing that is worth an orderly end, which takes Python half a second.
    pub(crate) fn end_host(&mut self, events: &Receiver<Event>) {
        self.host.process.kill();
        let deadline = Instant::now() + HOST_LINGER;
        while !self.host.process.exited {
            match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => drop(self.note(&event)),
                Err(_) => return,
            }
        }
    }
}

impl Drop for Workers {
    /// Whatever way the run ends, nothing that it started outlives it.
    fn drop(&mut self) {
        self.kill_ranks();
        self.host.process.kill();
    }
}

fn start_host(settings: &WorkerSettings, sender: &Sender<Event>) -> io::Result<Host> {
    let (ours, theirs) = packet_pair()?;
    let log = File::create(settings.logs.join("host.log"))?;
    let child = host_command(settings, theirs, log)?.spawn()?;
    let pid = Pid::from_child(&child);
    let channel = Arc::new(ours);
    read_host(Arc::clone(&channel), sender.clone())?;
    let number = pid.as_raw_nonzero().get();
    wait_for(pid, None, sender.clone(), move |status| Event::HostExited(number, status))?;
    Ok(Host { process: Process { pid, exited: false }, channel })
}

/// The log of a rank, to which each start of the run appends.
fn log_file(path: &Path, generation: Generation) -> io::Result<File> {
    let mut file = File::options().create(true).append(true).open(path)?;
    if file.metadata()?.len() > 0 {
        writeln!(file, "---- start {generation} ----")?;
    }
    Ok(file)
}

/// The log of a rank.
pub(crate) fn log_path(logs: &Path, rank: usize) -> PathBuf {
    logs.join(format!("rank-{rank}.log"))
}

fn host_command(settings: &WorkerSettings, channel: OwnedFd, log: File) -> io::Result<Command> {
    const BOOT: &str = "import sys; sys.path.insert(0, sys.argv.pop(1)); \
                        from titan_tpu import worker; sys.exit(worker.main(sys.argv[1:]))";
    let mut command = Command::new(&settings.python);
    // -I keeps PYTHON* variables and the user's own packages away from our environment; an interpreter that the
    // user chose is used with them, and -P only keeps the working directory off its path.
    command.arg(if settings.isolated { "-I" } else { "-P" });
    command.args(["-u", "-X", "faulthandler", "-c", BOOT]).arg(&settings.engine);
    command
        .stdin(Stdio::from(channel))
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log));
    command.process_group(0);
    for (name, secret) in &settings.variables {
        command.env(name, secret.expose());
    }
    for (name, value) in environment(settings) {
        command.env(name, value);
    }
    const WAITS: [&str; 2] = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"];
    let is_chosen = WAITS.iter().any(|name| std::env::var_os(name).is_some())
        || settings.variables.iter().any(|(name, _)| WAITS.contains(&name.as_str()));
    if !is_chosen && let Some(count) = spin::count(settings.threads) {
        command.env("GOMP_SPINCOUNT", count);
    }
    let threshold = "MALLOC_MMAP_THRESHOLD_";
    let is_set = std::env::var_os(threshold).is_some()
        || settings.variables.iter().any(|(name, _)| name == threshold);
    if gives_memory_back(settings) && !is_set {
        command.env(threshold, (2 << 20).to_string());
    }
    let tunables = "GLIBC_TUNABLES";
    let is_set = std::env::var_os(tunables).is_some()
        || settings.variables.iter().any(|(name, _)| name == tunables);
    if settings.saves && !is_set {
        command.env(tunables, LARGE_COPIES);
    }
    // A launcher may itself run under torchrun or a scheduler: what it says about ranks is not about ours.
    for name in
        ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    {
        command.env_remove(name);
    }
    Ok(command)
}

/// glibc copies past the caches what is larger than most of the last of them, which in virtual machines is said to be as
/// large as that of the host. What a save copies is not looked at again soon: past the caches, it takes two thirds of the
/// time, for which training waits.
const LARGE_COPIES: &str = "glibc.cpu.x86_non_temporal_threshold=0x400000";

/// glibc keeps freed blocks of up to 32 MiB for itself, which for a model of some size doubles what a rank holds: whole
/// weights come and go with every block. Handing larger blocks back at once costs page faults, a sixth of the time of a
/// tiny model; so it is done where memory matters.
fn gives_memory_back(settings: &WorkerSettings) -> bool {
    const LARGE: u64 = 256 << 20;
    settings.parameters.saturating_mul(4) > LARGE
}

fn environment(settings: &WorkerSettings) -> Vec<(&'static str, OsString)> {
    let threads = settings.threads.to_string();
    vec![
        (LAUNCHER_PID, std::process::id().to_string().into()),
        (RUN_ID, settings.run_id.clone().into()),
        ("OMP_NUM_THREADS", threads.clone().into()),
        ("MKL_NUM_THREADS", threads.into()),
        // Importing torch with torch_tpu installed takes three times as long, for a device that is not used.
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0".into()),
        // All ranks are on this host; without this gloo looks the host's name up, and may listen to the network.
        ("GLOO_SOCKET_IFNAME", "lo".into()),
    ]
}

fn spawn_thread(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(work).map(drop)
}

fn read_host(channel: Arc<OwnedFd>, sender: Sender<Event>) -> io::Result<()> {
    spawn_thread("titan-host".to_owned(), move || {
        loop {
            let event = match receive_packet::<HostMessage>(&*channel) {
                Ok(Some((message, _))) => Event::Host(message),
                // Its exit is an event of its own.
                Ok(None) => return,
                Err(error) => {
                    let message = format!("the channel failed: {error}");
                    let _ =
                        sender.send(Event::Host(HostMessage::Failed { generation: 0, message }));
                    return;
                }
            };
            if sender.send(event).is_err() {
                return;
            }
        }
    })
}

/// Reads what a rank says until its end of the channel closes; then the returned receiver is told.
fn read_rank(
    generation: Generation,
    rank: usize,
    stream: UnixStream,
    sender: Sender<Event>,
) -> io::Result<Receiver<()>> {
    let (done, last_words) = channel();
    spawn_thread(format!("titan-rank-{rank}"), move || {
        let mut lines = Lines::new(stream);
        // A line that is no message means that the rank is broken; its end, which follows, says so.
        while let Ok(Some(message)) = lines.receive::<RankMessage>() {
            if sender.send(Event::Rank(generation, rank, message)).is_err() {
                return;
            }
        }
        let _ = done.send(());
    })?;
    Ok(last_words)
}

/// Waits for the end of a process on a thread of its own. The end of a rank is reported after its last words.
fn wait_for(
    pid: Pid,
    last_words: Option<Receiver<()>>,
    sender: Sender<Event>,
    event: impl FnOnce(ExitStatus) -> Event + Send + 'static,
) -> io::Result<()> {
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    spawn_thread("titan-wait".to_owned(), move || {
        let wait = |options| waitid(WaitId::PidFd(handle.as_fd()), options);
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(wait(unreaped), Err(Errno::INTR)) {}
        // What it has started ends with it. As long as nobody has taken note of its end, no other process has its number.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = loop {
            match wait(WaitIdOptions::EXITED) {
                Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => break ExitStatus::Code(code),
                    (None, Some(signal)) => break ExitStatus::Signal(signal),
                    (None, None) => {}
                },
                Ok(None) | Err(Errno::INTR) => {}
                // Not our child any more: someone else has waited for it.
                Err(_) => break ExitStatus::Code(-1),
            }
        };
        if let Some(last_words) = last_words {
            let _ = last_words.recv_timeout(LAST_WORDS);
        }
        let _ = sender.send(event(status));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_could_not_fork_one_rank_is_heard_of_the_next() {
        let (ours, theirs) = packet_pair().unwrap();
        let (sender, events) = channel();
        read_host(Arc::new(ours), sender).unwrap();
        let failed = HostMessage::Failed { generation: 2, message: "cannot fork".to_owned() };
        let spawned = HostMessage::Spawned { generation: 3, rank: 0, pid: 1 };
        for message in [failed, spawned] {
            send_packet(&theirs, &message, &[]).unwrap();
            let event = events.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(event, Event::Host(message));
        }
    }
}
