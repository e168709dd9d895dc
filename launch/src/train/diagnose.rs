//! What ranks that make no progress are doing: the state of each process, and the stack that it writes to its log when
//! it gets SIGUSR1 (`titan_tpu.worker` sees to that).

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use titan_control::Evidence;

/// How long a process may take to write its stack. One that is stopped never does.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a log must be quiet to be taken for complete.
const QUIET: Duration = Duration::from_millis(100);

/// Innermost frames that are looked at.
const INNERMOST: usize = 4;

/// Python files in which ranks wait for each other.
const MEETING_PLACES: [&str; 2] = ["titan_tpu/parallel/mesh.py", "torch/distributed/"];

/// A rank to ask.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) rank: usize,
    pub(super) pid: Pid,
    pub(super) log: PathBuf,
    /// The last step that it has done.
    pub(super) step: u64,
}

/// Asks ranks what they are doing; takes up to two seconds.
pub(super) fn ask(ranks: &[Asked]) -> Vec<Evidence> {
    let states: Vec<char> = ranks.iter().map(|rank| state(rank.pid)).collect();
    let before: Vec<u64> = ranks.iter().map(|rank| length(&rank.log)).collect();
    for rank in ranks {
        // One that has ended meanwhile has nothing to say.
        let _ = kill_process(rank.pid, Signal::USR1);
    }
    let answers = wait(ranks, &before, &states);
    let asked = ranks.iter().zip(states).zip(answers);
    asked.map(|((rank, state), answer)| evidence(rank, state, &answer)).collect()
}

fn evidence(rank: &Asked, state: char, answer: &str) -> Evidence {
    let stack = main_stack(answer);
    let meets = |frame: &Frame<'_>| MEETING_PLACES.iter().any(|place| frame.file.contains(place));
    // The innermost frames are often torch's own, which say little.
    let says_more = |frame: &&Frame<'_>| !frame.file.contains("/torch/") || meets(frame);
    let innermost = stack.iter().take(INNERMOST).find(says_more).or(stack.first());
    let waits_for_others = innermost.map(meets);
    let place = innermost.map(Frame::in_words);
    Evidence { rank: rank.rank as u64, step: rank.step, state, waits_for_others, place }
}

/// What each has written to its log since it was asked.
fn wait(ranks: &[Asked], before: &[u64], states: &[char]) -> Vec<String> {
    let began = Instant::now();
    let mut lengths = before.to_vec();
    let mut changed = began;
    loop {
        thread::sleep(QUIET / 5);
        let now: Vec<u64> = ranks.iter().map(|rank| length(&rank.log)).collect();
        if now != lengths {
            (lengths, changed) = (now, Instant::now());
        }
        let is_answered = |rank: usize| lengths[rank] > before[rank] || states[rank] == 'T';
        let is_quiet = (0..ranks.len()).all(is_answered) && changed.elapsed() >= QUIET;
        if is_quiet || began.elapsed() >= PATIENCE {
            break;
        }
    }
    let read = |(rank, from): (&Asked, &u64)| read_from(&rank.log, *from).unwrap_or_default();
    ranks.iter().zip(before).map(read).collect()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn read_from(path: &Path, from: u64) -> io::Result<String> {
    const MOST: u64 = 256 * 1024;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The state of a process, as a letter; `Z` if it is gone.
fn state(pid: Pid) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    state_in(&stat.unwrap_or_default()).unwrap_or('Z')
}

/// The state in a line of `/proc/PID/stat`: what follows the name, which is in parentheses and may have some.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// A line of a stack.
#[derive(Debug, PartialEq)]
struct Frame<'a> {
    file: &'a str,
    line: &'a str,
    function: &'a str,
}

impl Frame<'_> {
    /// `all_reduce (parallel/mesh.py:51)`.
    fn in_words(&self) -> String {
        let parts: Vec<&str> = self.file.rsplitn(3, '/').collect();
        let short = match &parts[..] {
            [file, folder, _] => format!("{folder}/{file}"),
            _ => self.file.to_owned(),
        };
        format!("{} ({short}:{})", self.function, self.line)
    }
}

/// The stack of the thread that was running Python code when the signal came, the innermost frame first.
fn main_stack(answer: &str) -> Vec<Frame<'_>> {
    let mut lines = answer.lines().skip_while(|line| !line.starts_with("Current thread"));
    lines.next();
    lines.map_while(frame).collect()
}

/// `  File "/x/y.py", line 12 in function`.
fn frame(line: &str) -> Option<Frame<'_>> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(Frame { file, line, function })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "step 3\n\nThread 0x00007f3d8b7fe6c0 (most recent call first):\n  \
        <no Python frame>\n\nCurrent thread 0x00007f3de1b5b740 (most recent call first):\n  \
        File \"/v/torch/_ops.py\", line 1255 in __call__\n  \
        File \"/e/titan_tpu/parallel/mesh.py\", line 51 in all_reduce\n  \
        File \"/e/titan_tpu/engine.py\", line 191 in step\n  \
        File \"<string>\", line 1 in <module>\n\nExtension modules: numpy\n";

    fn asked() -> Asked {
        Asked { rank: 1, pid: Pid::INIT, log: PathBuf::new(), step: 7 }
    }

    #[test]
    fn the_stack_of_the_main_thread_says_where_a_rank_is_and_whether_it_waits() {
        let found = evidence(&asked(), 'S', ANSWER);
        assert_eq!(found.place.as_deref(), Some("all_reduce (parallel/mesh.py:51)"));
        assert_eq!((found.rank, found.step, found.waits_for_others), (1, 7, Some(true)));
        let busy = ANSWER.replace("parallel/mesh.py", "models/llama.py");
        let found = evidence(&asked(), 'R', &busy);
        assert_eq!(found.place.as_deref(), Some("all_reduce (models/llama.py:51)"));
        assert_eq!(found.waits_for_others, Some(false));
        // A signal handler that does not return has interrupted a wait.
        let hangs = ANSWER.replace("torch/_ops.py", "hooks/sitecustomize.py");
        assert_eq!(evidence(&asked(), 'R', &hangs).waits_for_others, Some(false));
        let nothing = evidence(&asked(), 'T', "step 3\n");
        assert_eq!((nothing.place, nothing.waits_for_others), (None, None));
    }

    #[test]
    fn the_state_of_a_process_is_found_whatever_its_name() {
        assert_eq!(state_in("12 (python3) S 1 12 12 0"), Some('S'));
        assert_eq!(state_in("12 (a ) T (b) R 1 12"), Some('R'));
        assert_eq!(state_in(""), None);
    }
}
