//! Typed objects, sent straight into the inbox of a child.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;

use super::beside::{Beside, CHURNED};
use super::{World, spread};
use crate::child::{Counts, Running};
use crate::domains::{Domain, Generator, Layout};
use crate::record::Record;

/// A child that is fed.
pub(super) struct Inbox {
    child: Arc<Mutex<Running>>,
    domains: u64,
    next: Option<Record>,
}

impl Inbox {
    /// Starts a child, and gives it so many domains.
    pub(super) fn fill(
        workers: usize,
        generator: &Generator,
        layout: Layout,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Inbox, Instant)> {
        let mut child = Running::start(None, workers)?;
        child.send(&Record::Layout(layout))?;
        child.send(&Record::Issuer(generator.issuer().to_vec()))?;
        child.send(&Record::Shared(generator.shared().clone()))?;
        for index in 0..layout.domains {
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
        let inbox = Inbox {
            child: Arc::new(Mutex::new(child)),
            domains: layout.domains,
            next: None,
        };
        Ok((inbox, begun))
    }

    /// Waits until it serves, and says where.
    pub(super) fn wait_ready(&mut self) -> anyhow::Result<std::net::SocketAddr> {
        Ok(lock(&self.child).wait_ready()?.https)
    }
}

fn lock(child: &Mutex<Running>) -> MutexGuard<'_, Running> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut child = lock(&self.child);
        child.send(&next)?;
        let written = Instant::now();
        child.flush()?;
        Ok(written)
    }

    fn beside(&mut self, per_second: f64) -> anyhow::Result<Beside> {
        let (child, domains) = (self.child.clone(), self.domains);
        let churned = CHURNED.min(domains);
        Beside::start(
            per_second,
            usize::try_from(churned)?,
            move |place, is_edited| {
                let index = spread(place as u64, churned, domains);
                let number = Generator::existing(index);
                let mut child = lock(&child);
                child.send(&Record::Edit { number, is_edited })?;
                child.flush()
            },
        )
    }

    fn counts(&mut self) -> anyhow::Result<Counts> {
        lock(&self.child).counts()
    }

    fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        lock(&self.child).memory_mib()
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        let child = Arc::into_inner(self.child).context("nobody else writes")?;
        child
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .stop()
    }
}
