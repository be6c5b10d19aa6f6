//! A directory of domains, one or several to a file, in which one file at a time is replaced.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;

use super::World;
use crate::activate::ActivateArgs;
use crate::child::{Counts, Running};
use crate::domains::{self, Domain, Generator, SHARED_SECRET};

/// A child that serves a folder.
pub(super) struct Directory<'a> {
    child: Running,
    folder: Folder,
    generator: &'a Generator,
}

/// The files.
struct Folder {
    directory: tempfile::TempDir,
    per_file: u64,
    /// The next replacement of a file.
    next: Option<Replacement>,
    /// The text without the domain that is being added, changed and removed.
    base: String,
}

struct Replacement {
    path: PathBuf,
    /// The file that takes the place; `None` where the place becomes empty.
    aside: Option<PathBuf>,
}

impl<'a> Directory<'a> {
    /// Fills a folder with so many domains, and starts a child that serves it.
    pub(super) fn fill(
        args: &ActivateArgs,
        generator: &'a Generator,
        count: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Self, Instant)> {
        let folder = Folder::fill(generator, count, args.domains_per_file, bar)?;
        let begun = Instant::now();
        let child = Running::start(Some(folder.path()), args.workers)?;
        let directory = Directory {
            child,
            folder,
            generator,
        };
        Ok((directory, begun))
    }

    /// Waits until it serves, and says where.
    pub(super) fn wait_ready(&mut self) -> anyhow::Result<std::net::SocketAddr> {
        Ok(self.child.wait_ready()?.https)
    }
}

impl World for Directory<'_> {
    fn prepare(&mut self, domain: &Domain) -> anyhow::Result<()> {
        self.folder.prepare(domain, self.generator)
    }

    fn prepare_removal(&mut self, _: &Domain) -> anyhow::Result<()> {
        self.folder.prepare_removal()
    }

    fn publish(&mut self) -> anyhow::Result<Instant> {
        self.folder.publish()
    }

    fn counts(&mut self) -> anyhow::Result<Counts> {
        self.child.counts()
    }

    fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        self.child.memory_mib()
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        self.child.stop()
    }
}

impl Folder {
    /// Writes `count` domains, `per_file` to a file.
    fn fill(
        generator: &Generator,
        count: u64,
        per_file: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<Self> {
        let per_file = per_file.max(1);
        let directory = tempfile::tempdir()?;
        let shared =
            domains::secret_document(SHARED_SECRET, generator.shared(), generator.issuer());
        std::fs::write(directory.path().join("shared.yaml"), shared)?;
        for first in (0..count).step_by(usize::try_from(per_file)?) {
            let mut text = String::new();
            for index in first..count.min(first + per_file) {
                let domain = generator.domain(Generator::existing(index), 0)?;
                text.push_str(&domains::documents(&domain, generator.issuer()));
                bar.inc(1);
            }
            let name = file_name(Generator::existing(first), per_file);
            std::fs::write(directory.path().join(name), text)?;
        }
        Ok(Folder {
            directory,
            per_file,
            next: None,
            base: String::new(),
        })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes, beside the file that a domain belongs to, one that has the domain as well.
    fn prepare(&mut self, domain: &Domain, generator: &Generator) -> anyhow::Result<()> {
        let path = self.file_of(domain.number);
        let is_added = self.next.as_ref().is_none_or(|next| next.path != path);
        if is_added {
            self.base = self.read(&path)?;
        }
        let text = domains::documents(domain, generator.issuer());
        self.write_aside(path, Some(&text))
    }

    /// Writes, beside the file of the last domain, one without it.
    fn prepare_removal(&mut self) -> anyhow::Result<()> {
        let last = self.next.take().context("a domain was put before")?;
        if self.base.is_empty() {
            let (path, aside) = (last.path, None);
            self.next = Some(Replacement { path, aside });
            return Ok(());
        }
        self.write_aside(last.path, None)
    }

    /// Puts what was prepared in its place, and says when that began.
    fn publish(&mut self) -> anyhow::Result<Instant> {
        let next = self.next.as_ref().context("a replacement is prepared")?;
        let written = Instant::now();
        match &next.aside {
            Some(aside) => std::fs::rename(aside, &next.path)?,
            None => std::fs::remove_file(&next.path)?,
        }
        Ok(written)
    }

    fn write_aside(&mut self, path: PathBuf, more: Option<&str>) -> anyhow::Result<()> {
        let aside = self.path().join(".next");
        let text = [self.base.as_str(), more.unwrap_or_default()].concat();
        std::fs::write(&aside, text)?;
        let aside = Some(aside);
        self.next = Some(Replacement { path, aside });
        Ok(())
    }

    /// The text of a file; empty where there is none, as before a domain with a file of its own.
    fn read(&self, path: &Path) -> anyhow::Result<String> {
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            text => Ok(text?),
        }
    }

    fn file_of(&self, number: u64) -> PathBuf {
        self.path().join(file_name(number, self.per_file))
    }
}

/// The file of a domain: its own, or that of its neighbours.
fn file_name(number: u64, per_file: u64) -> String {
    if per_file == 1 {
        return format!("{}.yaml", domains::object_name(number));
    }
    let first = number / 2 / per_file * per_file;
    format!("many-{first:08}.yaml")
}
