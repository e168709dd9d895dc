//! `titan-tpu simulate`: how much of the time a run would make progress on machines that fail.

pub(crate) mod args;
mod report;
mod scenario;
mod totals;

use std::thread;

use serde_json::{Value, json};
use titan_control::simulator::simulate;
use titan_parallelism::Convention;
use titan_recipes::{Purpose, load};

use crate::console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::recipe_command::{overrides, print_warnings};
use args::{PolicyArg, SimulateArgs};
use scenario::Basis;
use totals::Totals;

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs) -> Result<Exit, Failure> {
    let overrides = overrides(&args.recipe.set, Vec::new());
    let loaded = load(&args.recipe.recipe, &overrides, Purpose::Plan)?;
    print_warnings(&loaded);
    let plan = titan_parallelism::plan(&loaded.recipe, &loaded.layout, Convention::Causal);
    let basis = Basis::new(args, &loaded, &plan)?;
    let policies = args.policy.map_or(PolicyArg::ALL.to_vec(), |policy| vec![policy]);
    let totals = all(&basis, args, &policies)?;
    let text = match args.json {
        true => format!("{}\n", json(&basis, args, &totals)),
        false => report::text(&basis, args, &totals),
    };
    console::print_document(&text)
}

/// Simulates policies side by side.
fn all(basis: &Basis, args: &SimulateArgs, policies: &[PolicyArg]) -> Result<Vec<Totals>, Failure> {
    let one = |policy: PolicyArg| {
        let scenario = basis.with(policy, args.spares);
        let seeds = (0..args.runs).map(|run| args.seed.wrapping_add(run.into()));
        Totals::new(policy, seeds.map(|seed| simulate(&scenario, seed)).collect())
    };
    let one = &one;
    let totals: Option<Vec<Totals>> = thread::scope(|scope| {
        let threads: Vec<_> =
            policies.iter().map(|policy| scope.spawn(move || one(*policy))).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    });
    let Some(totals) = totals else {
        return Err(Failure::new(Exit::Bug, "a simulation did not come to its end"));
    };
    for total in &totals {
        if let Some(violation) = total.violations.first() {
            let text = format!("a law of the control plane was broken: {violation}");
            let what = format!(
                "please report it, with the recipe and: --policy {} --seed {}",
                total.policy.name(),
                args.seed
            );
            return Err(Failure::new(Exit::Bug, text).quoting(total.violations.clone()).help(what));
        }
    }
    Ok(totals)
}

fn json(basis: &Basis, args: &SimulateArgs, totals: &[Totals]) -> Value {
    let one = |total: &Totals| {
        let mut value = total.json(args.seed, basis.tokens_per_step);
        if args.history {
            let history = total.history.iter().map(|entry| {
                json!({
                    "seconds": entry.at.as_secs_f64(),
                    "decision": entry.decision,
                    "text": entry.text,
                    "more": entry.more,
                })
            });
            value["history"] = history.collect();
        }
        value
    };
    let about = json!({
        "hours": args.hours,
        "runs": args.runs,
        "seed": args.seed,
        "mtbf_hours": basis.mtbf_hours,
        "step_seconds": basis.step_seconds,
        "boot_minutes": args.boot_minutes,
        "spares": args.spares,
        "usable_slices": basis.usable,
    });
    let mut value = match (args.policy, totals) {
        (Some(_), [only]) => one(only),
        _ => json!({ "policies": totals.iter().map(one).collect::<Vec<Value>>() }),
    };
    if let (Some(value), Value::Object(about)) = (value.as_object_mut(), about) {
        for (key, of) in about {
            value.entry(key).or_insert(of);
        }
    }
    value
}
