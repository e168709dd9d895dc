//! The worker host: one process that has imported torch and forks ranks from itself.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, set_parent_process_death_signal, waitpid,
};
use titan_trainer::channel::{receive_packet, send_packet};
use titan_trainer::protocol::{Attachment, HostMessage, HostOrder, LAUNCHER_PID, PROTOCOL};

use crate::rank;

/// The launcher's process id, as it told this host.
fn launcher() -> PyResult<Pid> {
    std::env::var(LAUNCHER_PID)
        .ok()
        .and_then(|text| text.parse().ok())
        .and_then(Pid::from_raw)
        .ok_or_else(|| {
            PyRuntimeError::new_err(format!(
                "{LAUNCHER_PID} is not set: only titan-tpu starts this"
            ))
        })
}

/// Asks the kernel to kill this process when the launcher dies, and makes sure that it has not died before.
pub(crate) fn bind_to_launcher() -> PyResult<()> {
    let launcher = launcher()?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    if getppid() == Some(launcher) {
        Ok(())
    } else {
        Err(PyOSError::new_err("the launcher is gone"))
    }
}

/// See [`crate::_native`].
pub(crate) fn serve(py: Python<'_>, import_seconds: f64) -> PyResult<i32> {
    // Only ever the descriptor 0: a forked rank replaces that, and so holds nothing of this channel.
    let channel = rustix::stdio::stdin();
    send_packet(channel, &HostMessage::Ready { protocol: PROTOCOL, import_seconds }, &[])?;
    while let Some((order, descriptors)) = py.detach(|| receive_packet::<HostOrder>(channel))? {
        let HostOrder::Spawn { generation, rank, attached } = order;
        let answer = match RankFiles::new(attached, descriptors) {
            Ok(files) => match fork_rank(py, rank, files) {
                Ok(pid) => HostMessage::Spawned { generation, rank, pid },
                Err(error) => {
                    let message = format!("cannot fork rank {rank}: {error}");
                    HostMessage::Failed { generation, message }
                }
            },
            Err(message) => HostMessage::Failed { generation, message },
        };
        send_packet(channel, &answer, &[])?;
    }
    Ok(0)
}

/// The files that a rank is given.
pub(crate) struct RankFiles {
    /// Its channel to the launcher.
    pub(crate) channel: OwnedFd,
    /// Where its stdout and stderr go.
    pub(crate) log: OwnedFd,
    /// On rank 0 of a larger world: the listening socket of the rendezvous.
    pub(crate) rendezvous: Option<OwnedFd>,
}

impl RankFiles {
    fn new(attached: Vec<Attachment>, descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        if attached.len() != descriptors.len() {
            return Err(format!(
                "{} files were announced, {} came",
                attached.len(),
                descriptors.len()
            ));
        }
        let (mut channel, mut log, mut rendezvous) = (None, None, None);
        for (kind, descriptor) in attached.into_iter().zip(descriptors) {
            match kind {
                Attachment::Channel => channel = Some(descriptor),
                Attachment::Log => log = Some(descriptor),
                Attachment::Rendezvous => rendezvous = Some(descriptor),
            }
        }
        match (channel, log) {
            (Some(channel), Some(log)) => Ok(Self { channel, log, rendezvous }),
            _ => Err("a rank needs a channel and a log".to_owned()),
        }
    }
}

/// Forks twice, so that the rank becomes a child of the launcher (which is the nearest subreaper): the launcher
/// then sees its end itself, with the exit status, even if this host is gone. Returns the rank's process id.
///
/// `os.fork` is used for Python's own care of its state. This process has one thread, so nothing can be left
/// locked in the child; in the child this function never returns.
fn fork_rank(py: Python<'_>, rank: u64, files: RankFiles) -> PyResult<u32> {
    let os = py.import("os")?;
    let fork = || os.call_method0("fork")?.extract::<i32>();
    let (mut pid_reader, pid_writer) = io::pipe()?;
    let middle = fork()?;
    if middle == 0 {
        let child = fork();
        match child {
            Ok(0) => {
                let code = become_rank(py, rank, files);
                os.call_method1("_exit", (code,))?;
            }
            Ok(pid) => {
                let sent = File::from(OwnedFd::from(pid_writer)).write_all(&pid.to_ne_bytes());
                os.call_method1("_exit", (i32::from(sent.is_err()),))?;
            }
            Err(_) => {
                os.call_method1("_exit", (1,))?;
            }
        }
        return Err(PyRuntimeError::new_err("os._exit returned"));
    }
    drop((pid_writer, files));
    let mut bytes = [0; 4];
    let received = pid_reader.read_exact(&mut bytes);
    // The rank is the launcher's child only once the process between them has ended.
    if let Some(middle) = Pid::from_raw(middle) {
        waitpid(Some(middle), WaitOptions::empty()).map_err(io::Error::from)?;
    }
    received?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Everything that a forked rank does; returns its exit code.
fn become_rank(py: Python<'_>, rank: u64, files: RankFiles) -> i32 {
    let prepared = detach_from_host(&files.log).and_then(|()| adopt_launcher());
    if let Err(error) = prepared {
        complain(&format!("rank {rank} cannot start: {error}"));
        return 1;
    }
    let code = rank::run(py, rank, files);
    // os._exit follows: Python and torch are not torn down, since that can hang or crash after all work is done.
    for stream in ["stdout", "stderr"] {
        let _ = py.import("sys").and_then(|sys| sys.getattr(stream)?.call_method0("flush"));
    }
    code
}

/// Gives up the host's standard streams and process group: a Ctrl-C at the terminal is the launcher's affair.
fn detach_from_host(log: &OwnedFd) -> io::Result<()> {
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(log)?;
    rustix::stdio::dup2_stderr(log)?;
    rustix::process::setpgid(None, None)?;
    Ok(())
}

/// Waits until the launcher is the parent, and ties this process to it.
fn adopt_launcher() -> io::Result<()> {
    let launcher = launcher().map_err(|error| io::Error::other(error.to_string()))?;
    let deadline = Instant::now() + Duration::from_secs(2);
    while getppid() != Some(launcher) {
        if Instant::now() > deadline {
            return Err(io::Error::other("the launcher is gone"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bind_to_launcher().map_err(|error| io::Error::other(error.to_string()))
}

/// Writes a line to stderr, which is the rank's log.
pub(crate) fn complain(text: &str) {
    // Nothing can be done about a log that cannot be written.
    let _ = writeln!(io::stderr(), "{text}");
}
