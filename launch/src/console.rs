//! Everything that titan-tpu prints. stdout has results: step lines, JSON, reports. stderr has the progress bar,
//! warnings and errors. A stream that was closed by its reader is no reason to end a run.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

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
pub(crate) struct Console {
    style: Style,
    live: ProgressBar,
}

/// Frames of the live line per second.
const FRAMES: u8 = 10;

impl Console {
    pub(crate) fn new(style: Style) -> Self {
        let live = match style {
            Style::Live => {
                ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(FRAMES))
            }
            Style::Plain | Style::Json => ProgressBar::hidden(),
        };
        Self { style, live }
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// A line that stays, on stdout; JSON output has objects instead.
    pub(crate) fn line(&self, text: &str) {
        if self.style != Style::Json {
            self.live.suspend(|| write(&mut anstream::stdout(), text));
        }
    }

    /// A JSON object, if that is the style.
    pub(crate) fn json(&self, value: &impl Serialize) {
        if self.style == Style::Json
            && let Ok(text) = serde_json::to_string(value)
        {
            write(&mut io::stdout(), &text);
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
        self.line(&format!("{phase:>10}  {detail} ({})", crate::words::seconds(seconds)));
        self.json(&Phase { event: "phase", phase, seconds, detail });
    }

    /// A warning, on stderr.
    pub(crate) fn warning(&self, text: &str) {
        self.live
            .suspend(|| write(&mut anstream::stderr(), &format!("{YELLOW}warning:{RESET} {text}")));
    }

    /// Something worth knowing, on stderr.
    pub(crate) fn note(&self, text: &str) {
        self.live.suspend(|| write(&mut anstream::stderr(), &format!("{CYAN}note:{RESET} {text}")));
    }

    /// Text on stderr that brings its own layout.
    pub(crate) fn block(&self, text: &str) {
        self.live.suspend(|| write(&mut anstream::stderr(), text));
    }

    /// Shows that something is under way whose end is not known.
    pub(crate) fn spin(&self, text: impl Into<String>) {
        if self.style == Style::Live {
            if let Ok(style) = ProgressStyle::with_template("{spinner:>10.cyan}  {msg} ({elapsed})")
            {
                self.live.set_style(style);
            }
            self.live.set_message(text.into());
            self.live.reset_elapsed();
            self.live.enable_steady_tick(Duration::from_millis(100));
        }
    }

    /// Changes the text of the live line, and with `fraction` from 0 to 1 draws a bar.
    pub(crate) fn progress(&self, text: String, fraction: Option<f64>) {
        if let Some(fraction) = fraction {
            self.bar(1000, (fraction.clamp(0.0, 1.0) * 1000.0) as u64, text);
        } else {
            self.live.set_message(text);
        }
    }

    /// Draws a bar of `length` steps at `position`.
    pub(crate) fn bar(&self, length: u64, position: u64, text: String) {
        if self.style == Style::Live {
            if self.live.length() != Some(length)
                && let Ok(style) = ProgressStyle::with_template("{bar:>24.cyan/blue} {wide_msg}")
            {
                self.live.disable_steady_tick();
                self.live.set_style(style.progress_chars("━╸─"));
                self.live.set_length(length);
            }
            self.live.set_message(text);
            self.live.set_position(position);
        }
    }

    /// Takes the live line away.
    pub(crate) fn clear(&self) {
        self.live.disable_steady_tick();
        self.live.finish_and_clear();
        self.live.reset();
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
            text.push_str(&format!(
                "\n\n{RED}error:{RESET} {errors} {plural} in {}; nothing was started",
                report.name
            ));
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

fn write(stream: &mut impl Write, text: &str) {
    let _ = writeln!(stream, "{text}").and_then(|()| stream.flush());
}
