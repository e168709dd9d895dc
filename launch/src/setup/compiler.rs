//! The C++ compiler that compiled steps need on a CPU: torch's inductor writes C++ and has it compiled.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Variables;

/// The variable that names the compiler, with arguments if it likes, as in `ccache g++`.
pub(crate) const CXX: &str = "CXX";

/// What is looked for where [`CXX`] names nothing. Inductor by itself knows the first alone.
const KNOWN: [&str; 2] = ["g++", "clang++"];

/// How to get one.
pub(crate) const REMEDY: &str = "install one: apt install g++ (Fedora: dnf install gcc-c++)";

/// A compiler that is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    /// What [`CXX`] must name for inductor to take it.
    pub(crate) command: String,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// There is no compiler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoCompiler {
    /// None of those that are known.
    Unknown,
    /// Not the one that [`CXX`] names.
    Named(String),
}

impl fmt::Display for NoCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "neither {} nor {} is in PATH", KNOWN[0], KNOWN[1]),
            Self::Named(name) => write!(f, "{CXX} names `{name}`, which cannot be found"),
        }
    }
}

/// Finds the compiler that inductor will be told to use.
pub(crate) fn find(variables: &Variables) -> Result<Compiler, NoCompiler> {
    let folders = variables.search_path();
    if let Some(command) = variables.text(CXX) {
        let program = command.split_whitespace().next().unwrap_or_default();
        let path = look(program, &folders).ok_or_else(|| NoCompiler::Named(program.to_owned()))?;
        return Ok(Compiler { path, command });
    }
    let found = KNOWN.iter().find_map(|name| Some((*name, look(name, &folders)?)));
    let (name, path) = found.ok_or(NoCompiler::Unknown)?;
    Ok(Compiler { command: name.to_owned(), path })
}

/// A program by its name in one of the folders, or by its path.
fn look(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let can_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| can_run(path));
    }
    folders.iter().map(|folder| folder.join(program)).find(|path| can_run(path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder that has these programs, and a file called `g++` in `notes` that is none.
    fn programs(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::create_dir(folder.path().join("notes")).unwrap();
        fs::write(folder.path().join("notes/g++"), "not a program").unwrap();
        for name in names {
            let path = folder.path().join("bin").join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn found(folder: &Path, cxx: &str) -> Result<String, String> {
        let path = format!("{0}/notes:{0}/bin:relative", folder.display());
        let variables: Variables = [("PATH", path), (CXX, cxx.to_owned())].into_iter().collect();
        match find(&variables) {
            Ok(Compiler { command, path }) => {
                assert!(path.starts_with(folder.join("bin")), "{path:?}");
                Ok(command)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_compiler_is_what_cxx_names_or_the_first_that_is_known() {
        let all = programs(&["g++", "clang++", "ccache"]);
        assert_eq!(found(all.path(), ""), Ok("g++".to_owned()));
        assert_eq!(found(all.path(), "clang++"), Ok("clang++".to_owned()));
        assert_eq!(found(all.path(), "ccache g++"), Ok("ccache g++".to_owned()));
        let whole = all.path().join("bin/clang++").display().to_string();
        assert_eq!(found(all.path(), &whole), Ok(whole.clone()));
        let one = programs(&["clang++"]);
        assert_eq!(found(one.path(), ""), Ok("clang++".to_owned()));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let none = programs(&[]);
        assert_eq!(found(none.path(), ""), Err("neither g++ nor clang++ is in PATH".to_owned()));
        let other = programs(&["g++"]);
        for cxx in ["icpx", "/nowhere/icpx"] {
            let text = format!("CXX names `{cxx}`, which cannot be found");
            assert_eq!(found(other.path(), cxx), Err(text));
        }
    }
}
