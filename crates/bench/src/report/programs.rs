//! The programs that take part: their paths, and versions by which a point is known again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use myriad_lab::{peer, tool};

/// Peers that can take part.
pub(super) const ENVOY: &str = "envoy";
pub(super) const PEERS: [&str; 3] = [ENVOY, "haproxy", "nginx"];

/// This program, and the one that it measures.
pub(super) const BENCH: &str = "myriad-bench";
const MYRIAD: &str = "myriad";

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 16;

/// A peer that takes part.
struct Found {
    path: PathBuf,
    version: String,
}

/// All programs.
pub(super) struct Programs {
    /// Names and versions of Myriad's own.
    own: BTreeMap<String, String>,
    /// Each peer, or why it takes no part.
    peers: BTreeMap<&'static str, Result<Found, String>>,
}

impl Programs {
    /// Finds them; unless all are to be present, those that are missing are fetched.
    pub(super) fn find(is_alone: bool, is_present: bool) -> Programs {
        let peers = PEERS.into_iter().map(|name| {
            let found = match is_alone {
                true => Err("left out by --alone".to_owned()),
                false => find(name, is_present),
            };
            (name, found)
        });
        let bench = std::env::current_exe().ok();
        let myriad = std::env::var_os("MYRIAD_BIN").map(PathBuf::from);
        let myriad = myriad.or_else(|| Some(bench.as_ref()?.with_file_name("myriad")));
        let own = [(BENCH, bench), (MYRIAD, myriad)];
        let own = own.into_iter().filter_map(|(name, path)| {
            let version = env!("CARGO_PKG_VERSION");
            // Builds of one version differ, so the file itself is part of it.
            Some((
                name.to_owned(),
                format!("{version} ({})", digest(&path?).ok()?),
            ))
        });
        Programs {
            own: own.collect(),
            peers: peers.collect(),
        }
    }

    /// Why a peer takes no part; nothing where it does.
    pub(super) fn absence(&self, peer: &str) -> Option<String> {
        match self.peers.get(peer) {
            Some(Ok(_)) => None,
            Some(Err(reason)) => Some(reason.clone()),
            None => Some("not known".to_owned()),
        }
    }

    /// The version of a peer that takes part.
    pub(super) fn version(&self, peer: &str) -> Option<&str> {
        let found = self.peers.get(peer)?.as_ref().ok()?;
        Some(&found.version)
    }

    /// The versions of Myriad's own programs.
    pub(super) fn own(&self) -> &BTreeMap<String, String> {
        &self.own
    }

    /// The versions of all that take part.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        let mut all = self.own.clone();
        let peers = self.peers.iter().filter_map(|(name, found)| {
            let found = found.as_ref().ok()?;
            Some(((*name).to_owned(), found.version.clone()))
        });
        all.extend(peers);
        all
    }

    /// The variables by which commands find the peers.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, OsString)> {
        self.peers.iter().filter_map(|(name, found)| {
            let found = found.as_ref().ok()?;
            Some((peer::variable(name), found.path.clone().into()))
        })
    }

    /// Programs that are not there, for tests.
    #[cfg(test)]
    pub(super) fn of_test(version: &str, peers: &[&'static str]) -> Programs {
        let peers = PEERS.into_iter().map(|name| {
            let found = match peers.contains(&name) {
                true => Ok(Found {
                    path: "/nowhere".into(),
                    version: format!("{name} 1.0.0"),
                }),
                false => Err("absent".to_owned()),
            };
            (name, found)
        });
        Programs {
            own: [(MYRIAD.to_owned(), version.to_owned())].into(),
            peers: peers.collect(),
        }
    }

    /// The same, of another build of this program.
    #[cfg(test)]
    pub(super) fn by(mut self, build: &str) -> Programs {
        self.own.insert(BENCH.to_owned(), build.to_owned());
        self
    }
}

fn find(name: &str, is_present: bool) -> Result<Found, String> {
    let path = match (present(name), is_present) {
        (Some(path), _) => path,
        (None, true) => {
            return Err(format!("not there; `cargo xtask peer {name}` provides it"));
        }
        (None, false) => peer::provided(name).map_err(|error| format!("{error:#}"))?,
    };
    let version = version(name, &path).map_err(|error| format!("{error:#}"))?;
    Ok(Found { path, version })
}

/// A program that is in the cache of tools, or where the system keeps programs.
fn present(name: &str) -> Option<PathBuf> {
    let of_system = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];
    let of_system = of_system.map(|folder| Path::new(folder).join(name));
    let mut of_cache: Vec<PathBuf> = Vec::new();
    if let Ok(folder) = tool::cache_folder()
        && let Ok(entries) = std::fs::read_dir(folder)
    {
        let tools = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let (tool, _) = path.file_name()?.to_str()?.rsplit_once('-')?;
            (tool == name).then(|| path.join("bin").join(name))
        });
        of_cache.extend(tools);
    }
    // The newest of several is the last by its name.
    of_cache.sort();
    let mut all = of_cache.into_iter().rev().chain(of_system);
    all.find(|path| path.is_file())
}

fn version(name: &str, path: &Path) -> anyhow::Result<String> {
    if name == ENVOY {
        return peer::version(path);
    }
    let output = Command::new(path).arg("-v").output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // "HAProxy version 2.6.12-1 2026/10/17 ...", "nginx version: nginx/1.22.1"
    let is_version = |word: &&str| word.starts_with(|start: char| start.is_ascii_digit());
    let version = text.split([' ', '/', '-', '+', '\n']).find(is_version);
    Ok(format!("{name} {}", version.unwrap_or("of some version")))
}

/// A short digest of a file.
fn digest(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = std::hash::DefaultHasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(format!("{:016x}", hasher.finish()));
        }
        hasher.write(&chunk[..count]);
    }
}
