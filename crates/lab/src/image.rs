//! Images of containers, made of files of this machine without a daemon, a registry or a base.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The program that makes archives of them.
pub const BUILDAH: &str = "buildah";

/// The files of an image that is about to be written.
pub struct Image {
    tree: tempfile::TempDir,
    settings: Vec<String>,
}

impl Image {
    /// One without a file.
    ///
    /// # Errors
    /// There is no room for its files.
    pub fn new() -> Result<Image> {
        let tree = tempfile::tempdir()?;
        let settings = Vec::new();
        Ok(Image { tree, settings })
    }

    /// Adds a file of this machine, at its place in the image. Whoever may run it may do so there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn file(&self, from: &Path, at: &str) -> Result<()> {
        let to = self.place(at)?;
        fs::copy(from, &to).with_context(|| from.display().to_string())?;
        let is_program = fs::metadata(&to)?.permissions().mode() & 0o100 != 0;
        let mode = if is_program { 0o755 } else { 0o644 };
        Ok(fs::set_permissions(&to, Permissions::from_mode(mode))?)
    }

    /// Adds a program without what only debuggers read.
    ///
    /// # Errors
    /// `strip` does not take it.
    pub fn stripped(&self, program: &Path, at: &str) -> Result<()> {
        self.file(program, at)?;
        output(Command::new("strip").arg(self.place(at)?)).map(drop)
    }

    /// Adds a file with this text.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn text(&self, text: &str, at: &str) -> Result<()> {
        let to = self.place(at)?;
        fs::write(&to, text)?;
        Ok(fs::set_permissions(&to, Permissions::from_mode(0o644))?)
    }

    /// Adds a script of the shell, which everybody may run.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn script(&self, line: &str, at: &str) -> Result<()> {
        self.text(&format!("#!/bin/sh\n{line}\n"), at)?;
        let to = self.place(at)?;
        Ok(fs::set_permissions(&to, Permissions::from_mode(0o755))?)
    }

    /// Adds those files and folders of a folder of this machine whose names are wanted, each as
    /// [`Image::file`] does.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn files(&self, from: &Path, at: &str, is_wanted: fn(&str) -> bool) -> Result<()> {
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let (path, name) = entry.map(|it| (it.path(), it.file_name()))?;
            let name = name.to_string_lossy();
            let at = format!("{at}/{name}");
            if !is_wanted(&name) {
                continue;
            }
            match path.is_dir() {
                true => self.files(&path, &at, is_wanted)?,
                false => self.file(&path, &at)?,
            }
        }
        Ok(())
    }

    /// Adds a folder, for everybody to write in where `is_public`.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn folder(&self, at: &str, is_public: bool) -> Result<()> {
        let to = self.place(at)?;
        fs::create_dir_all(&to)?;
        let mode = if is_public { 0o1777 } else { 0o755 };
        Ok(fs::set_permissions(&to, Permissions::from_mode(mode))?)
    }

    /// Adds a program of this machine where it lies here, and its libraries.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn program(&self, program: &Path) -> Result<()> {
        self.file(program, &program.to_string_lossy())?;
        self.libraries(program)
    }

    /// Adds the libraries of a program where they lie here, the loader among them.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn libraries(&self, program: &Path) -> Result<()> {
        for library in libraries_of(program)? {
            self.file(&library, &library.to_string_lossy())?;
        }
        Ok(())
    }

    /// Sets something as `buildah config` does: `--user=7`.
    pub fn set(&mut self, setting: &str) {
        self.settings.push(setting.to_owned());
    }

    /// The bytes of all its files.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn bytes(&self) -> Result<u64> {
        bytes_below(self.tree.path())
    }

    /// Writes it as an archive of the Open Container Initiative, under a whole name with host and
    /// tag. The same files are the same image, whenever it is written.
    ///
    /// # Errors
    /// `buildah` is missing or fails.
    pub fn write(&self, name: &str, archive: &Path) -> Result<()> {
        let store = tempfile::tempdir()?;
        let buildah = |action: &str| {
            let mut command = Command::new(BUILDAH);
            command.arg("--root").arg(store.path().join("root"));
            command.arg("--runroot").arg(store.path().join("run"));
            command.args(["--storage-driver", "vfs", action]);
            command
        };
        let container = output(buildah("from").arg("scratch"))?;
        let mut copy = buildah("copy");
        copy.args(["--quiet", "--chown", "0:0", &container]);
        output(copy.arg(self.tree.path()).arg("/"))?;
        output(buildah("config").args(&self.settings).arg(&container))?;
        if let Some(folder) = archive.parent() {
            fs::create_dir_all(folder)?;
        }
        // It would be added to what is there.
        drop(fs::remove_file(archive));
        let target = format!("oci-archive:{}:{name}", archive.display());
        let mut commit = buildah("commit");
        commit.args(["--quiet", "--timestamp=0", "--rm", &container, &target]);
        output(&mut commit).map(drop)
    }

    /// The path of a file before it is in the image.
    fn place(&self, at: &str) -> Result<PathBuf> {
        let place = self.tree.path().join(at.trim_start_matches('/'));
        fs::create_dir_all(place.parent().context("it lies in a folder")?)?;
        Ok(place)
    }
}

/// The libraries that a program of this machine is linked with, the loader among them; none of one
/// that needs none.
///
/// # Errors
/// `ldd` does not find one.
pub fn libraries_of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let listing = match output(Command::new("ldd").arg(program)) {
        Err(error) if format!("{error:#}").contains("not a dynamic executable") => String::new(),
        listing => listing?,
    };
    read_libraries(&listing).with_context(|| program.display().to_string())
}

fn read_libraries(listing: &str) -> Result<BTreeSet<PathBuf>> {
    ensure!(
        !listing.contains("not found"),
        "a library is missing: {listing}"
    );
    // `name => /path (address)`, or `/path (address)` for the loader; one has no path.
    let words = listing.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        words.find(|word| word.starts_with('/'))
    });
    Ok(words.map(PathBuf::from).collect())
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

/// Runs a command, and returns what it prints without the end of its line.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("`{program}`"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{program}` ended with {}: {}{}",
        output.status,
        complaint.trim(),
        String::from_utf8_lossy(&output.stdout).trim()
    );
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_with_the_loader_and_without_what_the_kernel_brings() {
        let listing = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let expected = ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        let expected: BTreeSet<PathBuf> = expected.map(PathBuf::from).into();
        assert_eq!(read_libraries(listing).expect("a listing"), expected);
        assert!(read_libraries("\tlibx.so => not found\n").is_err());
        assert!(
            read_libraries("\tstatically linked\n")
                .expect("none")
                .is_empty()
        );
    }

    #[test]
    fn files_lie_at_their_places_with_the_rights_that_containers_need() {
        let image = Image::new().expect("a folder");
        image.text("seven b", "/etc/a").expect("written");
        image.folder("/tmp", true).expect("made");
        image.script("true", "/bin/true").expect("written");
        let tree = image.tree.path();
        let is_wanted = |name: &str| name != "tmp" && name != "all";
        image.files(tree, "/all", is_wanted).expect("copied");
        let mode = |at: &str| fs::metadata(image.tree.path().join(at)).map(|it| it.permissions());
        for (at, expected) in [
            ("etc/a", 0o644),
            ("bin/true", 0o755),
            ("all/etc/a", 0o644),
            ("all/bin/true", 0o755),
        ] {
            assert_eq!(mode(at).expect("there").mode() & 0o7777, expected, "{at}");
        }
        assert!(mode("all/tmp").is_err());
        assert_eq!(mode("tmp").expect("there").mode() & 0o7777, 0o1777);
        assert_eq!(image.bytes().expect("read"), 2 * (7 + 15));
    }
}
