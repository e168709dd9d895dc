//! Making, finding, refusing and repairing environments.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::error::Cause;
use super::super::{Class, Kind, Request, SetupError, State, doctor};
use super::fake::{Machine, write_script};

const READY: [&str; 3] = ["KEY", "KEY-RANDOM", "KEY.lock"];

#[test]
fn an_environment_is_made_once_and_then_found() {
    let machine = Machine::new();
    let made = machine.prepare().unwrap();
    assert!(made.python.starts_with(machine.path("cache/venvs")) && made.python.exists());
    assert_eq!(
        (made.kind, made.isolated, made.torch_version.as_str()),
        (Kind::Titan, true, "2.15.0")
    );
    assert_eq!(machine.store(), READY);
    let expected = [
        "looking for Python",
        "creating the Python environment",
        "downloading packages",
        "installing packages",
        "compiling packages",
        "checking that torch works",
        "writing to disk",
    ];
    let phases = machine.recorder.phases();
    // The log of a fast pip may be read only once, before it says that it installs.
    assert_eq!(phases.iter().filter(|p| *p != "installing packages").count(), expected.len() - 1);
    assert!(phases.iter().all(|phase| expected.contains(&phase.as_str())), "{phases:?}");

    let found = machine.prepare().unwrap();
    assert_eq!(found.python, made.python);
    assert_eq!(machine.recorder.phases(), phases);
    assert_eq!(machine.journal().matches("pip install").count(), 1);
}

#[test]
fn the_user_sees_which_package_is_fetched() {
    let machine = Machine::new().with("FAKE_SLOW", "6");
    machine.prepare().unwrap();
    let updates = machine.recorder.updates();
    let shown = updates.iter().any(|(message, fraction)| {
        message.starts_with("torch 2.15.0 (539.1 MB) [1 of ") && fraction.is_some()
    });
    assert!(shown, "{updates:?}");
}

#[test]
fn pip_gets_every_package_pinned_and_no_hostile_setting() {
    let machine = Machine::new()
        .with("PIP_TARGET", "/elsewhere")
        .with("PIP_USER", "1")
        .with("PIP_REQUIRE_VIRTUALENV", "1")
        .with("PIP_INDEX_URL", "https://mirror/simple");
    machine.prepare().unwrap();
    let journal = machine.journal();
    assert!(journal.contains(" --no-deps ") && journal.contains(" --only-binary=:all: "));
    assert!(journal.contains(" torch==2.15.0 ") && journal.contains(" nvidia-nvtx=="));
    assert!(journal.contains("PIP_INDEX_URL=https://mirror/simple"));
    assert!(
        !journal.contains("/elsewhere")
            && !journal.contains("PIP_USER")
            && !journal.contains("PIP_REQUIRE")
    );
}

#[test]
fn a_failed_installation_leaves_only_its_log() {
    let offline = "ERROR: Could not find a version\nWARNING: Retrying after 'NewConnectionError'\n\
                   ERROR: No matching distribution found for torch==2.15.0";
    let mut machine = Machine::new().with("FAKE_PIP_ERROR", offline);
    let error = machine.prepare().unwrap_err();
    let SetupError::Step(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.cause, Cause::Offline);
    assert_eq!(machine.store(), ["KEY.failed.log", "KEY.lock"]);
    let log = fs::read_to_string(failure.log.as_ref().unwrap()).unwrap();
    assert!(
        log.contains("NewConnectionError") && error.to_string().contains("| ERROR: No matching")
    );

    machine.set("FAKE_PIP_ERROR", "OSError: [Errno 28] No space left on device");
    assert_eq!(machine.prepare().unwrap_err().class(), Class::NoSpace);

    machine.set("FAKE_PIP_ERROR", "");
    machine.set("FAKE_BROKEN", "1");
    let error = machine.prepare().unwrap_err().to_string();
    assert!(
        error.starts_with("importing torch failed") && error.contains("libcudart.so.13"),
        "{error}"
    );

    machine.set("FAKE_BROKEN", "");
    machine.prepare().unwrap();
    assert_eq!(machine.store(), READY);
}

#[test]
fn a_torch_that_was_deleted_is_put_back() {
    let machine = Machine::new();
    let first = machine.prepare().unwrap().python;
    let torch = first.ancestors().nth(2).unwrap().join("lib/python3.11/site-packages/torch/lib");
    fs::remove_dir_all(torch).unwrap();
    let second = machine.prepare().unwrap().python;
    assert!(!first.exists() && second.exists());
    assert_eq!(machine.store(), READY);
    assert!(
        machine.recorder.notes()[1].contains("is damaged: torch/lib"),
        "{:?}",
        machine.recorder.notes()
    );
}

#[test]
fn an_interpreter_that_vanished_is_replaced() {
    let machine = Machine::new();
    let first = machine.prepare().unwrap().python;
    fs::remove_file(machine.path("bin/python3")).unwrap();
    let machine = machine.alone();
    machine.add_python("bin/python3.11");
    let second = machine.prepare().unwrap().python;
    assert!(!first.exists() && second.exists());
    let note = &machine.recorder.notes()[1];
    assert!(note.contains("bin/python3 is gone; a new one is made; `rm -r "), "{note}");
}

#[test]
fn an_updated_interpreter_is_asked_once_whether_it_still_works() {
    let machine = Machine::new();
    let first = machine.prepare().unwrap().python;
    let script = machine.path("bin/python3");
    let text = fs::read_to_string(&script).unwrap();
    write_script(&script, &format!("{text}# updated\n"));
    assert_eq!(machine.prepare().unwrap().python, first);
    // The answer is remembered: now the interpreter is not run at all.
    write_script_keeping_time(&script, &text.replace("#!/bin/sh", "#!/bin/no"));
    assert_eq!(machine.prepare().unwrap().python, first);
    assert_eq!(machine.journal().matches("pip install").count(), 1);
}

/// Same size and time, as if nothing had happened.
fn write_script_keeping_time(path: &std::path::Path, text: &str) {
    let before = fs::metadata(path).unwrap();
    let padding = "#".repeat(usize::try_from(before.len()).unwrap() - text.len() - 1);
    write_script(path, &format!("{text}{padding}\n"));
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(before.modified().unwrap())
        .unwrap();
}

#[test]
fn rebuilding_replaces_a_ready_environment() {
    let machine = Machine::new();
    let first = machine.prepare().unwrap();
    let second = machine.prepare_with(true).unwrap();
    assert_ne!(first.python, second.python);
    assert!(first.python.exists(), "it is in use");
    drop(first);
    let third = machine.prepare_with(true).unwrap();
    drop(second);
    assert!(third.python.exists());
}

#[test]
fn cpu_wheels_come_from_their_own_index_or_not_at_all() {
    let mut machine = Machine::new().with("TITAN_TORCH_INDEX", "cpu");
    machine.prepare().unwrap();
    let journal = machine.journal();
    assert_eq!(journal.matches("pip install").count(), 2);
    assert!(journal.contains("whl/cpu") && !journal.contains("nvidia"));
    // What was asked for by name is not replaced by something else.
    machine.set("TITAN_TORCH_INDEX", "https://me:secret@mirror/cpu");
    machine.set("FAKE_NO_CPU", "1");
    let error = machine.prepare().unwrap_err().to_string();
    assert!(error.starts_with("installing torch failed") && !error.contains("secret"), "{error}");
    // An environment that is there is used without asking any index.
    machine.set("TITAN_TORCH_INDEX", "");
    assert_eq!(machine.prepare().unwrap().kind, Kind::Titan);
}

#[test]
fn automatic_choice_falls_back_to_the_ordinary_index() {
    // A proxy stands for a network in which something answers but does not have the wheels.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let machine = Machine::new()
        .with("TITAN_TORCH_INDEX", "")
        .with("https_proxy", &proxy)
        .with("FAKE_NO_CPU", "1");
    machine.prepare().unwrap();
    let notes = machine.recorder.notes();
    assert!(notes[0].starts_with("no CPU wheels (installing torch failed"), "{notes:?}");
    assert!(machine.journal().contains("nvidia"));
}

#[test]
fn a_full_disk_is_noticed_before_anything_is_written() {
    let machine = Machine::new().with("FAKE_FREE_BYTES", "5000000000");
    let error = machine.prepare().unwrap_err();
    assert_eq!(error.class(), Class::NoSpace);
    assert!(error.to_string().ends_with(" GB needed, 5.0 GB free"), "{error}");
    assert_eq!(machine.store(), ["KEY.lock"]);
    // Enough for the environment, not for pip to keep the wheels besides.
    let machine = Machine::new().with("FAKE_FREE_BYTES", "9500000000").with("HOME", "/h");
    machine.prepare().unwrap();
    assert!(machine.journal().contains("PIP_NO_CACHE_DIR=1"));
}

#[test]
fn an_unknown_index_is_refused() {
    let machine = Machine::new().with("TITAN_TORCH_INDEX", "gpu");
    assert_eq!(machine.prepare().unwrap_err().class(), Class::Usage);
}

#[test]
fn cancelling_removes_what_was_begun() {
    let machine = Machine::new().with("FAKE_SLOW", "600");
    let start = Instant::now();
    let journal = machine.path("journal");
    let error = std::thread::scope(|scope| {
        let cancelled = &machine.cancelled;
        scope.spawn(move || {
            while !journal.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            cancelled.store(true, Ordering::Relaxed);
        });
        // The machine records in this thread only.
        machine.prepare().unwrap_err()
    });
    assert_eq!(error.class(), Class::Cancelled);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(machine.store(), ["KEY.lock"]);
}

#[test]
fn a_cache_that_cannot_be_written_to_is_named() {
    let machine = Machine::new();
    let file = machine.path("file");
    fs::write(&file, "").unwrap();
    let machine = machine.with("TITAN_CACHE_DIR", &file.join("cache").display().to_string());
    let error = machine.prepare().unwrap_err();
    assert!(error.to_string().starts_with("cannot create "), "{error}");
    assert_eq!(error.class(), Class::Environment);
}

#[test]
fn a_ready_environment_works_from_a_read_only_cache() {
    let machine = Machine::new();
    let made = machine.prepare().unwrap();
    let venvs = machine.path("cache/venvs");
    fs::set_permissions(&venvs, fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(machine.prepare().unwrap().python, made.python);
    fs::set_permissions(&venvs, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_doctor_changes_nothing_and_says_what_to_do() {
    let machine = Machine::new();
    let files: [(&str, &[u8]); 1] = [("titan/__init__.py", b"")];
    let variables = machine.variables();
    let examine = |deep| {
        let working_dir = machine.path("");
        let cancelled = &machine.cancelled;
        let request = Request {
            variables: &variables,
            files: &files,
            working_dir: &working_dir,
            deep,
            cancelled,
        };
        doctor(&request).unwrap()
    };
    let line = |report: &doctor::DoctorReport, name: &str| {
        report
            .checks
            .iter()
            .find(|check| check.name == name)
            .cloned()
            .unwrap_or_else(|| panic!("no {name}"))
    };

    let before = examine(false);
    let environment = line(&before, "environment");
    assert_eq!((environment.state, environment.detail.as_str()), (State::Warn, "not there yet"));
    assert!(environment.fix.unwrap().starts_with("titan-tpu setup"));
    assert!(!machine.path("cache").exists());

    let env = machine.prepare().unwrap();
    let after = examine(true);
    assert!(line(&after, "environment").detail.starts_with("ready: plain"));
    assert!(line(&after, "import torch").detail.starts_with("works"));
    assert!(line(&after, "python").detail.ends_with("(made by titan-tpu)"));

    fs::remove_dir_all(env.python.ancestors().nth(2).unwrap().join("lib")).unwrap();
    assert!(line(&examine(false), "environment").detail.starts_with("damaged: "));

    let wrong = machine.with("TITAN_PYTHON", "/nowhere").with("CXX", "/nowhere/c++");
    let variables = wrong.variables();
    let working_dir = wrong.path("");
    let cancelled = &wrong.cancelled;
    let report = doctor(&Request {
        variables: &variables,
        files: &files,
        working_dir: &working_dir,
        deep: false,
        cancelled,
    })
    .unwrap();
    assert_eq!((report.state, line(&report, "python").state), (State::Missing, State::Missing));
    // Runs that are not compiled need no compiler.
    let compiler = line(&report, "C++ compiler");
    assert_eq!(compiler.state, State::Warn);
    assert!(
        compiler.detail.ends_with("cannot be found; only needed for [compile]"),
        "{compiler:?}"
    );
    assert!(compiler.fix.unwrap().contains("apt install g++"));
}
