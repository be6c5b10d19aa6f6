//! Tools that are built here, from pinned sources, and kept between runs.
//!
//! Each lies below its own version in the cache folder, so that another version never finds an
//! old build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// The path of this program. Asked for once, at the start: a build may put another file in its
/// place, and the system then calls the first one deleted.
///
/// # Errors
/// The system does not say.
pub fn this_program() -> Result<&'static Path> {
    static THIS: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = THIS.get() {
        return Ok(path);
    }
    let path = env::current_exe()?;
    Ok(THIS.get_or_init(|| path))
}

/// A program of one version.
pub struct Tool {
    /// The name of the tool.
    pub name: &'static str,
    /// Its version, without a `v`.
    pub version: &'static str,
}

impl Tool {
    /// The path of the tool once it has been built.
    pub fn path(&self, cache: &Path) -> PathBuf {
        self.folder(cache).join("bin").join(self.name)
    }

    fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name, self.version))
    }

    /// Builds it unless it is there; `build` puts it below `bin` of the folder that it is given.
    ///
    /// That folder is moved to its final place only when it is whole, so that half a build is
    /// never found.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn provide(
        &self,
        cache: &Path,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.path(cache);
        if path.is_file() {
            return Ok(path);
        }
        println!("building {} {}", self.name, self.version);
        fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
        let part = cache.join(format!("{}.{}", self.name, std::process::id()));
        if let Err(error) = build(&part) {
            // The error that counts is the first; what is left behind only takes room.
            drop(fs::remove_dir_all(&part));
            return Err(error);
        }
        let folder = self.folder(cache);
        if let Err(error) = fs::rename(&part, &folder) {
            // Another run may have been quicker; then its build serves as well.
            ensure!(path.is_file(), "{}: {error}", folder.display());
            fs::remove_dir_all(&part)?;
        }
        ensure!(path.is_file(), "{} was not built", path.display());
        Ok(path)
    }
}

/// `MYRIAD_CACHE`, or else `myriad` in the user's cache folder.
///
/// # Errors
/// Neither is known.
pub fn cache_folder() -> Result<PathBuf> {
    let folder = |name: &str| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let chosen = folder("MYRIAD_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("myriad")))
        .or_else(|| Some(folder("HOME")?.join(".cache/myriad")));
    let chosen = chosen.context("no HOME; name a cache folder in MYRIAD_CACHE")?;
    Ok(std::path::absolute(chosen)?)
}

/// Builds a Go package of one of our pinned modules as the program `to`.
///
/// # Errors
/// It is not built.
pub fn build_go(module: &Path, package: &str, flags: &[&str], to: &Path) -> Result<()> {
    let mut command = Command::new("go");
    command.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"]);
    command.args(flags).arg("-o").arg(to).arg(package);
    // The installed Go does: a newer one must not be fetched for it.
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env("GOWORK", "off");
    run_in(module, command)
}

/// Fetches a Go module that one of our modules requires, unless it is there, and returns its
/// folder. Its checksum stands in `go.sum`.
///
/// # Errors
/// It cannot be fetched.
pub fn download_go(module: &Path, name: &str) -> Result<PathBuf> {
    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", name]);
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off");
    let output = command.current_dir(module).output()?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let folder = told["Dir"].as_str();
    ensure!(
        output.status.success() && folder.is_some(),
        "{name} cannot be fetched: {told}"
    );
    Ok(folder.map(PathBuf::from).unwrap_or_default())
}

/// The documents of all YAML files of a folder in their order, as one text. What `kustomize` reads
/// beside them is no object.
pub(crate) fn documents(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| {
        let is_yaml = path.extension().is_some_and(|it| it == "yaml");
        is_yaml && !path.ends_with("kustomization.yaml")
    });
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let file = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.push_str("---\n");
        text.push_str(&file);
    }
    Ok(text)
}

/// Runs a command to its end, with our output and without input.
///
/// # Errors
/// It does not start, or fails.
pub fn run_in(folder: &Path, mut command: Command) -> Result<()> {
    let shown = shown(&command);
    println!("$ {shown}");
    command.current_dir(folder).stdin(Stdio::null());
    let status = command.status();
    let status = status.with_context(|| format!("`{shown}` does not start"))?;
    ensure!(status.success(), "`{shown}` ended with {status}");
    Ok(())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_or_does_not_start_is_an_error() {
        let here = Path::new(".");
        assert!(run_in(here, Command::new("true")).is_ok());
        assert!(run_in(here, Command::new("false")).is_err());
        assert!(run_in(here, Command::new("no-such-program-here")).is_err());
    }

    #[test]
    fn a_tool_is_built_once_and_half_a_build_leaves_nothing() {
        let cache = tempfile::tempdir().expect("a folder");
        let tool = Tool {
            name: "tool",
            version: "1",
        };
        let fails = tool.provide(cache.path(), |part| {
            fs::create_dir_all(part.join("bin"))?;
            anyhow::bail!("the compiler is gone")
        });
        assert!(fails.is_err());
        assert_eq!(fs::read_dir(cache.path()).expect("a folder").count(), 0);

        let build = |part: &Path| {
            fs::create_dir_all(part.join("bin"))?;
            Ok(fs::write(part.join("bin/tool"), "")?)
        };
        let path = tool.provide(cache.path(), build).expect("built");
        assert_eq!(path, cache.path().join("tool-1/bin/tool"));
        let again = tool.provide(cache.path(), |_| unreachable!("it is there"));
        assert_eq!(again.expect("kept"), path);
    }

    #[test]
    fn documents_are_the_files_of_their_folder_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            ("b.yaml", "b: 1\n"),
            ("a.yaml", "a: 1\n"),
            ("kustomization.yaml", "resources: [a.yaml]\n"),
            ("c.txt", "c"),
        ] {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let text = documents(folder.path()).expect("documents");
        assert_eq!(text, "---\na: 1\n---\nb: 1\n");
    }
}
