//! A directory of domains, one or several to a file, in which one file at a time is replaced.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;

use super::beside::{Beside, CHURNED};
use super::{World, spread};
use crate::activate::ActivateArgs;
use crate::child::{Counts, Running};
use crate::domains::{self, Domain, Generator, Layout, SHARED_SECRET};

/// A child that serves a folder.
pub(super) struct Directory<'a> {
    child: Running,
    folder: Folder,
    generator: &'a Generator,
    samples: u64,
}

/// The files.
struct Folder {
    directory: tempfile::TempDir,
    layout: Layout,
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
        layout: Layout,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Self, Instant)> {
        let folder = Folder::fill(generator, layout, args.domains_per_file, bar)?;
        let begun = Instant::now();
        let child = Running::start(Some(folder.path()), args.workers)?;
        let directory = Directory {
            child,
            folder,
            generator,
            samples: args.samples,
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

    fn beside(&mut self, per_second: f64) -> anyhow::Result<Beside> {
        let layout = self.folder.layout;
        let numbers = self.folder.left_alone(self.samples);
        let numbers: Vec<_> = numbers
            .into_iter()
            .map(|it| (self.folder.file_of(it), it))
            .collect();
        let aside = self.folder.path().join(".beside");
        Beside::start(per_second, numbers.len(), move |place, is_edited| {
            let (path, number) = numbers.get(place).context("a file to change")?;
            let [plain, edited] = layout.edits(*number);
            let (from, to) = match is_edited {
                true => (plain, edited),
                false => (edited, plain),
            };
            let text = std::fs::read_to_string(path)?;
            std::fs::write(&aside, text.replacen(&from, &to, 1))?;
            Ok(std::fs::rename(&aside, path)?)
        })
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
    /// Writes all domains, so many to a file.
    fn fill(
        generator: &Generator,
        layout: Layout,
        per_file: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<Self> {
        let (count, per_file) = (layout.domains, layout.per_file(per_file));
        let directory = tempfile::tempdir()?;
        let shared =
            domains::secret_document(SHARED_SECRET, generator.shared(), generator.issuer());
        let shared = shared + &layout.common_documents();
        std::fs::write(directory.path().join("shared.yaml"), shared)?;
        for first in (0..count).step_by(usize::try_from(per_file)?) {
            let mut text = String::new();
            for index in first..count.min(first + per_file) {
                let domain = generator.domain(Generator::existing(index), 0)?;
                text.push_str(&layout.documents(&domain, generator.issuer()));
                bar.inc(1);
            }
            text.push_str(&layout.end_document(Generator::existing(first)));
            let name = file_name(Generator::existing(first), per_file);
            std::fs::write(directory.path().join(name), text)?;
        }
        Ok(Folder {
            directory,
            layout,
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
        let text = self.layout.addition(domain, generator.issuer());
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

    /// Domains, one to a file, in files that no sample of so many touches: what writes there must
    /// not undo what a sample writes.
    fn left_alone(&self, samples: u64) -> Vec<u64> {
        let domains = self.layout.domains;
        let touched = (0..samples).map(|turn| {
            let index = spread(turn, samples, domains);
            self.file_of(Generator::fresh(index))
        });
        let touched: BTreeSet<PathBuf> = touched.collect();
        let firsts = (0..domains).step_by(usize::try_from(self.per_file).unwrap_or(usize::MAX));
        let numbers = firsts.map(Generator::existing);
        let free = numbers.filter(|&number| !touched.contains(&self.file_of(number)));
        let free: Vec<u64> = free.collect();
        let count = CHURNED.min(free.len() as u64);
        let places = (0..count).map(|turn| spread(turn, count, free.len() as u64));
        let numbers = places.filter_map(|at| free.get(usize::try_from(at).ok()?).copied());
        numbers.collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains::{Certificates, DomainObjects};

    #[test]
    fn changes_beside_samples_are_in_files_of_their_own() {
        let folder = |objects, per_file| Folder {
            directory: tempfile::tempdir().unwrap(),
            layout: Layout {
                objects,
                certificates: Certificates::Unique,
                domains: 160,
            },
            per_file,
            next: None,
            base: String::new(),
        };
        let sets = folder(DomainObjects::ListenerSets, 16);
        let numbers = sets.left_alone(3);
        // Samples are in the sets 0, 3 and 6 of ten.
        let rest = [1, 2, 4, 5, 7, 8, 9].map(|set| set * 32);
        assert_eq!(numbers, rest);
        assert!(sets.left_alone(160).is_empty());
        // Where a domain has a file, samples have others.
        assert_eq!(
            folder(DomainObjects::Ingresses, 1).left_alone(160).len(),
            100
        );
    }
}
