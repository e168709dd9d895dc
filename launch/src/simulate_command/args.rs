//! The command line of `simulate`.

use clap::{Args, ValueEnum};

use crate::cli::RecipeArgs;

/// What the help says below the options.
const ASSUMED: &str = "\
What is assumed, unless an option or the recipe says otherwise:
  step          the FLOPs of the model at 27 % MFU (--step-seconds)
  faults        one in 125,000 hours of each chip (--mtbf-hours), at random; of 100: 35 ranks killed, 30 slices
                lost, 10 ranks that hang, 8 slow hosts, 6 hosts and 2 slices cut off, 6 preemptions, 3 outages of
                the store
  slices        are back 12 minutes after they were lost (--boot-minutes)
  start         45 s until ranks have a runtime and a compiled program; then they load: 10 s, and 1 GB/s for each
                host, from the local tier 5 s and 4 GB/s
  save          training waits for the copy of the state: 32 GB/s for each host; writing it takes 5 s and 0.5 GB/s
                for each host, to the local tier 1 s and 4 GB/s
  length        the run goes on for the whole time, whatever training.steps says";

/// `simulate`.
#[derive(Args, Debug)]
#[command(after_help = ASSUMED)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// How long the run goes on.
    #[arg(long, value_name = "H", default_value = "720", allow_negative_numbers = true, value_parser = hours)]
    pub(crate) hours: f64,
    /// Mean time between faults of the whole run [default: 125,000 hours for each chip].
    #[arg(long, value_name = "M", allow_negative_numbers = true, value_parser = between_faults)]
    pub(crate) mtbf_hours: Option<f64>,
    /// How long a step takes on all slices [default: the FLOPs of the model at 27 % MFU].
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = step_seconds)]
    pub(crate) step_seconds: Option<f64>,
    /// Which history: the same seed gives the same faults, whatever the policy.
    #[arg(long, value_name = "S", default_value = "0")]
    pub(crate) seed: u64,
    /// What a run does that lacks slices: wait for them, shrink (go on with fewer if elastic.min_slices allows it), or
    /// spare (put spare slices in their place, and shrink if there are none) [default: all three, compared].
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) policy: Option<PolicyArg>,
    /// Spare slices of the policy spare.
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) spares: u32,
    /// How long a lost slice takes to come back.
    #[arg(long, value_name = "M", default_value = "12", allow_negative_numbers = true, value_parser = boot_minutes)]
    pub(crate) boot_minutes: f64,
    /// How many histories, of this seed and those after it.
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Print what happened, and what was decided and why, of the first history.
    #[arg(long, requires = "policy")]
    pub(crate) history: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a run does that lacks slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Wait for them.
    Wait,
    /// Go on with fewer.
    Shrink,
    /// Put spare slices in their place.
    Spare,
}

impl PolicyArg {
    /// All.
    pub(crate) const ALL: [Self; 3] = [Self::Wait, Self::Shrink, Self::Spare];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Shrink => "shrink",
            Self::Spare => "spare",
        }
    }
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "must be a number".to_owned())?;
    match (least..=most).contains(&number) {
        true => Ok(number),
        false => Err(format!("must be from {least} to {most}")),
    }
}

fn hours(text: &str) -> Result<f64, String> {
    number(text, 0.1, 87_600.0)
}

fn between_faults(text: &str) -> Result<f64, String> {
    number(text, 0.01, 1e9)
}

fn step_seconds(text: &str) -> Result<f64, String> {
    number(text, 0.001, 86_400.0)
}

fn boot_minutes(text: &str) -> Result<f64, String> {
    number(text, 0.1, 10_080.0)
}
