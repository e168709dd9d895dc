//! Child processes that never outlive this one.
//!
//! Each child leads a process group of its own, so that a Ctrl-C in the terminal reaches titan-tpu alone and ending
//! the child ends what it started; and the kernel kills it when the thread that spawned it dies, so that `kill -9`
//! of titan-tpu leaves nothing running. That is why everything here spawns and waits in one thread.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How a wait for children ended. After anything but `Exited` they are dead.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All have exited; this is the status of the first that failed, or success.
    Exited(ExitStatus),
    /// One of them took longer than it may.
    TimedOut,
    /// The caller does not want it any more.
    Cancelled,
}

/// A running child; dropping it kills its process group.
pub(super) struct Running {
    child: Child,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts a child without input.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).process_group(0);
        die_with_parent(command);
        Ok(Self { child: command.spawn()?, status: None })
    }

    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        // The child has not been reaped, so its number still names its group. There is nothing to save: what it
        // wrote is thrown away, hence SIGKILL at once.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Asks the kernel to kill the child when the spawning thread ends.
#[allow(
    unsafe_code,
    reason = "only code between fork and exec can set the death signal of the child"
)]
fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let set = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the signal was set.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: the closure makes two system calls without allocating, locking or touching memory of the parent,
    // so it is safe after a fork of a process with other threads.
    unsafe { command.pre_exec(set) };
}

/// Waits for all children, calling `tick` between looks at them. Whatever the result, none is left running.
pub(super) fn wait(
    mut children: Vec<Running>,
    limit: Duration,
    cancelled: &AtomicBool,
    tick: &mut dyn FnMut(),
) -> io::Result<Ended> {
    let start = Instant::now();
    loop {
        let mut failed = None;
        let mut success = None;
        for child in &mut children {
            match child.poll()? {
                Some(status) if status.success() => success = Some(status),
                Some(status) => failed = failed.or(Some(status)),
                None => {}
            }
        }
        let running = children.iter().any(|child| child.status.is_none());
        if let Some(status) = failed.or(success.filter(|_| !running)) {
            return Ok(Ended::Exited(status));
        }
        if cancelled.load(Ordering::Relaxed) {
            return Ok(Ended::Cancelled);
        }
        let elapsed = start.elapsed();
        if elapsed >= limit {
            return Ok(Ended::TimedOut);
        }
        tick();
        // Short children are noticed soon, long ones cost nothing.
        std::thread::sleep(
            (elapsed / 8).clamp(Duration::from_millis(1), Duration::from_millis(50)),
        );
    }
}

/// What a short program said.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) ended: Ended,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs a short program. Its output goes to memory files, not pipes: nothing blocks if it writes much or if a
/// process that it left behind keeps its output open.
pub(super) fn capture(
    command: &mut Command,
    limit: Duration,
    cancelled: &AtomicBool,
) -> io::Result<Captured> {
    let stdout = memory_file()?;
    let stderr = memory_file()?;
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let running = Running::spawn(command)?;
    let ended = wait(vec![running], limit, cancelled, &mut || {})?;
    Ok(Captured { ended, stdout: text_of(stdout)?, stderr: text_of(stderr)? })
}

fn memory_file() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("titan-tpu-output", flags)?.into())
}

fn text_of(mut file: File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn never() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn output_and_status_are_returned() {
        let limit = Duration::from_secs(10);
        let captured =
            capture(&mut shell("echo out; echo err >&2; exit 3"), limit, &never()).unwrap();
        assert!(matches!(captured.ended, Ended::Exited(status) if status.code() == Some(3)));
        assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_slow_child_and_its_children_are_killed() {
        let script = "sleep 600 & echo $!; wait";
        let captured = capture(&mut shell(script), Duration::from_secs(1), &never()).unwrap();
        assert_eq!(captured.ended, Ended::TimedOut);
        let grandchild = captured.stdout.trim();
        assert!(!grandchild.is_empty());
        // It is not ours to wait for; the kernel takes a moment.
        let start = Instant::now();
        loop {
            let state = fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{state}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_cancelled_child_is_killed() {
        let captured =
            capture(&mut shell("sleep 60"), Duration::from_secs(60), &AtomicBool::new(true))
                .unwrap();
        assert_eq!(captured.ended, Ended::Cancelled);
    }

    #[test]
    fn the_first_failure_ends_the_others() {
        let children =
            ["sleep 60", "exit 4"].map(|script| Running::spawn(&mut shell(script)).unwrap());
        let ended = wait(children.into(), Duration::from_secs(60), &never(), &mut || {}).unwrap();
        assert!(matches!(ended, Ended::Exited(status) if status.code() == Some(4)));
    }
}
