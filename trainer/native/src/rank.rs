//! One rank: takes its assignment, makes the engine, runs the loop, reports.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pyo3::prelude::*;
use rustix::process::{Signal, kill_process_group, set_parent_process_death_signal};
use titan_checkpoint::hugging_face::{Folder, is_weight};
use titan_checkpoint::{Checkpoint, Wanted, restore};
use titan_datasets::{Loader, Prefetcher, Validation};
use titan_trainer::channel::{Lines, write_line};
use titan_trainer::engine::{Engine, StatePart};
use titan_trainer::failure::{Failure, FailureClass};
use titan_trainer::protocol::{Assignment, RankMessage, RankOrder};
use titan_trainer::saver::Saver;
use titan_trainer::spec::Resume;
use titan_trainer::training_loop::{self, LoopPlan, Outcome, Surroundings, ValidationBatches};

use crate::host::{RankFiles, complain};
use crate::python_engine::PythonEngine;

/// Batches that are read ahead of the step.
const PREFETCH: usize = 2;

/// Runs rank `rank` to its end and returns its exit code: 0 if it finished, 1 if it failed and said why.
pub(crate) fn run(py: Python<'_>, rank: u64, files: RankFiles) -> i32 {
    let channel = UnixStream::from(files.channel);
    let listener = files.rendezvous;
    let listen_fd = listener.as_ref().map(AsRawFd::as_raw_fd);
    let worked = catch_unwind(AssertUnwindSafe(|| work(py, rank, &channel, listen_fd)));
    // torch has taken over the descriptor of the listening socket and closes it.
    std::mem::forget(listener);
    let (step, failure) = match worked {
        Ok(Ok(())) => return 0,
        Ok(Err(failed)) => failed,
        Err(_) => {
            (0, Failure::new(FailureClass::Internal, "the worker panicked; its log has the place"))
        }
    };
    complain(&format!("rank {rank} failed in step {step}: {failure}"));
    if write_line(&channel, &RankMessage::Failed { step, failure }).is_err() {
        complain("the launcher could not be told");
    }
    1
}

fn work(
    py: Python<'_>,
    rank: u64,
    channel: &UnixStream,
    listen_fd: Option<i32>,
) -> Result<(), (u64, Failure)> {
    let before_steps = |error: io::Error| (0, lost(&error));
    let mut lines = Lines::new(channel.try_clone().map_err(before_steps)?);
    let assignment = py.detach(|| lines.receive::<Assignment>()).map_err(before_steps)?;
    let Some(mut assignment) = assignment else {
        return Err((0, Failure::new(FailureClass::Internal, "the launcher gave no assignment")));
    };
    assignment.rendezvous.listen_fd = listen_fd;
    let stop = follow_orders(lines).map_err(before_steps)?;
    // Whoever ends machines may tell each process of it.
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&asked))
        .map_err(before_steps)?;

    let started = Instant::now();
    let run = assignment.run;
    let loader = Loader::open(&run.loader_config()).map_err(|error| (0, error.into()))?;
    let steps = run.steps_done()..run.steps;
    let data_rank = run.layout.data_rank(rank);
    let mut batches =
        Prefetcher::start(loader, data_rank, steps, PREFETCH).map_err(|error| (0, error.into()))?;
    let validation = match run.validation_config() {
        Some(config) => {
            Some(Arc::new(Validation::open(&config).map_err(|error| (0, error.into()))?))
        }
        None => None,
    };
    let mut engine =
        PythonEngine::new(py, &run.engine, rank, &assignment.rendezvous).map_err(|f| (0, f))?;
    let (parameters_total, parameters_local, threads) = engine.describe(py).map_err(|f| (0, f))?;
    py.detach(|| match (&run.resume, &run.init) {
        (Some(resume), _) => load(&mut engine, resume, threads),
        (None, Some(folder)) => begin_with(&mut engine, folder, threads),
        (None, None) => Ok(()),
    })
    .map_err(|f| (0, f))?;
    let ready = RankMessage::Ready {
        engine_seconds: started.elapsed().as_secs_f64(),
        parameters_total,
        parameters_local,
        threads,
    };
    write_line(channel, &ready).map_err(before_steps)?;

    let plan = LoopPlan {
        first_step: run.steps_done() + 1,
        last_step: run.steps,
        learning_rate: run.learning_rate,
        validate_every: run.data.validation.as_ref().map(|validation| validation.interval_steps),
        save: run.save.as_ref().map(|save| save.plan),
        watches_time: rank == 0,
    };
    let persistent = run.resume.as_ref().filter(|resume| resume.is_persistent);
    let resumed = persistent.map(|resume| resume.step);
    let mut saver = run.save.map(|save| Saver::new(save.to, rank, threads as usize, resumed));
    let stop_wanted = || {
        if asked.swap(false, Ordering::Relaxed) {
            // The others stop too: the wish travels with the loss.
            stop.store(true, Ordering::Relaxed);
            let signal = "SIGTERM".to_owned();
            drop(write_line(channel, &RankMessage::StopAsked { signal }));
        }
        stop.load(Ordering::Relaxed)
    };
    // If the launcher is gone, the thread that reads its orders ends this process.
    let mut report = |mut message: RankMessage| {
        if let RankMessage::Step(step) = &mut message {
            // All ranks have the same loads, and there is one for each of up to thousands of experts.
            step.experts = step.experts.take().filter(|_| rank == 0);
        }
        drop(write_line(channel, &message));
    };
    let Outcome { ending, step } = py.detach(|| {
        let around = Surroundings {
            batches: &mut batches,
            validation: &mut || Ok(validation_batches(validation.clone(), data_rank)),
            saver: saver.as_mut(),
            stop_wanted: &stop_wanted,
            now: &|| started.elapsed(),
            report: &mut report,
        };
        training_loop::run(&mut engine, &plan, around)
    })?;
    write_line(channel, &RankMessage::Finished { ending, step })
        .map_err(|error| (step, lost(&error)))?;
    engine.close(py);
    Ok(())
}

/// Replaces the state of a new engine by that of a checkpoint. One of step 0 has weights alone.
fn load(engine: &mut PythonEngine, resume: &Resume, threads: u64) -> Result<(), Failure> {
    let (copies, threads) = copies(resume, threads as usize)?;
    engine.resume(resume.step, &mut |parts| {
        restore(&copies, wanted(parts, resume.step == 0), threads, &AtomicBool::new(false))
            .map(drop)
            .map_err(|error| unusable(&error))
    })
}

/// Replaces the weights of a new engine by those of a model in Hugging Face's format.
fn begin_with(engine: &mut PythonEngine, folder: &Path, threads: u64) -> Result<(), Failure> {
    let folder = Folder::open(folder).map_err(|error| unusable(&error))?;
    engine.resume(0, &mut |parts| {
        folder
            .read(wanted(parts, true), threads as usize, &AtomicBool::new(false))
            .map(drop)
            .map_err(|error| unusable(&error))
    })
}

/// The copies of a checkpoint that can be opened, and how many threads read them best.
fn copies(resume: &Resume, threads: usize) -> Result<(Vec<Checkpoint>, usize), Failure> {
    let opened = resume.copies.iter().map(titan_checkpoint::open);
    let (copies, errors): (Vec<_>, Vec<_>) = opened.partition(Result::is_ok);
    let copies: Vec<Checkpoint> = copies.into_iter().flatten().collect();
    if let (true, Some(Err(error))) = (copies.is_empty(), errors.into_iter().next()) {
        return Err(unusable(&error));
    }
    let threads = copies.first().map_or(threads, |copy| copy.place().reading_threads(threads));
    Ok((copies, threads))
}

fn wanted(parts: Vec<StatePart<'_>>, only_weights: bool) -> Vec<Wanted<'_>> {
    let parts = parts.into_iter().filter(|state| !only_weights || is_weight(&state.part.name));
    let wanted = parts.map(|StatePart { part, memory, .. }| Wanted {
        name: part.name,
        tensor: part.tensor,
        region: part.region,
        into: memory,
    });
    wanted.collect()
}

fn unusable(error: &titan_checkpoint::Error) -> Failure {
    Failure::new(FailureClass::Checkpoint, error.to_string())
}

/// The batches of one validation.
fn validation_batches(validation: Option<Arc<Validation>>, data_rank: u64) -> ValidationBatches {
    let Some(validation) = validation else { return Box::new(std::iter::empty()) };
    let batches = (0..validation.batches()).map(move |batch| {
        let mut tokens = vec![0; validation.batch_len()];
        validation.fill(batch, data_rank, &mut tokens).map(|()| tokens)
    });
    Box::new(batches)
}

fn lost(error: &io::Error) -> Failure {
    Failure::new(FailureClass::Internal, format!("the channel to the launcher failed: {error}"))
}

/// Reads the launcher's orders on a thread of their own. A closed channel means that the launcher is gone: then
/// this process and all it has started are killed at once, even in the middle of a collective. (The kernel would kill this
/// process alone. It wakes it instead, should it be stopped, so that this thread can do its work.)
fn follow_orders(mut lines: Lines) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::Builder::new().name("titan-orders".to_owned()).spawn(move || {
        while let Ok(Some(RankOrder::Stop)) = lines.receive::<RankOrder>() {
            flag.store(true, Ordering::Relaxed);
        }
        complain("the launcher is gone");
        let _ = kill_process_group(rustix::process::getpid(), Signal::KILL);
    })?;
    set_parent_process_death_signal(Some(Signal::CONT))?;
    Ok(stop)
}
