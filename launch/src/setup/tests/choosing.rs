//! Which interpreter is taken, and what is said about those that are not.

use std::fs;

use super::super::interpreter;
use super::super::{Class, Kind, Variables};
use super::fake::{Machine, write_script};

#[test]
fn interpreters_that_cannot_carry_it_are_named_with_the_reason() {
    let cases = [
        (
            "FAKE_SHIM",
            "1",
            "does not run: pyenv: python3: command not found",
            "install Python 3.11 to 3.14",
        ),
        (
            "FAKE_VERSION",
            "3,10,13",
            "is Python 3.10.13, 3.11 is the oldest supported",
            "install Python 3.11",
        ),
        (
            "FAKE_ENSUREPIP",
            "false",
            "is Python 3.11 without the modules venv and ensurepip",
            "apt install python3.11-venv",
        ),
    ];
    for (name, value, reason, advice) in cases {
        let machine = Machine::new().alone().with(name, value);
        let error = machine.prepare().unwrap_err();
        assert_eq!(error.class(), Class::Environment);
        let expected = format!("{}: {reason}", machine.path("bin/python3").display());
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(error.hint().unwrap().contains(advice), "{:?}", error.hint());
        assert!(machine.store().is_empty(), "nothing is written");
    }
}

#[test]
fn a_later_interpreter_is_taken_if_the_first_does_not_run() {
    let machine = Machine::new().alone();
    write_script(&machine.path("bin/python3"), "#!/bin/sh\necho broken >&2\nexit 127\n");
    let good = machine.add_python("bin/python3.12");
    let env = machine.prepare().unwrap();
    assert_eq!(env.python.canonicalize().unwrap(), good);
}

#[test]
fn a_wrong_titan_python_is_an_error_and_nothing_else_is_tried() {
    let machine = Machine::new();
    let plain_file = machine.path("file");
    fs::write(&plain_file, "").unwrap();
    machine.add_python("venv/bin/python");
    let (file, venv) =
        (plain_file.display().to_string(), machine.path("venv").display().to_string());
    let inside = format!("set it to {venv}/bin/python");
    let cases = [
        ("/nowhere/python", "there is no such file", "give the path of an interpreter"),
        ("nowhere-python", "there is no such program in PATH", "give the path of an interpreter"),
        (&file, "that is not executable", "give the path of an interpreter"),
        (&venv, "that is a folder", &inside),
        ("python3", "that Python has no torch", "-m pip install torch==2.15.0"),
        ("/bin/false", "but it does not run: exit status: 1", "CPython of version 3.11 or newer"),
        ("/bin/true", "but it does not run: it is no Python interpreter", "CPython"),
    ];
    for (value, problem, advice) in cases {
        let machine = Machine::new().with("TITAN_PYTHON", value);
        let error = machine.prepare().unwrap_err();
        assert_eq!(error.class(), Class::Usage);
        assert_eq!(error.to_string(), format!("TITAN_PYTHON is `{value}`, {problem}"));
        assert!(error.hint().unwrap().contains(advice), "{:?}", error.hint());
        assert!(machine.store().is_empty());
    }
    let old = Machine::new().with("TITAN_PYTHON", "python3").with("FAKE_VERSION", "3,10,1");
    assert!(old.prepare().unwrap_err().to_string().ends_with("3.11 is the oldest supported"));
}

#[test]
fn titan_python_with_torch_is_used_as_it_is() {
    let machine = Machine::new().with("TITAN_PYTHON", "python3").with("FAKE_TORCH", "2.14.0");
    let env = machine.prepare().unwrap();
    assert_eq!(env.python, machine.path("bin/python3"));
    assert_eq!(
        (env.kind, env.isolated, env.torch_version.as_str()),
        (Kind::Variable, false, "2.14.0")
    );
    assert_eq!(machine.recorder.notes().len(), 1, "another version of torch is worth a warning");
}

#[test]
fn an_active_environment_is_used_only_with_torch() {
    let machine = Machine::new();
    let python = machine.add_python("active/bin/python");
    let machine = {
        let folder = machine.path("active").display().to_string();
        machine.with("VIRTUAL_ENV", &folder)
    };
    assert_eq!(machine.prepare().unwrap().kind, Kind::Titan);
    fs::create_dir_all(machine.path("active/lib/python3.11/site-packages/torch")).unwrap();
    let env = machine.prepare().unwrap();
    assert_eq!((env.kind, env.python), (Kind::ActiveVenv, python));
    assert!(
        machine
            .recorder
            .notes()
            .iter()
            .all(|note| note.starts_with("the Python environment is ready"))
    );
}

#[test]
fn the_interpreters_of_this_machine_answer() {
    let variables = Variables::from_process();
    let (base, rejected) = interpreter::find_base(&variables, &false.into()).unwrap();
    assert!(
        base.is_some() || rejected.iter().all(|candidate| !candidate.unfit.to_string().is_empty())
    );
    if let Some(base) = base {
        assert!(base.base.is_absolute() && base.version >= [3, 11, 0], "{base:?}");
    }
}
