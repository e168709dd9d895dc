//! Set-ups in processes of their own, which can be killed.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::super::{Context, Variables, prepare};
use super::Recorder;
use super::fake::Machine;

const ROLE: &str = "TITAN_TEST_ROLE";
/// What the helper prints when it has an environment.
const PREPARED: &str = "prepared: ";

/// Not a test by itself: the others run this test program again with the role set, to have a process to kill.
#[test]
fn helper() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let variables = Variables::from_process();
    let recorder = Recorder::default();
    let context =
        Context { variables: &variables, progress: &recorder, cancelled: &AtomicBool::new(false) };
    let env = prepare(&context, false).unwrap();
    let text = format!("{PREPARED}{}\n{}\n", env.python.display(), recorder.notes().join("\n"));
    fs::write(std::env::var_os(ROLE).unwrap(), text).unwrap();
}

struct Helper {
    child: Child,
    report: std::path::PathBuf,
}

impl Helper {
    fn start(machine: &Machine, name: &str) -> Self {
        let report = machine.path(name);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = std::any::type_name_of_val(&helper);
        let test = test.split_once("::").unwrap().1;
        command.args(["--exact", test, "--nocapture"]).env_clear().envs(machine.pairs());
        command.env(ROLE, &report).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        Self { child: command.spawn().unwrap(), report }
    }

    fn finish(mut self) -> String {
        let status = self.child.wait().unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(status.success(), "{stderr}");
        fs::read_to_string(&self.report).unwrap()
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is a zombie does nothing any more.
fn is_alive(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

fn pid_of_pip(file: &Path) -> String {
    let mut pid = String::new();
    wait_for("pip", || {
        pid = fs::read_to_string(file).unwrap_or_default().trim().to_owned();
        !pid.is_empty()
    });
    pid
}

#[test]
fn two_at_once_make_one_environment() {
    let machine = Machine::new().with("FAKE_SLOW", "5");
    let first = Helper::start(&machine, "first");
    wait_for("the first to begin", || machine.journal().contains("pip install"));
    let holder = first.child.id();
    let second = Helper::start(&machine, "second");
    let (first, second) = (first.finish(), second.finish());
    assert_eq!(first.lines().next(), second.lines().next());
    assert!(
        second.contains(&format!("titan-tpu with process number {holder} is setting up")),
        "{second}"
    );
    assert_eq!(machine.journal().matches("pip install").count(), 1);
}

#[test]
fn killing_it_stops_pip_and_the_next_start_repairs() {
    let mut machine = Machine::new();
    let pid_file = machine.path("pip.pid");
    machine.set("FAKE_PIP_PID", &pid_file.display().to_string());
    machine.set("FAKE_SLOW", "600");
    let mut helper = Helper::start(&machine, "killed");
    let pip = pid_of_pip(&pid_file);
    helper.child.kill().unwrap();
    helper.child.wait().unwrap();
    wait_for("pip to die", || !is_alive(&pip));
    assert_eq!(machine.store(), ["KEY-RANDOM", "KEY.lock"]);

    machine.set("FAKE_SLOW", "");
    machine.prepare().unwrap();
    assert_eq!(machine.store(), ["KEY", "KEY-RANDOM", "KEY.lock"]);
}

#[test]
fn killing_pip_is_reported_and_the_next_start_repairs() {
    let mut machine = Machine::new();
    let pid_file = machine.path("pip.pid");
    machine.set("FAKE_PIP_PID", &pid_file.display().to_string());
    machine.set("FAKE_SLOW", "600");
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let pip = pid_of_pip(&pid_file).parse::<i32>().unwrap();
            let pip = rustix::process::Pid::from_raw(pip).unwrap();
            rustix::process::kill_process(pip, rustix::process::Signal::KILL).unwrap();
        });
        machine.prepare().unwrap_err()
    });
    assert!(error.to_string().contains("killed from outside (signal: 9"), "{error}");
    machine.set("FAKE_SLOW", "");
    machine.prepare().unwrap();
    assert_eq!(machine.store(), ["KEY", "KEY-RANDOM", "KEY.lock"]);
}

#[test]
fn whoever_waits_takes_over_from_a_killed_builder() {
    let mut machine = Machine::new().with("FAKE_SLOW", "600");
    let mut first = Helper::start(&machine, "first");
    wait_for("the first to begin", || machine.journal().contains("pip install"));
    machine.set("FAKE_SLOW", "");
    let second = Helper::start(&machine, "second");
    std::thread::sleep(Duration::from_millis(300));
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(second.finish().starts_with(PREPARED));
    assert_eq!(machine.store(), ["KEY", "KEY-RANDOM", "KEY.lock"]);
}
