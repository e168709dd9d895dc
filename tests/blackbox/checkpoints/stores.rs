//! Checkpoints in object stores: Google's against a store in this process that makes mistakes, Amazon's against moto.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use titan_checkpoint::{Place, Prefix, conformance};
use titan_objects::fake::{Fake, Fault, On};
use titan_objects::{Address, Patience, Store, Variables};

use super::{LIMIT, Saved, events};
use crate::python::python;
use crate::support::{Done, Running, wait_for_step, wait_until};

/// Runs whose checkpoints are in a store.
struct Stored {
    saved: Saved,
    /// What the store is found by.
    variables: Vec<(&'static str, String)>,
    directory: String,
}

impl Stored {
    fn new(variables: Vec<(&'static str, String)>, address: &str, checkpoint: &str) -> Self {
        let saved = Saved::with(checkpoint);
        Self { saved, variables, directory: address.to_owned() }
    }

    fn of(fake: &Fake, checkpoint: &str) -> Self {
        Self::new(fake.variables().to_vec(), "gs://bucket/runs/a", checkpoint)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.saved.bench.command(arguments);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    fn run(&self, arguments: &[&str]) -> Done {
        Running::start(self.command(arguments)).wait()
    }

    fn start(&self, out: &str, more: &[&str]) -> Running {
        let setting = format!("checkpoint.directory={:?}", self.directory);
        let train = ["train", "r.toml", "--json", "--run-dir", out, "--set", &setting];
        Running::start(self.command(&[&train[..], more].concat()))
    }

    fn train(&self, out: &str, more: &[&str]) -> Done {
        self.start(out, more).wait_for(LIMIT)
    }

    /// The store itself.
    fn place(&self) -> Place {
        let variables: Vec<(&str, &str)> =
            self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let address = Address::parse(&self.directory).unwrap().unwrap();
        let variables = Variables::of(&variables);
        let store = Store::new(address.bucket(), &variables, Patience::STANDARD).unwrap();
        Place::Objects(Prefix::of(&std::sync::Arc::new(store), &address))
    }

    /// The tensors of a checkpoint, by rank.
    fn tensors(&self, step: u64) -> BTreeMap<String, Vec<u8>> {
        let place = self.place().join(&format!("step-{step:08}"));
        let checkpoint = titan_checkpoint::open(&place).unwrap();
        let files = checkpoint.manifest().files.iter();
        files
            .map(|file| {
                let rank = file.name.split('.').next().unwrap();
                (format!("{rank}.safetensors"), place.read(&file.name).unwrap())
            })
            .collect()
    }

    /// What a run that saves to the store and is killed now and then ends with is what one with a folder that is not
    /// ends with.
    fn is_as_a_folder(&self, kills: u32) {
        let more = ["--set", "training.steps=40"];
        self.saved.train("whole", &more).expect(0);
        for kill in 0..kills {
            let run = self.start("out", &more);
            thread::sleep(Duration::from_millis(2500 + 700 * u64::from(kill)));
            run.signal("KILL");
            run.wait_for(LIMIT);
        }
        let done = self.train("out", &more).expect(0);
        assert_eq!(events(&done, "end")[0]["final_step"], 40);
        assert_eq!(self.saved.losses("out"), self.saved.losses("whole"));
        assert!(self.tensors(40) == self.saved.tensors("whole", 40), "other tensors");
        let steps = |arguments: &[&str]| -> Vec<u64> {
            let done = self.run(arguments).expect(0);
            let all: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
            assert!(all.iter().all(|line| line["committed"] == true), "{}", done.stdout);
            all.iter().map(|line| line["step"].as_u64().unwrap()).collect()
        };
        // Of a run whose steps were done again, those of the past are set aside or removed.
        assert_eq!(steps(&["checkpoint", "ls", "out", "--json"]), [36, 38, 40]);
        assert_eq!(steps(&["checkpoint", "ls", &self.directory, "--json"]), [36, 38, 40]);
        self.run(&["checkpoint", "verify", &self.directory]).expect(0);
        self.run(&["checkpoint", "verify", "out"]).expect(0);
        let last = format!("{}/step-00000040", self.directory);
        let shown = self.run(&["checkpoint", "show", &last]).expect(0);
        assert!(shown.stdout.contains("step 40 of the run out-"), "{}", shown.stdout);
        self.train("out", &more).expect(0);
    }
}

/// Amazon's store as moto has it, which ends with the test.
struct Moto {
    process: Child,
    port: u16,
}

impl Moto {
    fn start() -> Self {
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let mut command = Command::new(python());
        // It must not outlive a test that is killed.
        let serve = "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); \
                     from moto.server import main; main(sys.argv[1:])";
        command.args(["-c", serve, "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let moto = Self { process, port };
        moto.make_bucket();
        moto
    }

    fn make_bucket(&self) {
        use std::io::{Read, Write};
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.port)) {
                let request = "PUT /bucket HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.contains(" 200 "), "{answer}");
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("moto does not answer");
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |text: &str| text.to_owned();
        vec![
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", text("true")),
            ("AWS_ACCESS_KEY_ID", text("test")),
            ("AWS_SECRET_ACCESS_KEY", text("test")),
            ("AWS_REGION", text("us-east-1")),
        ]
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn runs_that_save_to_google_lose_what_a_kill_interrupts() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 2");
    stored.is_as_a_folder(3);
    assert_eq!(fake.uploads(), 0);
    // Nothing is left of what kills have interrupted.
    let is_known = |key: &String| {
        ["36", "38", "40"].iter().any(|step| key.contains(&format!("/step-000000{step}/")))
            || key.contains("/manifest.superseded-")
            || fake.keys().iter().any(|other| {
                other.contains("/manifest.superseded-")
                    && other.rsplit_once('/').unwrap().0 == key.rsplit_once('/').unwrap().0
            })
    };
    let keys = fake.keys();
    assert!(keys.iter().all(is_known), "{keys:?}");
}

#[test]
fn amazon_s_store_keeps_the_laws_and_what_runs_save() {
    let moto = Moto::start();
    let stored = Stored::new(moto.variables(), "s3://bucket/laws", "interval_steps = 2");
    conformance::check(&stored.place());
    drop(stored);
    Stored::new(moto.variables(), "s3://bucket/runs/a", "interval_steps = 2").is_as_a_folder(1);
}

#[test]
fn a_store_that_stumbles_ends_a_run() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 2");
    for (on, fault, times) in [
        (On::Put, Fault::Status(503, ""), 3),
        (On::Put, Fault::LoseAnswer, 3),
        (On::Put, Fault::ResetAfter(1000), 3),
        (On::Get, Fault::Status(500, ""), 2),
        (On::Get, Fault::CutAfter(100), 2),
        (On::List, Fault::Status(503, ""), 1),
    ] {
        fake.fault(on, fault, times);
    }
    let done = stored.train("out", &[]).expect(0);
    let steps: Vec<u64> =
        events(&done, "checkpoint").iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [2, 4, 6]);
    fake.heal();
    stored.run(&["checkpoint", "verify", "out"]).expect(0);
}

#[test]
fn a_store_that_cannot_be_used_is_found_hours_in() {
    let fake = Fake::start();
    let mut stored = Stored::of(&fake, "interval_steps = 2");
    let began = Instant::now();
    let denied = Fault::Status(403, "<Error><Code>AccessDenied</Code></Error>");
    fake.fault(On::Any, denied.clone(), 1000);
    let done = stored.train("out", &[]).expect(2);
    done.says(&["gs://bucket/runs/a", "access denied (AccessDenied)"]);
    fake.heal();
    fake.fault(On::Put, denied, 1000);
    let done = stored.train("out", &[]).expect(2);
    done.says(&["gs://bucket/runs/a/.probe-", "access denied (AccessDenied)"]);
    fake.heal();
    stored.directory = "gs://another/runs".to_owned();
    let done = stored.train("out", &[]).expect(2);
    done.says(&["there is no bucket `another`"]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(!stored.saved.path("out").exists(), "a run directory was made");
}

#[test]
fn a_store_that_closes_in_the_middle_costs_the_checkpoints_that_are_there() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 2");
    let more = ["--set", "training.steps=100000"];
    let run = stored.start("out", &more);
    wait_for_step(&stored.saved.bench, "out", 5);
    fake.fault(On::Put, Fault::Status(403, "<Error><Code>Expired</Code></Error>"), 100_000);
    let done = run.wait_for(LIMIT).expect(6);
    // Of a rank's file or of the manifest, whichever was next.
    let done = done.says(&["gs://bucket/runs/a/step-", "access denied (Expired)"]);
    fake.heal();
    stored.run(&["checkpoint", "verify", "out"]).expect(0);
    let last = events(&done, "checkpoint").last().unwrap()["step"].as_u64().unwrap();
    let steps = format!("training.steps={}", last + 2);
    let done = stored.train("out", &["--set", &steps]).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], last);
}

#[test]
fn a_damaged_object_is_loaded() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 2");
    stored.train("out", &[]).expect(0);
    let losses = stored.saved.losses("out");
    let key = fake.keys().into_iter().find(|key| key.contains("step-00000006/rank-00001")).unwrap();
    let mut content = fake.get(&key).unwrap();
    let last = content.len() - 1;
    content[last] ^= 1;
    fake.put(&key, content);
    let done = stored.run(&["checkpoint", "verify", "out"]).expect(5);
    assert!(done.stdout.contains(&key), "{}", done.stdout);
    let done = stored.train("out", &[]).expect(0);
    let resume = &events(&done, "resume")[0];
    assert_eq!(resume["step"], 4);
    assert_eq!(resume["skipped"][0]["step"], 6);
    assert_eq!(stored.saved.losses("out"), losses);
    stored.run(&["checkpoint", "verify", "out"]).expect(0);
}

#[test]
fn a_save_that_is_under_way_at_the_end_is_lost() {
    let slow = || {
        let fake = Fake::start();
        fake.fault(On::Put, Fault::Slow(Duration::from_secs(3)), 1000);
        fake
    };
    // All steps are done long before the last save is.
    let fake = slow();
    let stored = Stored::of(&fake, "interval_steps = 1000");
    let done = stored.train("out", &[]).expect(0);
    assert_eq!(events(&done, "checkpoint")[0]["step"], 6);
    fake.heal();
    stored.run(&["checkpoint", "verify", "out"]).expect(0);
    drop(stored);

    // A stop comes while a save is under way, and again while that of the stop is.
    let fake = slow();
    let stored = Stored::of(&fake, "interval_steps = 3");
    let run = stored.start("out", &["--set", "training.steps=100000"]);
    wait_for_step(&stored.saved.bench, "out", 4);
    run.signal("TERM");
    let done = run.wait_for(LIMIT).expect(75);
    let last = events(&done, "end")[0]["final_step"].as_u64().unwrap();
    let saved: Vec<u64> =
        events(&done, "checkpoint").iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(saved.first(), Some(&3));
    assert_eq!(saved.last(), Some(&last));
    drop(stored);

    // A run that fails while a save is under way keeps it.
    let fake = slow();
    let stored = Stored::of(&fake, "interval_steps = 2");
    let more = ["--set", "optimizer.learning_rate=1e30", "--set", "training.steps=50"];
    let done = stored.train("out", &more).expect(4);
    for event in events(&done, "checkpoint") {
        let path = event["path"].as_str().unwrap();
        stored.run(&["checkpoint", "verify", path]).expect(0);
    }
}

#[test]
fn a_second_save_of_a_step_mixes_two_checkpoints() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 2");
    stored.saved.train("whole", &[]).expect(0);
    let four = ["--devices", "4", "--set", "training.steps=4"];
    stored.train("out", &four).expect(0);
    let place = stored.place().join("step-00000004");
    assert_eq!(titan_checkpoint::open(&place).unwrap().manifest().files.len(), 4);
    // Back to step 2, on fewer devices, and killed when one of two files of step 4 is there.
    fake.fault(On::Put, Fault::Slow(Duration::from_millis(200)), 3);
    fake.fault(On::Put, Fault::Slow(Duration::from_secs(30)), 1);
    let run = stored.start("out", &["--devices", "2", "--resume", "2"]);
    let is_half = || {
        let keys = fake.keys();
        keys.iter().filter(|key| key.contains("step-00000004/rank-") && key.contains("-2.")).count()
            > 0
    };
    wait_until(LIMIT, || is_half().then_some(()));
    run.signal("KILL");
    run.wait_for(LIMIT);
    fake.heal();
    let done = stored.run(&["checkpoint", "ls", "out", "--json"]).expect(0);
    let all: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    let steps: Vec<u64> = all.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [2]);
    stored.run(&["checkpoint", "verify", "out"]).expect(0);
    stored.train("out", &["--devices", "2"]).expect(0);
    // Two of the six steps were on another mesh.
    let (ours, whole) = (stored.saved.losses("out"), stored.saved.losses("whole"));
    assert!(ours.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5), "{ours:?} {whole:?}");
    assert_eq!(titan_checkpoint::open(&place).unwrap().manifest().files.len(), 2);
    stored.run(&["checkpoint", "verify", "out"]).expect(0);
}

#[test]
fn a_store_that_hangs_holds_a_run_forever() {
    for signals in [0, 2] {
        let fake = Fake::start();
        let stored = Stored::of(&fake, "interval_steps = 5\ntimeout_seconds = 3");
        let settings =
            ["training.steps=100000", "elastic.grace_seconds=3", "elastic.max_restarts=0"];
        let more = settings.map(|setting| ["--set", setting]).concat();
        let run = stored.start("out", &more);
        wait_until(LIMIT, || fake.get("runs/a/step-00000005/manifest.json"));
        fake.fault(On::Put, Fault::Slow(Duration::from_secs(300)), 100_000);
        thread::sleep(Duration::from_millis(500));
        for _ in 0..signals {
            run.signal("TERM");
            thread::sleep(Duration::from_millis(500));
        }
        let done = run.wait_for(Duration::from_secs(60));
        let codes: &[i32] = if signals == 0 { &[6] } else { &[6, 75] };
        assert!(codes.contains(&done.code.unwrap()), "{:?}\n{}", done.code, done.stderr);
        if signals == 0 {
            assert!(done.stderr.contains("checkpoint.timeout_seconds"), "{}", done.stderr);
        }
    }
}

#[test]
fn a_store_that_is_away_for_a_while_ends_a_run() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 50\ntimeout_seconds = 3");
    let run = stored.start("out", &["--set", "training.steps=400"]);
    wait_until(LIMIT, || fake.get("runs/a/step-00000050/manifest.json"));
    fake.fault(On::Put, Fault::Slow(Duration::from_secs(300)), 100_000);
    let ledger = stored.saved.path("out/ledger.jsonl");
    let has_failed =
        || std::fs::read_to_string(&ledger).is_ok_and(|text| text.contains("\"restart\""));
    wait_until(LIMIT, || has_failed().then_some(()));
    fake.heal();
    let done =
        run.wait().expect(0).says(&["was not written to gs://bucket/runs/a within 3 seconds"]);
    assert_eq!(events(&done, "restart").len(), 1);
    assert!(fake.get("runs/a/step-00000400/manifest.json").is_some());
}

#[test]
fn a_store_that_does_not_answer_at_the_start_is_taken_for_a_damaged_checkpoint() {
    let fake = Fake::start();
    let stored = Stored::of(&fake, "interval_steps = 2");
    stored.train("out", &[]).expect(0);
    let denied = Fault::Status(403, "<Error><Code>Expired</Code></Error>");
    let manifest = "runs/a/step-00000006/manifest.json";
    let content = fake.get(manifest).unwrap();
    fake.fault(On::Get, denied, 1000);
    let more = ["--set", "training.steps=8"];
    stored.train("out", &more).expect(2).says(&["access denied (Expired)"]);
    stored.run(&["checkpoint", "verify", "out"]).expect(2).says(&["access denied (Expired)"]);
    fake.heal();
    assert_eq!(fake.get(manifest), Some(content));
    let done = stored.train("out", &more).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 6);
}
