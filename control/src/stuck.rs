//! Which rank holds up the others.

use serde::{Deserialize, Serialize};

/// What a rank is doing, as its host sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The rank.
    pub rank: u64,
    /// The last step that it has done.
    pub step: u64,
    /// State of the process as in `/proc/PID/stat`: `R` runs, `S` sleeps, `D` waits for a device, `T` is stopped.
    pub state: char,
    /// Whether its main thread waits for other ranks; `None` if its stack is not known.
    pub waits_for_others: Option<bool>,
    /// The place in the program: innermost function, file and line.
    pub place: Option<String>,
}

/// The rank that holds up the others, and why it is thought to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The rank; `None` if none stands out.
    pub rank: Option<u64>,
    /// Why.
    pub why: String,
}

/// Which rank holds up the others: one that is stopped; or is behind; or, alone, does not wait for others; or waits for a
/// device. In a world of one it is that one.
pub fn who_is_stuck(ranks: &[Evidence]) -> Suspect {
    let at = |evidence: &Evidence| match &evidence.place {
        Some(place) => format!(" at {place}"),
        None => String::new(),
    };
    let found = |evidence: &Evidence, why: String| Suspect { rank: Some(evidence.rank), why };
    if let Some(stopped) = ranks.iter().find(|rank| matches!(rank.state, 'T' | 't')) {
        return found(stopped, "its process is stopped (SIGSTOP, or a debugger)".to_owned());
    }
    let furthest = ranks.iter().map(|rank| rank.step).max().unwrap_or(0);
    let behind: Vec<&Evidence> = ranks.iter().filter(|rank| rank.step < furthest).collect();
    if let [behind] = behind[..] {
        let why = format!("it has done step {}, the others {furthest}{}", behind.step, at(behind));
        return found(behind, why);
    }
    let busy: Vec<&Evidence> =
        ranks.iter().filter(|rank| rank.waits_for_others == Some(false)).collect();
    if let Some(first) = busy.first()
        && busy.len() < ranks.len()
    {
        let verb = match first.state {
            'R' => "it computes",
            'D' => "it waits for a device",
            _ => "it sleeps",
        };
        return found(first, format!("{verb}{}, and others wait for it", at(first)));
    }
    if let Some(waiting) = ranks.iter().find(|rank| rank.state == 'D') {
        return found(waiting, format!("it waits for a device{}", at(waiting)));
    }
    match ranks {
        [] => Suspect { rank: None, why: "nothing is known of its ranks".to_owned() },
        [only] => {
            let verb = if only.state == 'R' { "it computes" } else { "it sleeps" };
            found(only, format!("{verb}{}", at(only)))
        }
        _ if busy.len() == ranks.len() => {
            let why = format!("all ranks are busy, rank {}{}", ranks[0].rank, at(&ranks[0]));
            Suspect { rank: None, why }
        }
        _ => Suspect { rank: None, why: "all ranks wait for each other".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u64, step: u64, state: char, waits: Option<bool>) -> Evidence {
        let place = Some(format!("f{rank} (model.py:{rank})"));
        Evidence { rank, step, state, waits_for_others: waits, place }
    }

    #[test]
    fn the_rank_that_others_wait_for_is_named() {
        let (waits, works) = (Some(true), Some(false));
        let cases = [
            (vec![rank(0, 4, 'S', waits), rank(1, 4, 'T', None)], Some(1), "is stopped"),
            // Stopped in the middle of something: its stack is that of before.
            (vec![rank(0, 4, 'S', works), rank(1, 4, 'T', waits)], Some(1), "is stopped"),
            (vec![rank(0, 5, 'S', waits), rank(1, 4, 'S', waits)], Some(1), "step 4, the others 5"),
            (vec![rank(0, 4, 'R', works), rank(1, 4, 'S', waits)], Some(0), "it computes at f0"),
            (vec![rank(0, 4, 'S', works), rank(1, 4, 'S', waits)], Some(0), "it sleeps at f0"),
            (vec![rank(0, 4, 'S', waits), rank(1, 4, 'D', works)], Some(1), "waits for a device"),
            (vec![rank(0, 4, 'S', waits), rank(1, 4, 'S', waits)], None, "wait for each other"),
            (vec![rank(0, 4, 'R', works), rank(1, 4, 'R', works)], None, "all ranks are busy"),
            (vec![rank(0, 4, 'R', works)], Some(0), "it computes"),
            (vec![rank(0, 4, 'S', None), rank(1, 4, 'D', None)], Some(1), "waits for a device"),
            (vec![], None, "nothing is known"),
        ];
        for (ranks, suspect, why) in cases {
            let found = who_is_stuck(&ranks);
            assert_eq!(found.rank, suspect, "{ranks:?}");
            assert!(found.why.contains(why), "{found:?}");
        }
    }
}
