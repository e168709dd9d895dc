//! Running pip, reading its output for the progress, and recognising why it failed.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::disk;
use super::error::Cause;
use super::progress::{Progress, Throttle};
use super::requirements::Sizes;
use crate::words;

/// What every run of pip gets. The list is complete and pinned, so nothing is resolved. `--no-user` and an empty
/// `--target` undo what a configuration file of pip's may say; bytecode is compiled afterwards on all cores.
pub(super) fn arguments(requirements: &[String]) -> Vec<OsString> {
    let fixed = [
        "-I",
        "-u",
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--no-input",
        "--no-compile",
        "--no-warn-script-location",
        "--progress-bar=off",
        "--no-user",
        "--target=",
    ];
    fixed.into_iter().map(OsString::from).chain(requirements.iter().map(OsString::from)).collect()
}

/// A line of pip's output that says something about the progress.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A package comes next.
    Collecting,
    /// A wheel is being fetched, from the index or from pip's cache.
    Fetching {
        wheel: String,
        size: Option<String>,
    },
    /// All are there and are being unpacked.
    Installing,
    /// The index does not answer.
    Retrying,
    Other,
}

fn parse(line: &str) -> Line {
    let line = line.trim();
    if line.starts_with("Collecting ") {
        return Line::Collecting;
    }
    if line.starts_with("Installing collected packages:") {
        return Line::Installing;
    }
    if line.starts_with("WARNING: Retrying ") {
        return Line::Retrying;
    }
    let fetched = ["Downloading ", "Using cached ", "Processing "];
    let Some(rest) = fetched.iter().find_map(|word| line.strip_prefix(word)) else {
        return Line::Other;
    };
    let (place, size) = match rest.split_once(" (") {
        Some((place, size)) => (place, size.strip_suffix(')').map(str::to_owned)),
        None => (rest, None),
    };
    match wheel_title(place) {
        Some(wheel) => Line::Fetching { wheel, size },
        // Such as `torch.whl.metadata`, which newer versions of pip fetch first.
        None => Line::Other,
    }
}

/// `torch 2.15.0` for the file name or URL of a wheel.
fn wheel_title(place: &str) -> Option<String> {
    let file = place.split(['?', '#']).next()?.rsplit('/').next()?.strip_suffix(".whl")?;
    let mut parts = file.split('-');
    let (name, version) = (parts.next()?, parts.next()?);
    Some(format!("{} {}", name.replace('_', "-"), version.replace("%2B", "+")))
}

/// Reads the log of pip while pip writes it, and looks at the disk, to say how far it is.
pub(super) struct Follower<'a> {
    progress: &'a dyn Progress,
    log: File,
    /// The start of a line whose end is not written yet.
    pending: Vec<u8>,
    /// Where pip puts the wheels.
    temporary: PathBuf,
    /// Where the packages go.
    site_packages: PathBuf,
    sizes: Sizes,
    total: usize,
    collected: usize,
    installing: bool,
    current: String,
    look: Throttle,
    measure: Throttle,
    measured: u64,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        progress: &'a dyn Progress,
        log: File,
        temporary: PathBuf,
        site_packages: PathBuf,
        sizes: Sizes,
        total: usize,
    ) -> Self {
        let quarter = Duration::from_millis(250);
        Self {
            progress,
            log,
            pending: Vec::new(),
            temporary,
            site_packages,
            sizes,
            total,
            collected: 0,
            installing: false,
            current: "asking the package index".to_owned(),
            look: Throttle::new(quarter),
            measure: Throttle::new(quarter),
            measured: 0,
        }
    }

    /// To be called often; does something at most four times a second.
    pub(super) fn tick(&mut self) {
        if !self.look.due() {
            return;
        }
        // A log that cannot be read costs the details, not the installation.
        let _ = self.log.read_to_end(&mut self.pending);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            self.take(parse(&String::from_utf8_lossy(&line)));
        }
        if self.measure.due() {
            let start = Instant::now();
            self.measured = if self.installing {
                disk::bytes_below(&self.site_packages)
            } else {
                // Next to the wheels lie copies that pip makes for its cache: they must not count twice.
                disk::bytes_below_with(&self.temporary, &|name| name.ends_with(b".whl"))
            };
            // Looking at tens of thousands of files must stay a small part of the work.
            self.measure.slow_down(start.elapsed() * 20);
        }
        self.report();
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Collecting => self.collected += 1,
            Line::Fetching { wheel, size } => {
                self.current = match size {
                    Some(size) => format!("{wheel} ({size})"),
                    None => wheel,
                };
            }
            Line::Retrying => {
                "the package index does not answer, trying again".clone_into(&mut self.current)
            }
            Line::Installing => {
                self.installing = true;
                self.measured = 0;
                self.progress.phase("installing packages");
            }
            Line::Other => {}
        }
    }

    fn report(&self) {
        if self.installing {
            let message = format!("{} unpacked", words::bytes(self.measured));
            self.progress.update(&message, fraction(self.measured, self.sizes.installed));
        } else {
            let count = self.collected.clamp(1, self.total);
            let message = format!("{} [{count} of {}]", self.current, self.total);
            self.progress.update(&message, fraction(self.measured, self.sizes.download));
        }
    }

    /// The next run of pip continues the count in the same log.
    pub(super) fn next_run(&mut self) {
        self.installing = false;
        self.progress.phase("downloading packages");
    }
}

/// The sizes are those of one platform: the end is reached when the work is done, not when the bytes are there.
fn fraction(done: u64, expected: u64) -> Option<f64> {
    (expected > 0).then(|| (done as f64 / expected as f64).min(0.99))
}

const NO_SPACE: [&str; 4] =
    ["No space left on device", "[Errno 28]", "Disk quota exceeded", "[Errno 122]"];
const CERTIFICATE: [&str; 2] = ["CERTIFICATE_VERIFY_FAILED", "certificate verify failed"];
const OFFLINE: [&str; 16] = [
    "Failed to establish a new connection",
    "NewConnectionError",
    "NameResolutionError",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "No route to host",
    "Connection refused",
    "Connection reset",
    "Connection aborted",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "Cannot connect to proxy",
    "IncompleteRead",
    "Max retries exceeded",
];

/// Why pip failed, from its output.
pub(super) fn cause(output: &str) -> Cause {
    let any = |line: &str, texts: &[&str]| texts.iter().any(|text| line.contains(text));
    if output.lines().any(|line| any(line, &NO_SPACE)) {
        return Cause::NoSpace;
    }
    if output.lines().any(|line| any(line, &CERTIFICATE)) {
        return Cause::Certificate;
    }
    let marker = "No matching distribution found for ";
    let missing =
        output.lines().find_map(|line| Some(line.split_once(marker)?.1.trim().to_owned()));
    // A warning about a connection is the reason only if in the end the package was not found: pip tries again.
    let offline = output
        .lines()
        .filter(|line| missing.is_some() || !line.starts_with("WARNING:"))
        .any(|line| any(line, &OFFLINE));
    match missing {
        _ if offline => Cause::Offline,
        Some(requirement) => Cause::Missing { requirement },
        None => Cause::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetching(wheel: &str, size: Option<&str>) -> Line {
        Line::Fetching { wheel: wheel.to_owned(), size: size.map(str::to_owned) }
    }

    #[test]
    fn lines_of_several_versions_of_pip_are_read() {
        let cases = [
            ("Collecting torch==2.15.0", Line::Collecting),
            ("Collecting torch==2.15.0 (from -r list.txt (line 1))", Line::Collecting),
            (
                "  Downloading torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl (539.1 MB)",
                fetching("torch 2.15.0", Some("539.1 MB")),
            ),
            (
                "  Downloading https://mirror/x/torch-2.15.0%2Bcpu-cp311-cp311-linux_x86_64.whl (190.0 MB)",
                fetching("torch 2.15.0+cpu", Some("190.0 MB")),
            ),
            (
                "Using cached nvidia_cublas-13.4.1.3-py3-none-manylinux_2_27_x86_64.whl (404.9 MB)",
                fetching("nvidia-cublas 13.4.1.3", Some("404.9 MB")),
            ),
            ("Processing /wheels/sympy-1.14.0-py3-none-any.whl", fetching("sympy 1.14.0", None)),
            (
                "  Downloading torch-2.15.0-cp311-cp311-linux_x86_64.whl.metadata (31 kB)",
                Line::Other,
            ),
            ("Installing collected packages: mpmath, torch", Line::Installing),
            ("WARNING: Retrying (Retry(total=4)) after connection broken", Line::Retrying),
            ("Looking in links: /wheels", Line::Other),
            ("", Line::Other),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn causes_are_recognised() {
        let retry = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': \
                     Failed to establish a new connection: [Errno -2] Name or service not known')'\n";
        let none = "ERROR: No matching distribution found for torch==2.15.0\n";
        let missing = Cause::Missing { requirement: "torch==2.15.0".to_owned() };
        let cases = [
            (format!("{retry}{none}"), Cause::Offline),
            (none.to_owned(), missing),
            (format!("{retry}ERROR: something else\n"), Cause::Unknown),
            (
                "ERROR: Could not install: [Errno 28] No space left on device\n".to_owned(),
                Cause::NoSpace,
            ),
            ("OSError: [Errno 122] Disk quota exceeded: '/x'\n".to_owned(), Cause::NoSpace),
            (
                format!("WARNING: SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]\n{none}"),
                Cause::Certificate,
            ),
            (
                "pip._vendor.urllib3.exceptions.ReadTimeoutError: Read timed out.\n".to_owned(),
                Cause::Offline,
            ),
            (String::new(), Cause::Unknown),
        ];
        for (output, expected) in cases {
            assert_eq!(cause(&output), expected, "{output}");
        }
    }

    #[test]
    fn the_fraction_never_claims_to_be_done() {
        assert_eq!(fraction(50, 100), Some(0.5));
        assert_eq!(fraction(150, 100), Some(0.99));
        assert_eq!(fraction(1, 0), None);
    }
}
