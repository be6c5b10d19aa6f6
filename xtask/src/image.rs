//! `image`: the image of both parts as an archive, made without a daemon or a registry.
//!
//! The Dockerfile makes the same for those who have docker. What goes in stands in one list here,
//! which a test compares with the Dockerfile's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use myriad_lab::image::{BUILDAH, Image, libraries_of};
use myriad_lab::tool;

use crate::stages::setup;

/// A part of the image.
struct Part {
    origin: Origin,
    /// The place where the Dockerfile has it before the last stage; one that ends with `/` is a
    /// folder, whose files are meant.
    #[allow(dead_code, reason = "a test compares it with the Dockerfile")]
    staged: &'static str,
    /// The place in the image.
    at: &'static str,
}

/// The origin of a part.
enum Origin {
    /// A program of a Debian package that is called otherwise.
    Package(&'static str, &'static str),
    /// The libraries of such a program, but for those of the base.
    LibrariesOf(&'static str),
    /// The binary.
    Ours,
}

const PARTS: [Part; 3] = [
    // `myriad redirect` runs it.
    Part {
        origin: Origin::Package("nft", "nftables"),
        staged: "/nft/usr/sbin/nft",
        at: "/usr/sbin/nft",
    },
    Part {
        origin: Origin::LibrariesOf("nft"),
        staged: "/nft/lib/",
        at: "/usr/local/lib/",
    },
    Part {
        origin: Origin::Ours,
        staged: "/src/target/dist/myriad",
        at: "/usr/local/bin/myriad",
    },
];

/// The setting by which the libraries are found.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH=/usr/local/lib";
/// An unprivileged user and its group.
const USER: &str = "65532:65532";
const ENTRYPOINT: &str = r#"["/usr/local/bin/myriad"]"#;

/// The roots of public authorities, where our binary looks for them.
pub(crate) const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The files of the Dockerfile's base that programs look into.
const BASE: [(&str, &str); 3] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/sbin/nologin\n\
         nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n",
    ),
    ("/etc/group", "root:x:0:\nnonroot:x:65532:\n"),
    ("/etc/nsswitch.conf", "hosts: files dns\n"),
];

/// The most that all files take, in bytes, where the binary is one that is given away. One of the
/// development profile that was built bit by bit is larger.
const BYTES_MAX: u64 = 60 << 20;

/// The most that all files but the binary take, whatever its profile.
const BESIDE_MAX: u64 = 8 << 20;

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Wanted {
    /// The profile that the binary is built with; `dev` is quick to build.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// A binary that is built already, instead of one of that profile.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
    /// The whole name of the image, with host and tag.
    #[arg(long, default_value = concat!("docker.io/library/myriad:", env!("CARGO_PKG_VERSION")))]
    name: String,
    /// The archive.
    #[arg(long, default_value = "target/image/myriad.tar")]
    output: PathBuf,
}

/// Builds the binary, unless there is one, and writes the image.
pub(crate) fn run(root: &Path, wanted: &Wanted) -> Result<()> {
    let binary = match &wanted.binary {
        Some(binary) => binary.clone(),
        None => build(root, &wanted.profile)?,
    };
    let archive = root.join(&wanted.output);
    let bytes = write(root, &binary, &wanted.name, &archive, None)?;
    let (mib, archive) = (mebibytes(bytes), archive.display());
    ensure!(
        bytes <= BYTES_MAX || wanted.profile == "dev",
        "the image has {mib:.1} MiB, and {:.0} are admitted",
        mebibytes(BYTES_MAX)
    );
    println!("{} of {mib:.1} MiB is in {archive}", wanted.name);
    Ok(())
}

/// Builds the binary.
pub(crate) fn build(root: &Path, profile: &str) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "--locked", "--package", "myriad"]);
    build.args(["--profile", profile]);
    tool::run_in(root, build)?;
    let folder = match profile {
        "dev" => "debug",
        other => other,
    };
    Ok(root.join("target").join(folder).join("myriad"))
}

/// Writes the image of this binary, with one more root where there is one, and returns how many
/// bytes it takes.
pub(crate) fn write(
    root: &Path,
    binary: &Path,
    name: &str,
    archive: &Path,
    authority: Option<&Path>,
) -> Result<u64> {
    setup::provide(root, BUILDAH, BUILDAH)?;
    let mut image = Image::new()?;
    image.libraries(binary)?;
    add_roots(&image, authority)?;
    for (at, text) in BASE {
        image.text(text, at)?;
    }
    image.folder("/tmp", true)?;
    let base = libraries_of(binary)?;
    for Part { origin, at, .. } in &PARTS {
        match origin {
            Origin::Package(program, package) => {
                image.file(&setup::provide(root, program, package)?, at)?;
            }
            Origin::LibrariesOf(program) => {
                let program = setup::find(program).context("it was installed before")?;
                for library in libraries_of(&program)?.difference(&base) {
                    let name = library.file_name().context("a library has a name")?;
                    image.file(library, &format!("{at}{}", name.to_string_lossy()))?;
                }
            }
            Origin::Ours => {
                let beside = image.bytes()?;
                let (mib, admitted) = (mebibytes(beside), mebibytes(BESIDE_MAX));
                ensure!(
                    beside <= BESIDE_MAX,
                    "the image has {mib:.1} MiB beside the binary, and {admitted:.0} are admitted"
                );
                image.stripped(binary, at)?;
            }
        }
    }
    image.set(&format!("--env={LIBRARY_PATH}"));
    image.set(&format!("--user={USER}"));
    image.set(&format!("--entrypoint={ENTRYPOINT}"));
    let bytes = image.bytes()?;
    image.write(name, archive)?;
    Ok(bytes)
}

/// Adds the roots of public authorities, and one more.
pub(crate) fn add_roots(image: &Image, authority: Option<&Path>) -> Result<()> {
    let mut text = fs::read_to_string(ROOTS).context(ROOTS)?;
    if let Some(path) = authority {
        text += &fs::read_to_string(path).with_context(|| path.display().to_string())?;
    }
    image.text(&text, ROOTS)
}

#[allow(clippy::cast_precision_loss, reason = "it is shown with one digit")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKERFILE: &str = include_str!("../../deploy/Dockerfile");

    /// The last stage of the Dockerfile.
    fn words_of(instruction: &str) -> Vec<&'static str> {
        let (_, last) = DOCKERFILE.rsplit_once("\nFROM ").expect("two stages");
        let lines = last.lines();
        let found = lines.filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' '));
        found.collect()
    }

    #[test]
    fn the_dockerfile_copies_what_the_image_has() {
        let parts = PARTS.map(|Part { staged, at, .. }| format!("--from=build {staged} {at}"));
        assert_eq!(words_of("COPY"), parts);
        assert_eq!(words_of("ENV"), [LIBRARY_PATH]);
        assert_eq!(words_of("USER"), [USER]);
        assert_eq!(words_of("ENTRYPOINT"), [ENTRYPOINT]);
    }
}
