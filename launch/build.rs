//! Builds the native module and embeds it in the binary, together with the Python package.
//!
//! The module is built by a cargo of its own, in a target folder of its own: it is a different artifact (a shared
//! object that Python loads), with fewer features, always optimised. No Python is needed to build it.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let launch = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = launch.parent().ok_or("launch has no parent folder")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for part in [
        "recipes/crate/src",
        "parallelism/src",
        "datasets/src",
        "objects/src",
        "checkpoint/src",
        "trainer",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(part).display());
    }
    let native = build_native(workspace, &out)?;
    embed(&workspace.join("trainer/engine"), &native, &out)
}

/// Builds `trainer/native` and returns the shared object.
fn build_native(workspace: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = native_target(out);
    let mut command = Command::new(env::var("CARGO")?);
    command.args(["build", "--release", "--locked", "--message-format=short"]);
    command.arg("--manifest-path").arg(workspace.join("trainer/native/Cargo.toml"));
    command.arg("--target-dir").arg(&target);
    if let Some(triple) = cross_target()? {
        command.arg("--target").arg(triple);
    }
    // These belong to the cargo that runs this script: clippy's wrapper, flags, and the profile.
    for name in [
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "RUSTFLAGS",
        "PYO3_PYTHON",
    ] {
        command.env_remove(name);
    }
    // The stable ABI needs no interpreter to link against.
    command.env("PYO3_NO_PYTHON", "1").env("PYO3_BUILD_EXTENSION_MODULE", "1");
    let status = command.status()?;
    if !status.success() {
        return Err(format!("building trainer/native failed: {status}").into());
    }
    let mut folder = target;
    if let Some(triple) = cross_target()? {
        folder.push(triple);
    }
    Ok(folder.join("release").join("lib_native.so"))
}

/// `target/native`, shared by all profiles: OUT_DIR is `target/PROFILE/build/NAME/out`.
fn native_target(out: &Path) -> PathBuf {
    out.ancestors().nth(4).unwrap_or(out).join("native")
}

fn cross_target() -> Result<Option<String>, env::VarError> {
    let (host, target) = (env::var("HOST")?, env::var("TARGET")?);
    Ok((host != target).then_some(target))
}

/// Writes `engine_files.rs`: the name and content of every file of the engine.
fn embed(engine: &Path, native: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    collect(engine, engine, &mut files)?;
    files.push(("titan_tpu/_native.abi3.so".to_owned(), native.to_owned()));
    files.sort();
    let mut code = String::from("&[\n");
    for (name, path) in &files {
        writeln!(
            code,
            "    ({name:?}, include_bytes!({:?})),",
            path.to_str().ok_or("path is not UTF-8")?
        )?;
    }
    code.push(']');
    fs::write(out.join("engine_files.rs"), code)?;
    Ok(())
}

fn collect(
    root: &Path,
    folder: &Path,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "py") {
            let name = path.strip_prefix(root)?.to_str().ok_or("path is not UTF-8")?;
            files.push((name.to_owned(), path.clone()));
        }
    }
    Ok(())
}
