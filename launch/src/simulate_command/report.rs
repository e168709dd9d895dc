//! The page that `simulate` prints.

use std::fmt::Write as _;

use titan_control::simulator::Category;

use super::args::{PolicyArg, SimulateArgs};
use super::scenario::Basis;
use super::totals::Totals;
use crate::words::{count, grouped, seconds};

/// The page for people.
pub(super) fn text(basis: &Basis, args: &SimulateArgs, totals: &[Totals]) -> String {
    let mut text = String::new();
    for (name, value) in &basis.rows {
        row(&mut text, name, value);
    }
    let last = u64::from(args.runs) - 1;
    match last {
        0 => row(&mut text, "seed", args.seed),
        _ => row(&mut text, "seeds", format!("{} to {}", args.seed, args.seed + last)),
    }
    row(&mut text, "came", faults(totals));
    text.push('\n');
    table(&mut text, basis, totals);
    text.push('\n');
    for total in totals {
        explain(&mut text, basis, args, total);
    }
    compare(&mut text, basis, args, totals);
    if args.history
        && let [total] = totals
    {
        text.push('\n');
        for entry in &total.history {
            let _ = writeln!(text, "{entry}");
        }
    }
    text
}

/// A name and what there is to say.
fn row(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name:>16}  {value}");
}

/// The same faults come whatever the policy, but not all of them, if a run ends before.
fn faults(totals: &[Totals]) -> String {
    let most = totals.iter().max_by_key(|total| total.faults.values().sum::<u64>());
    let Some(most) = most else { return String::new() };
    let all = most.faults.iter();
    let kinds: Vec<String> =
        all.map(|(kind, count)| format!("{} {count}", kind.name().replace('_', " "))).collect();
    let sum: u64 = most.faults.values().sum();
    match kinds.is_empty() {
        true => "no fault".to_owned(),
        false => format!("{} faults: {}", grouped(sum), kinds.join(", ")),
    }
}

fn table(text: &mut String, basis: &Basis, totals: &[Totals]) {
    let mut line = |name: &str, value: &dyn Fn(&Totals) -> String| {
        let cells: Vec<String> =
            totals.iter().map(|total| format!("{:>10}", value(total))).collect();
        row(text, name, cells.concat());
    };
    line("policy", &|total| total.policy.name().to_owned());
    line("goodput", &|total| percent(total.goodput()));
    line("steps", &|total| grouped(total.steps));
    line("tokens per day", &|total| count(total.steps_per_day() * basis.tokens_per_step as f64));
    line("restarts", &|total| grouped(total.restarts));
    line("shrinks", &|total| grouped(total.shrinks));
    line("grows", &|total| grouped(total.grows));
    for category in Category::ALL {
        line(&category.name().replace('_', " "), &|total| percent(total.share(category)));
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// What costs most with a policy, and what would help.
fn explain(text: &mut String, basis: &Basis, args: &SimulateArgs, total: &Totals) {
    let name = total.policy.name();
    if args.runs > 1 {
        let (least, most) = total.range();
        row(text, name, format!("goodput from {} to {}", percent(least), percent(most)));
    }
    if let Some((at, why)) = &total.ended {
        row(text, name, format!("ENDED after {}: {why}", seconds(at.as_secs_f64())));
    }
    if let Some(worst) = total.worst() {
        let (what, help) = advice(worst, basis, total.policy);
        let share = percent(total.share(worst));
        row(text, name, format!("{what} cost most, {share}: {help}"));
    }
}

fn advice(category: Category, basis: &Basis, policy: PolicyArg) -> (&'static str, &'static str) {
    match category {
        Category::Productive => ("steps", "nothing to win"),
        Category::Shrunk => (
            "steps on fewer slices",
            match basis.usable.len() {
                0..=2 => {
                    "a global batch that more numbers of slices divide, or a spare slice, would help"
                }
                _ => "a spare slice, or slices that boot sooner, would help",
            },
        ),
        Category::Straggler => ("slow hosts", "finding and replacing them sooner would help"),
        Category::LostSteps => (
            "steps done again",
            "a shorter interval of checkpoints, of the local tier too, would help",
        ),
        Category::Checkpoint => ("saves", "a longer interval of checkpoints would help"),
        Category::Detection => {
            ("faults that were not noticed yet", "a shorter limit for a step would help")
        }
        Category::Restart => {
            ("restarts", "a faster start (programs that are compiled, a local tier) would help")
        }
        Category::Waiting => match policy {
            PolicyArg::Spare => ("waits for slices", "more spares would help"),
            _ if basis.usable.len() == 1 => (
                "waits for slices",
                "a spare slice would help, or a lower elastic.min_slices and the policy shrink",
            ),
            _ => ("waits for slices", "a spare slice, or the policy shrink, would help"),
        },
        Category::Backoff => {
            ("waits before another attempt", "a store that is away less often would help")
        }
    }
}

/// Which policy is best, and what that is worth.
fn compare(text: &mut String, basis: &Basis, args: &SimulateArgs, totals: &[Totals]) {
    let of = |policy| totals.iter().find(|total| total.policy == policy).map(Totals::goodput);
    let (Some(wait), Some(shrink), Some(spare)) =
        (of(PolicyArg::Wait), of(PolicyArg::Shrink), of(PolicyArg::Spare))
    else {
        return;
    };
    let points = |more: f64, less: f64| format!("{:+.2} points", 100.0 * (more - less));
    let shrinks = match basis.usable.len() {
        1 => "cannot shrink: it needs all slices (elastic.min_slices)".to_owned(),
        _ => format!("{} against wait", points(shrink, wait)),
    };
    row(text, "shrink", shrinks);
    let slices = basis.usable.last().copied().unwrap_or(1);
    let cost = 100.0 * f64::from(args.spares) / slices as f64;
    let best = points(spare, wait.max(shrink));
    row(text, "spare", format!("{best} against the better of both, for {cost:.1} % more machines"));
}
