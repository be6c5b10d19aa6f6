//! Typed objects, sent straight into the inbox of a child.

use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;

use super::World;
use crate::child::{Counts, Running};
use crate::domains::{Domain, Generator};
use crate::record::Record;

/// A child that is fed.
pub(super) struct Inbox {
    child: Running,
    next: Option<Record>,
}

impl Inbox {
    /// Starts a child, and gives it so many domains.
    pub(super) fn fill(
        workers: usize,
        generator: &Generator,
        count: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Inbox, Instant)> {
        let mut child = Running::start(None, workers)?;
        child.send(&Record::Issuer(generator.issuer().to_vec()))?;
        child.send(&Record::Shared(generator.shared().clone()))?;
        for index in 0..count {
            let number = Generator::existing(index);
            child.send(&Record::Put(generator.domain(number, 0)?))?;
            bar.inc(1);
        }
        child.flush()?;
        // Domains are made slower than they are taken in, so the time that counts is that from
        // the end of the list.
        let begun = Instant::now();
        child.send(&Record::Synced)?;
        child.flush()?;
        Ok((Inbox { child, next: None }, begun))
    }

    /// Waits until it serves, and says where.
    pub(super) fn wait_ready(&mut self) -> anyhow::Result<std::net::SocketAddr> {
        Ok(self.child.wait_ready()?.https)
    }
}

impl World for Inbox {
    fn prepare(&mut self, domain: &Domain) -> anyhow::Result<()> {
        self.next = Some(Record::Put(domain.clone()));
        Ok(())
    }

    fn prepare_removal(&mut self, domain: &Domain) -> anyhow::Result<()> {
        self.next = Some(Record::Remove(domain.number));
        Ok(())
    }

    fn publish(&mut self) -> anyhow::Result<Instant> {
        let next = self.next.take().context("a change is prepared")?;
        self.child.send(&next)?;
        let written = Instant::now();
        self.child.flush()?;
        Ok(written)
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
