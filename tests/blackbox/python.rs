//! The Python side: the engine's own tests, and what other tools read of a run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Bench, Running, floats, json_lines, repository};

/// Installing is bounded by the network.
const INSTALL: Duration = Duration::from_secs(1200);

/// The engine's tests compute for about five minutes on two quiet cores.
const ENGINE: Duration = Duration::from_secs(1500);

/// The tests of recipes take half a minute, most of it for imports.
const RECIPES: Duration = Duration::from_secs(300);

/// A Python with the engine's own packages and those of `tests/requirements.txt` on top, made once. Not to be called while
/// a bench is there.
pub(crate) fn python() -> PathBuf {
    let bench = Bench::new();
    let done = bench.start(&["setup", "--json"]).wait_for(INSTALL).expect(0);
    let lines = json_lines(&done.stdout);
    let base = lines.iter().find_map(|line| line["python"].as_str()).unwrap().to_owned();
    drop(bench);

    let requirements = repository().join("tests/requirements.txt");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let venv = folder.join("venv");
    let python = venv.join("bin/python");
    let ready = folder.join("ready");
    let wanted = format!("{base}\n{}", fs::read_to_string(&requirements).unwrap());
    if fs::read_to_string(&ready).is_ok_and(|text| text == wanted) {
        return python;
    }
    let _ = fs::remove_file(&ready);
    run(Command::new(&base).args(["-m", "venv", "--clear"]).arg(&venv), INSTALL);
    // The engine's packages are seen through a path file, so that torch is not installed twice.
    let site = |python: &Path| {
        let program = "import sysconfig; print(sysconfig.get_path('purelib'))";
        run(Command::new(python).args(["-I", "-c", program]), INSTALL).trim().to_owned()
    };
    fs::write(Path::new(&site(&python)).join("engine.pth"), site(Path::new(&base))).unwrap();
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "-r",
    ]);
    run(pip.arg(&requirements), INSTALL);
    fs::write(&ready, wanted).unwrap();
    python
}

fn run(command: &mut Command, limit: Duration) -> String {
    let mut owned = Command::new(command.get_program());
    owned.args(command.get_args()).current_dir(repository());
    owned.env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0").env("OMP_WAIT_POLICY", "passive");
    owned.env("PYTHONDONTWRITEBYTECODE", "1").env("TITAN_BINARY", env!("CARGO_BIN_EXE_titan-tpu"));
    Running::start(owned).wait_for(limit).expect(0).stdout
}

#[test]
fn the_engine_passes_its_own_tests() {
    let python = python();
    let _turn = Bench::new();
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/engine"]);
    let output = run(&mut pytest, ENGINE);
    assert!(output.contains(" passed"), "{output}");
}

/// Parameter counts against transformers and diffusers, the schema against a validator of its draft.
#[test]
fn recipes_agree_with_other_libraries() {
    let python = python();
    let _turn = Bench::new();
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/recipes"]);
    let output = run(&mut pytest, RECIPES);
    assert!(output.contains(" passed"), "{output}");
}

#[test]
fn the_python_code_is_clean() {
    let python = python();
    for arguments in [&["check"][..], &["format", "--check"]] {
        let mut ruff = Command::new(&python);
        ruff.args(["-m", "ruff"]).args(arguments).arg("--no-cache");
        run(ruff.args(["trainer/engine", "tests", "datasets"]), ENGINE);
    }
}

#[test]
fn tensorboard_reads_the_loss_curve() {
    let python = python();
    let bench = Bench::new();
    bench
        .run(&["train", "r.toml", "--run-dir", "out", "--set", "hardware.peak_tflops=1"])
        .expect(0);
    const READ: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()['scalars']}))
";
    let mut reader = Command::new(python);
    let output = run(reader.args(["-c", READ]).arg(bench.path("out/tensorboard")), ENGINE);
    let scalars: Value = serde_json::from_str(output.trim()).unwrap();
    let metrics = bench.metrics("out");
    for (tag, key) in [
        ("loss", "loss"),
        ("grad_norm", "grad_norm"),
        ("learning_rate", "lr"),
        ("throughput/tokens_per_second", "tokens_per_second"),
        ("throughput/tokens_per_second_per_device", "tokens_per_second_per_device"),
        ("throughput/mfu", "mfu"),
        ("time/step_seconds", "step_seconds"),
        ("time/data_seconds", "data_seconds"),
    ] {
        let points = scalars[tag].as_array().unwrap_or_else(|| panic!("no {tag} in {scalars}"));
        let steps: Vec<u64> = points.iter().map(|point| point[0].as_u64().unwrap()).collect();
        assert_eq!(steps, [1, 2, 3, 4, 5, 6], "{tag}");
        for (point, value) in points.iter().zip(floats(&metrics, key)) {
            assert_eq!(point[1].as_f64().unwrap() as f32, value as f32, "{tag}");
        }
    }
}
