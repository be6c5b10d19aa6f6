//! Lists the directories and files below a directory.

use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use super::Limits;
use super::file::explain;
use super::name;
use super::problem::Problem;

/// How deep directories are followed, links to directories included.
const DEPTH_MAX: usize = 32;

/// The entries that were found. All paths are as the root was given, with the way below it
/// appended.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) directories: Vec<Arc<str>>,
    /// The files that may hold objects, sorted.
    pub(crate) files: Vec<Arc<str>>,
    /// Directories that could not be listed or watched, and names that could not be read.
    pub(crate) troubles: Vec<(Arc<str>, Problem)>,
    /// Directories of whose entries nothing is known: absence in them means nothing.
    pub(crate) unlisted: Vec<Arc<str>>,
}

/// Lists `start`, which is `root` or lies below it. `enter` is called with every directory
/// before its entries are listed, so that whoever watches it misses none.
pub(crate) fn list(
    root: &str,
    start: &Arc<str>,
    limits: &Limits,
    enter: &mut dyn FnMut(&Arc<str>) -> io::Result<()>,
) -> Listing {
    let mut walk = Walk {
        root,
        listing: Listing::default(),
        open: Vec::new(),
    };
    let depth = start
        .matches('/')
        .count()
        .saturating_sub(root.matches('/').count());
    walk.open.push((start.clone(), depth));
    while let Some((directory, depth)) = walk.open.pop() {
        let entered = enter(&directory);
        let entries = match fs::read_dir(&*directory) {
            Ok(entries) => entries,
            // It went away; if it was a directory of ours, its own event says so.
            Err(error) if is_gone(&error) && *directory != *root => continue,
            Err(error) => {
                walk.skip(directory, explain(&error));
                continue;
            }
        };
        if let Err(error) = entered {
            walk.listing
                .troubles
                .push((directory.clone(), not_watched(&error)));
        }
        walk.listing.directories.push(directory.clone());
        for entry in entries {
            match entry {
                Ok(entry) => walk.take(&directory, depth, &entry),
                Err(error) => {
                    walk.skip(directory.clone(), explain(&error));
                    break;
                }
            }
        }
        let listing = &walk.listing;
        let is_full = listing.directories.len() >= limits.directories_max && !walk.open.is_empty();
        if is_full || listing.files.len() > limits.files_max {
            walk.listing.files.truncate(limits.files_max);
            walk.skip(root.into(), too_many(limits));
            break;
        }
    }
    walk.listing.files.sort();
    walk.listing
}

/// Whether following a link to a directory would lead back to where it stands. Compares with
/// every directory on the visible way, and with those above the root.
pub(crate) fn is_cycle(root: &str, link: &str) -> bool {
    let Ok(target) = fs::canonicalize(link) else {
        return true;
    };
    let mut above = Some(link);
    while let Some(path) = above {
        above = path.rsplit_once('/').map(|(above, _)| above);
        let Some(directory) = above.filter(|above| above.len() >= root.len()) else {
            break;
        };
        if fs::canonicalize(directory).is_ok_and(|directory| directory.starts_with(&target)) {
            return true;
        }
    }
    fs::canonicalize(root).is_ok_and(|root| root.starts_with(&target))
}

struct Walk<'a> {
    root: &'a str,
    listing: Listing,
    open: Vec<(Arc<str>, usize)>,
}

impl Walk<'_> {
    fn take(&mut self, directory: &Arc<str>, depth: usize, entry: &DirEntry) {
        let file_name = entry.file_name();
        let lossy = file_name.to_string_lossy();
        if name::is_hidden(&lossy) {
            return;
        }
        let path = name::join(directory, &lossy);
        let Ok(mut kind) = entry.file_type() else {
            return;
        };
        let is_link = kind.is_symlink();
        if is_link && let Ok(target) = fs::metadata(Path::new(directory.as_ref()).join(&file_name))
        {
            kind = target.file_type();
        }
        if !kind.is_dir() && !name::holds_objects(&lossy) {
            return;
        }
        if file_name.to_str().is_none() {
            let remedy = "rename it";
            self.skip(path, Problem::new("has a name that is not UTF-8", remedy));
        } else if !kind.is_dir() {
            self.listing.files.push(path);
        } else if depth >= DEPTH_MAX {
            let remedy = "move its files up";
            self.skip(path, Problem::new("lies too deep to be read", remedy));
        } else if is_link && is_cycle(self.root, &path) {
            let remedy = "remove the link";
            self.skip(
                path,
                Problem::new("is a link to a directory above itself", remedy),
            );
        } else {
            self.open.push((path, depth + 1));
        }
    }

    fn skip(&mut self, path: Arc<str>, problem: Problem) {
        self.listing.troubles.push((path.clone(), problem));
        self.listing.unlisted.push(path);
    }
}

/// The problem of a root that holds more than is read.
pub(crate) fn too_many(limits: &Limits) -> Problem {
    let message = format!(
        "has more than {} files or {} directories; the rest is not read",
        limits.files_max, limits.directories_max
    );
    Problem::new(
        message,
        "put less into the directory, or several objects into a file",
    )
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn not_watched(error: &io::Error) -> Problem {
    let message = format!("is not watched, so that changes in it are not seen: {error}");
    Problem::new(
        message,
        "raise the limit fs.inotify.max_user_watches of the system",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn list_all(root: &Path) -> (Vec<String>, Vec<String>) {
        let root: Arc<str> = root.display().to_string().into();
        let listing = list(&root, &root, &Limits::default(), &mut |_| Ok(()));
        let below = |path: &Arc<str>| path.replace(&*root, "");
        let mut troubles: Vec<_> = listing
            .troubles
            .iter()
            .map(|(path, _)| below(path))
            .collect();
        troubles.sort();
        (listing.files.iter().map(below).collect(), troubles)
    }

    #[test]
    fn files_are_found_at_any_depth_and_through_links() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        for sub in ["root/a/b", "root/.git", "elsewhere"] {
            fs::create_dir_all(directory.path().join(sub)).expect("directories");
        }
        for file in [
            "root/x.yaml",
            "root/a/b/y.json",
            "root/a/b/y.txt",
            "root/.git/z.yaml",
            "elsewhere/w.yml",
        ] {
            fs::write(directory.path().join(file), "").expect("a file");
        }
        symlink("../elsewhere", root.join("link")).expect("a link");
        symlink("../elsewhere/w.yml", root.join("v.yaml")).expect("a link");
        let expected = ["/a/b/y.json", "/link/w.yml", "/v.yaml", "/x.yaml"];
        assert_eq!(
            list_all(&root),
            (expected.map(String::from).to_vec(), vec![])
        );
    }

    #[test]
    fn links_to_directories_above_are_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("a")).expect("a directory");
        fs::create_dir_all(root.join("b")).expect("a directory");
        fs::write(root.join("x.yaml"), "").expect("a file");
        symlink("..", root.join("a/up")).expect("a link");
        symlink("/", root.join("top")).expect("a link");
        symlink("../b", root.join("a/other")).expect("a link");
        symlink("../a", root.join("b/other")).expect("a link");
        let (files, troubles) = list_all(&root);
        assert_eq!(files, ["/x.yaml"]);
        let expected = [
            "/a/other/other",
            "/a/up",
            "/b/other/other",
            "/b/other/up",
            "/top",
        ];
        assert_eq!(troubles, expected);
    }
}
