//! The child with its domains, whichever way changes reach it.

mod folder;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;

use super::ActivateArgs;
use crate::child::{Counts, Running};
use crate::domains::{Domain, Generator};
use crate::probe::{Prober, Wanted};
use crate::record::Record;
use folder::Folder;

/// Where changes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Files in a directory.
    Dir,
    /// Typed objects, straight into the inbox.
    Inbox,
}

/// A serving child.
pub struct Served<'a> {
    child: Running,
    generator: &'a Generator,
    /// What the child serves, unless objects are sent to it.
    folder: Option<Folder>,
    prober: Prober,
    https: SocketAddr,
    domains: u64,
    start: Duration,
}

/// A change that has come through.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// The time from the write.
    pub after: Duration,
    /// New connections that were made to see it.
    pub connections: u32,
}

impl<'a> Served<'a> {
    /// Starts a child with `count` domains and waits until it serves them.
    ///
    /// # Errors
    /// The child ended.
    pub fn start(
        args: &ActivateArgs,
        generator: &'a Generator,
        count: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<Served<'a>> {
        let (mut child, folder, begun) = match args.source {
            Source::Inbox => {
                let mut child = Running::start(None, args.workers)?;
                send_all(&mut child, generator, count, bar)?;
                // Domains are made slower than they are taken in, so the time that counts is that
                // from the end of the list.
                let begun = Instant::now();
                child.send(&Record::Synced)?;
                child.flush()?;
                (child, None, begun)
            }
            Source::Dir => {
                let folder = Folder::fill(generator, count, args.domains_per_file, bar)?;
                let begun = Instant::now();
                let child = Running::start(Some(folder.path()), args.workers)?;
                (child, Some(folder), begun)
            }
        };
        let https = child.wait_ready()?.https;
        let start = begun.elapsed();
        Ok(Served {
            child,
            generator,
            folder,
            prober: Prober::new(https)?,
            https,
            domains: count,
            start,
        })
    }

    /// Where HTTPS is served.
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// Seconds from the end of the first list (inbox) or the start of the process (directory) to
    /// the first snapshot that serves.
    pub fn start_s(&self) -> f64 {
        self.start.as_secs_f64()
    }

    /// Resident memory now and at its peak, in MiB.
    ///
    /// # Errors
    /// The child ended.
    pub fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        self.child.memory_mib()
    }

    /// The counters.
    ///
    /// # Errors
    /// The child ended.
    pub fn counts(&mut self) -> anyhow::Result<Counts> {
        self.child.counts()
    }

    /// A domain that does not exist yet, one of so many that are spread over the name space.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn fresh(&self, turn: u64, of: u64, version: u64) -> anyhow::Result<Domain> {
        let index = spread(turn, of, self.domains);
        self.generator.domain(Generator::fresh(index), version)
    }

    /// Puts a domain and waits until it answers.
    ///
    /// # Errors
    /// It does not in time, or the child ended.
    pub fn put(&mut self, domain: &Domain) -> anyhow::Result<Settled> {
        let wanted = self.answer_of(domain);
        if let Some(folder) = &mut self.folder {
            folder.prepare(domain, self.generator)?;
        }
        self.settle(&domain.host, wanted, |served| {
            if let Some(folder) = &mut served.folder {
                return folder.publish();
            }
            served.child.send(&Record::Put(domain.clone()))?;
            served.flushed()
        })
    }

    /// Removes a domain and waits until its name gets an alert.
    ///
    /// # Errors
    /// It does not in time, or the child ended.
    pub fn remove(&mut self, domain: &Domain) -> anyhow::Result<Settled> {
        if let Some(folder) = &mut self.folder {
            folder.prepare_removal()?;
        }
        self.settle(&domain.host, Wanted::Alert, |served| {
            if let Some(folder) = &mut served.folder {
                return folder.publish();
            }
            served.child.send(&Record::Remove(domain.number))?;
            served.flushed()
        })
    }

    /// Makes so many new connections to a name that exists.
    ///
    /// # Errors
    /// It did not answer.
    pub fn repeat(&self, turn: u64, connections: u32) -> anyhow::Result<()> {
        // A prime number of turns wanders over the whole name space.
        let index = spread(turn % 997, 997, self.domains);
        let host = self.generator.host(Generator::existing(index));
        self.prober.repeat(&host, connections)
    }

    /// Ends the child.
    ///
    /// # Errors
    /// It did not end well.
    pub fn stop(self) -> anyhow::Result<()> {
        self.child.stop()
    }

    fn answer_of(&self, domain: &Domain) -> Wanted {
        Wanted::Answer {
            leaf: self.generator.leaf(domain).to_vec(),
            status: self.generator.status(domain),
        }
    }

    fn flushed(&mut self) -> anyhow::Result<Instant> {
        let written = Instant::now();
        self.child.flush()?;
        Ok(written)
    }

    /// Starts probing, makes the change a moment later, and takes the time between both ends.
    fn settle(
        &mut self,
        host: &str,
        wanted: Wanted,
        change: impl FnOnce(&mut Self) -> anyhow::Result<Instant>,
    ) -> anyhow::Result<Settled> {
        let (prober, host) = (self.prober.clone(), host.to_owned());
        let (begin, begun) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            prober.search(&host, &wanted, || {
                // Who no longer listens has failed, and says so.
                let _ = begin.send(());
            })
        });
        begun.recv().context("the prober ended")?;
        let written = change(self)?;
        let hit = thread.join().ok().context("the prober panicked")??;
        Ok(Settled {
            after: hit.at.saturating_duration_since(written),
            connections: hit.connections,
        })
    }
}

/// The `turn`th of `of` places that are spread over `0..count`.
fn spread(turn: u64, of: u64, count: u64) -> u64 {
    let place = u128::from(turn) * u128::from(count) / u128::from(of.max(1));
    u64::try_from(place).unwrap_or(u64::MAX)
}

fn send_all(
    child: &mut Running,
    generator: &Generator,
    count: u64,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    child.send(&Record::Issuer(generator.issuer().to_vec()))?;
    child.send(&Record::Shared(generator.shared().clone()))?;
    for index in 0..count {
        let number = Generator::existing(index);
        child.send(&Record::Put(generator.domain(number, 0)?))?;
        bar.inc(1);
    }
    child.flush()
}
