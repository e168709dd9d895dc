//! What is simulated, from a recipe.

use std::time::Duration;

use titan_control::simulator::{Faults, Interval, Model, Saves, Scenario};
use titan_control::{Budgets, Limits, Policy, Settings};
use titan_parallelism::Plan;
use titan_recipes::tables::checkpoint::{self, Checkpoint};
use titan_recipes::{Loaded, usable_slices};
use titan_trainer::save_plan::best_interval;

use super::args::{PolicyArg, SimulateArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::train::keeping::CHIP_MTBF_SECONDS;
use crate::words::{grouped, plural, seconds};

/// The MFU of the published run of Qwen3 235B-A22B on 8,192 chips.
const ASSUMED_MFU: f64 = 0.27;

/// What is known of the run, and what is assumed, for all policies.
pub(super) struct Basis {
    scenario: Scenario,
    pub(super) step_seconds: f64,
    pub(super) mtbf_hours: f64,
    pub(super) tokens_per_step: u64,
    pub(super) usable: Vec<u64>,
    /// Lines for people: a name and what there is to say.
    pub(super) rows: Vec<(&'static str, String)>,
}

impl Basis {
    pub(super) fn new(args: &SimulateArgs, loaded: &Loaded, plan: &Plan) -> Result<Self, Failure> {
        let (step_seconds, step_from) = step(args, plan)?;
        let recipe = &loaded.recipe;
        let slices = *recipe.hardware.slices;
        let (chips, hosts) = chips_and_hosts(loaded);
        let (mtbf_hours, mtbf_from) = match args.mtbf_hours {
            Some(hours) => (hours, "--mtbf-hours".to_owned()),
            None => {
                let of_chip = CHIP_MTBF_SECONDS / 3600.0;
                let from = format!("assumed: one in {of_chip:.0} hours of a chip");
                (of_chip / (chips * slices) as f64, from)
            }
        };
        let ranks_per_host = (plan.world / (slices * hosts)).max(1);
        let memory = &plan.memory_per_device;
        let bytes = (memory.parameters_bytes + memory.optimizer_bytes) * ranks_per_host;
        let saves = recipe.checkpoint.as_ref().map(|table| saves(table, bytes, mtbf_hours));
        let usable = usable_slices(recipe);
        let model = model(args, step_seconds, saves.clone(), bytes);
        let rows = vec![
            ("run", run_row(loaded, slices, hosts, args.hours)),
            ("step", format!("{step_seconds:.1} s on all slices ({step_from})")),
            ("faults", format!("one every {mtbf_hours:.1} hours ({mtbf_from})")),
            ("slices", slices_row(&usable, args.boot_minutes)),
            ("checkpoints", checkpoints_row(saves.as_ref())),
            ("restarts", restarts_row(*recipe.elastic.max_restarts, &model)),
        ];
        let settings = Settings {
            slices: narrow(slices),
            hosts_per_slice: narrow(hosts),
            usable: usable.iter().copied().map(narrow).collect(),
            limits: limits(loaded),
            budgets: Budgets {
                infrastructure: narrow(*recipe.elastic.max_restarts),
                ..Budgets::default()
            },
            saves: saves.is_some(),
            ..Settings::one_host()
        };
        let horizon = Duration::from_secs_f64(args.hours * 3600.0);
        let mtbf = Duration::from_secs_f64(mtbf_hours * 3600.0);
        let scenario = Scenario {
            settings,
            ranks_per_host,
            model,
            faults: Faults { mtbf, ..Faults::default() },
            ..Scenario::new(narrow(slices), narrow(hosts), horizon)
        };
        let tokens_per_step = plan.tokens_per_step;
        Ok(Self { scenario, step_seconds, mtbf_hours, tokens_per_step, usable, rows })
    }

    /// The scenario of a policy.
    pub(super) fn with(&self, policy: PolicyArg, spares: u32) -> Scenario {
        let mut scenario = self.scenario.clone();
        (scenario.settings.policy, scenario.spares) = match policy {
            PolicyArg::Wait => (Policy::Wait, 0),
            PolicyArg::Shrink => (Policy::Shrink, 0),
            PolicyArg::Spare => (Policy::Shrink, spares),
        };
        scenario
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How long a step takes, and where that is known from.
fn step(args: &SimulateArgs, plan: &Plan) -> Result<(f64, String), Failure> {
    if let Some(seconds) = args.step_seconds {
        return Ok((seconds, "--step-seconds".to_owned()));
    }
    let Some(peak) = plan.peak_flops_per_device else {
        let text = "how long a step takes is not known: the peak of the accelerator is not";
        return Err(Failure::new(Exit::Usage, text)
            .help("say it: --step-seconds 2.5, or set hardware.peak_tflops"));
    };
    let flops = plan.tokens_per_step as f64 * plan.flops_per_token as f64;
    let seconds = flops / (plan.world as f64 * peak * ASSUMED_MFU);
    Ok((seconds, format!("assumed: {:.0} % MFU", 100.0 * ASSUMED_MFU)))
}

/// Chips and hosts of a slice. What is no TPU is one host.
fn chips_and_hosts(loaded: &Loaded) -> (u64, u64) {
    let hardware = &loaded.recipe.hardware;
    match (&hardware.topology, hardware.accelerator.tpu()) {
        (Some(topology), Some(tpu)) => {
            let chips = topology.chips();
            (chips, (chips / tpu.chips_per_host).max(1))
        }
        _ => ((loaded.layout.world / *hardware.slices).max(1), 1),
    }
}

fn limits(loaded: &Loaded) -> Limits {
    let recipe = &loaded.recipe;
    let defaults = Limits::default();
    let save = recipe.checkpoint.as_ref().map(|table| *table.timeout_seconds);
    Limits {
        drain: Duration::from_secs(*recipe.elastic.grace_seconds),
        save: save.map_or(defaults.save, Duration::from_secs),
        ..defaults
    }
}

/// Some seconds, and what it takes to move some bytes.
fn moving(first: f64, bytes: u64, bytes_per_second: f64) -> Duration {
    Duration::from_secs_f64(first + bytes as f64 / bytes_per_second)
}

fn saves(table: &Checkpoint, bytes: u64, mtbf_hours: f64) -> Saves {
    let blocked = moving(0.1, bytes, 32e9);
    let interval = match *table.interval {
        checkpoint::Interval::Steps(steps) => Interval::Steps(steps),
        checkpoint::Interval::Seconds(seconds) => Interval::Time(Duration::from_secs(seconds)),
        checkpoint::Interval::Auto => {
            let best = best_interval(blocked.as_secs_f64(), mtbf_hours * 3600.0);
            Interval::Time(Duration::from_secs_f64(best))
        }
    };
    Saves {
        interval,
        local_steps: table.local_directory.as_ref().map(|_| table.local_steps()),
        blocked,
        commit: moving(5.0, bytes, 0.5e9),
        local_commit: moving(1.0, bytes, 4e9),
    }
}

fn model(args: &SimulateArgs, step: f64, saves: Option<Saves>, bytes: u64) -> Model {
    Model {
        step: Duration::from_secs_f64(step),
        saves,
        load: moving(10.0, bytes, 1e9),
        load_local: moving(5.0, bytes, 4e9),
        boot: Duration::from_secs_f64(args.boot_minutes * 60.0),
        ..Model::default()
    }
}

fn run_row(loaded: &Loaded, slices: u64, hosts: u64, hours: f64) -> String {
    let name = &*loaded.recipe.name;
    let slices = plural(slices, "slice");
    format!("{name}: {slices} of {}, for {hours} hours", plural(hosts, "host"))
}

fn slices_row(usable: &[u64], boot_minutes: f64) -> String {
    let numbers: Vec<String> = usable.iter().copied().map(grouped).collect();
    let can = match &numbers[..] {
        [all] => format!("the run needs all {all}"),
        _ => format!("the run can use {} of them", numbers.join(", ")),
    };
    format!("{can}; a lost one is back after {boot_minutes} minutes")
}

fn checkpoints_row(saves: Option<&Saves>) -> String {
    let Some(saves) = saves else { return "none: each start begins at step 1".to_owned() };
    let interval = match saves.interval {
        Interval::Steps(steps) => format!("every {}", plural(steps, "step")),
        Interval::Time(time) => format!("every {}", seconds(time.as_secs_f64())),
    };
    let local = match saves.local_steps {
        Some(steps) => format!(", every {} to the local tier", plural(steps, "step")),
        None => String::new(),
    };
    let [blocked, commit] = [saves.blocked, saves.commit].map(|time| seconds(time.as_secs_f64()));
    format!("{interval}{local}; training waits {blocked}, and {commit} later it is safe (assumed)")
}

fn restarts_row(most: u64, model: &Model) -> String {
    let [start, load, local] =
        [model.start, model.load, model.load_local].map(|time| seconds(time.as_secs_f64()));
    format!(
        "at most {} without progress; start {start}, load {load}, from the local tier {local} (assumed)",
        grouped(most)
    )
}
