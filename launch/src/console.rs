//! Everything that titan-tpu prints. stdout has results: step lines, JSON, reports. stderr has the progress bar,
//! warnings and errors. A stream that was closed by its reader is no reason to end a run.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{Failure, What};

/// How a command shows what it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A terminal: a live line at the bottom, and above it what stays.
    Live,
    /// A file or a pipe: plain lines.
    Plain,
    /// JSON lines on stdout and nothing else there.
    Json,
}

impl Style {
    /// The style for this command. A live line needs the whole terminal: if stdout goes elsewhere, its reader
    /// wants the lines.
    pub(crate) fn choose(json: bool) -> Self {
        match (json, io::stdout().is_terminal() && io::stderr().is_terminal()) {
            (true, _) => Style::Json,
            (false, true) => Style::Live,
            (false, false) => Style::Plain,
        }
    }
}

/// Prints for one command.
///
/// A thread of its own writes: a reader that stops reading (a paused pager, Ctrl-S) must not stop the one who
/// watches the workers. What such a reader does not take is dropped after [`QUEUE`] messages; the run directory
/// has everything.
pub(crate) struct Console {
    style: Style,
    orders: SyncSender<Order>,
}

/// What the writing thread is told.
enum Order {
    /// A line on stdout.
    Stdout(String),
    /// Lines on stderr.
    Stderr(String),
    /// A live line for something whose end is not known.
    Spin(String),
    /// The live line becomes a bar of a length, at a position.
    Bar { length: u64, position: u64, text: String },
    /// Another text for the live line.
    Text(String),
    /// The live line goes away.
    Clear,
    /// Everything before this has been written.
    Flush(SyncSender<()>),
}

/// Messages that wait for a slow reader.
const QUEUE: usize = 10_000;

/// How long a command waits at its end for a reader that does not read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Frames of the live line per second.
const FRAMES: u8 = 10;

impl Console {
    pub(crate) fn new(style: Style) -> Self {
        let (orders, queue) = sync_channel(QUEUE);
        // Without the thread nothing is printed; a run is worth more than its lines.
        let _ = thread::Builder::new()
            .name("titan-console".to_owned())
            .spawn(move || write_all(style, &queue));
        Self { style, orders }
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    fn order(&self, order: Order) {
        // A full queue means that nobody reads.
        let _ = self.orders.try_send(order);
    }

    /// A line that stays, on stdout; JSON output has objects instead.
    pub(crate) fn line(&self, text: impl Into<String>) {
        if self.style != Style::Json {
            self.order(Order::Stdout(text.into()));
        }
    }

    /// A JSON object, if that is the style.
    pub(crate) fn json(&self, value: &impl Serialize) {
        if self.style == Style::Json
            && let Ok(text) = serde_json::to_string(value)
        {
            self.order(Order::Stdout(text));
        }
    }

    /// A part of the work that is over: a line with its name and time.
    pub(crate) fn phase(&self, phase: &str, detail: &str, took: Duration) {
        #[derive(Serialize)]
        struct Phase<'a> {
            event: &'static str,
            phase: &'a str,
            seconds: f64,
            detail: &'a str,
        }
        let seconds = took.as_secs_f64();
        self.line(format!("{phase:>10}  {detail} ({})", crate::words::seconds(seconds)));
        self.json(&Phase { event: "phase", phase, seconds, detail });
    }

    /// A warning, on stderr.
    pub(crate) fn warning(&self, text: &str) {
        self.order(Order::Stderr(format!("{YELLOW}warning:{RESET} {text}")));
    }

    /// Something worth knowing, on stderr.
    pub(crate) fn note(&self, text: &str) {
        self.order(Order::Stderr(format!("{CYAN}note:{RESET} {text}")));
    }

    /// Text on stderr that brings its own layout.
    pub(crate) fn block(&self, text: impl Into<String>) {
        self.order(Order::Stderr(text.into()));
    }

    /// Shows that something is under way whose end is not known.
    pub(crate) fn spin(&self, text: impl Into<String>) {
        if self.style == Style::Live {
            self.order(Order::Spin(text.into()));
        }
    }

    /// Changes the text of the live line, and with `fraction` from 0 to 1 draws a bar.
    pub(crate) fn progress(&self, text: String, fraction: Option<f64>) {
        match fraction {
            Some(fraction) => self.bar(1000, (fraction.clamp(0.0, 1.0) * 1000.0) as u64, text),
            None if self.style == Style::Live => self.order(Order::Text(text)),
            None => {}
        }
    }

    /// Draws a bar of `length` steps at `position`.
    pub(crate) fn bar(&self, length: u64, position: u64, text: String) {
        if self.style == Style::Live {
            self.order(Order::Bar { length, position, text });
        }
    }

    /// Takes the live line away.
    pub(crate) fn clear(&self) {
        self.order(Order::Clear);
    }

    /// Waits until everything is written, but not for ever.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        self.order(Order::Flush(done));
        let _ = written.recv_timeout(PATIENCE);
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.clear();
        self.flush();
    }
}

/// Writes what it is told, until the console is gone.
fn write_all(style: Style, queue: &Receiver<Order>) {
    let live = match style {
        Style::Live => {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(FRAMES))
        }
        Style::Plain | Style::Json => ProgressBar::hidden(),
    };
    while let Ok(order) = queue.recv() {
        match order {
            Order::Stdout(text) => live.suspend(|| write(&mut anstream::stdout(), &text)),
            Order::Stderr(text) => live.suspend(|| write(&mut anstream::stderr(), &text)),
            Order::Spin(text) => {
                if let Ok(style) =
                    ProgressStyle::with_template("{spinner:>10.cyan}  {msg} ({elapsed})")
                {
                    live.set_style(style);
                }
                live.unset_length();
                live.set_message(text);
                live.reset_elapsed();
                live.enable_steady_tick(Duration::from_millis(100));
            }
            Order::Bar { length, position, text } => {
                if live.length() != Some(length)
                    && let Ok(style) = ProgressStyle::with_template("{bar:16.cyan/blue} {msg}")
                {
                    live.disable_steady_tick();
                    live.set_style(style.progress_chars("━╸─"));
                    live.set_length(length);
                }
                live.set_message(text);
                live.set_position(position);
            }
            Order::Text(text) => live.set_message(text),
            Order::Clear => {
                live.disable_steady_tick();
                live.finish_and_clear();
                live.reset();
            }
            Order::Flush(done) => drop(done.try_send(())),
        }
    }
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// Prints a failure on stderr: what, then quoted lines, then what to do.
pub(crate) fn print_failure(failure: &Failure) {
    let mut text = String::new();
    match &failure.what {
        What::Recipe(report) => {
            let errors = report.errors();
            text.push_str(&report.render(true));
            let plural = if errors == 1 { "problem" } else { "problems" };
            text.push_str(&format!("\n\n{RED}error:{RESET} {errors} {plural} in {}", report.name));
        }
        What::Message { text: message, quoted } => {
            text.push_str(&format!("{RED}error:{RESET} {message}"));
            for line in quoted {
                text.push_str(&format!("\n  | {line}"));
            }
        }
    }
    for help in &failure.help {
        text.push_str(&format!("\n{CYAN}help:{RESET} {help}"));
    }
    write(&mut anstream::stderr(), &text);
}

/// Prints the result of a command. A reader that has seen enough and closed the pipe is no failure.
pub(crate) fn print_document(text: &str) -> Result<Exit, Failure> {
    print_part(text).map(|_| Exit::Done)
}

/// Prints a part of the result of a command, and says whether anybody reads on.
pub(crate) fn print_part(text: &str) -> Result<bool, Failure> {
    match write_document(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::io(Exit::Usage, "cannot write to stdout", &error)),
    }
}

/// Prints text that brings its own layout on stderr.
pub(crate) fn print_block(text: &str) {
    write(&mut anstream::stderr(), text);
}

/// Prints a warning on stderr.
pub(crate) fn print_warning(text: &str) {
    print_block(&format!("{YELLOW}warning:{RESET} {text}"));
}

/// Writes a whole document to stdout: here a stdout that does not take it is a failure.
pub(crate) fn write_document(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

fn write(stream: &mut impl Write, text: &str) {
    let _ = writeln!(stream, "{text}").and_then(|()| stream.flush());
}
