//! The servers of domains, whichever way changes reach them.

mod beside;
mod burst;
mod churn;
mod cluster;
mod envoy;
mod folder;
mod inbox;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;

use super::ActivateArgs;
use crate::child::Counts;
use crate::cluster::ground::Ground;
use crate::cluster::parts::Home;
use crate::domains::{Domain, Generator, Layout};
use crate::probe::{Prober, Wanted};
use cluster::InCluster;
use envoy::{Driven, Told};
use folder::Directory;
use inbox::Inbox;

pub(super) use beside::{Beside, Changed};
pub(crate) use cluster::ClusterFigures;

/// The source of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    /// Files in a directory.
    Dir,
    /// Typed objects, straight into the inbox.
    Inbox,
    /// Objects in a cluster, which a controller watches for a proxy.
    Kubernetes,
    /// Envoy, which asks for certificates and hosts as clients name them.
    EnvoyOnDemand,
    /// Envoy, which is sent a listener with a filter chain for each domain.
    EnvoyChains,
}

impl Source {
    /// Whether another proxy serves.
    pub(super) fn is_peer(self) -> bool {
        match self {
            Source::Dir | Source::Inbox | Source::Kubernetes => false,
            Source::EnvoyOnDemand | Source::EnvoyChains => true,
        }
    }
}

/// A server of domains, and the way in which changes reach it.
pub(super) trait World {
    /// Does all that comes before the one write that makes a domain, or a change of it, live.
    ///
    /// # Errors
    /// The destination of writes has gone.
    fn prepare(&mut self, domain: &Domain) -> anyhow::Result<()>;

    /// Prepares the removal of the domain, likewise.
    ///
    /// # Errors
    /// The destination of writes has gone.
    fn prepare_removal(&mut self, domain: &Domain) -> anyhow::Result<()>;

    /// Does what was prepared, and says when that began.
    ///
    /// # Errors
    /// The destination of writes has gone.
    fn publish(&mut self) -> anyhow::Result<Instant>;

    /// The change was seen to have come through at this time.
    ///
    /// # Errors
    /// The destination of writes has gone.
    fn settled(&mut self, _at: Instant) -> anyhow::Result<()> {
        Ok(())
    }

    /// Starts to change routes of other domains, so many per second, until that is stopped.
    ///
    /// # Errors
    /// The errors of the system.
    fn beside(&mut self, per_second: f64) -> anyhow::Result<Beside>;

    /// The counters.
    ///
    /// # Errors
    /// The process that counts has ended.
    fn counts(&mut self) -> anyhow::Result<Counts>;

    /// Resident memory now and at its peak, in MiB, of what serves.
    ///
    /// # Errors
    /// It has ended.
    fn memory_mib(&self) -> anyhow::Result<(f64, f64)>;

    /// The figures of a cluster, where there is one.
    ///
    /// # Errors
    /// A process has ended, or the API server refuses.
    fn figures(&mut self) -> anyhow::Result<Option<ClusterFigures>> {
        Ok(None)
    }

    /// Ends what serves.
    ///
    /// # Errors
    /// It did not end well.
    fn stop(self: Box<Self>) -> anyhow::Result<()>;
}

/// A world with its domains.
pub(super) struct Served<'a> {
    world: Box<dyn World + 'a>,
    generator: &'a Generator,
    prober: Prober,
    https: SocketAddr,
    layout: Layout,
    is_peer: bool,
    start: Duration,
}

/// A change that has come through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    /// The time from the write.
    pub after: Duration,
    /// New connections that were made to see it.
    pub connections: u32,
}

impl<'a> Served<'a> {
    /// Starts a world with `count` domains and waits until it serves them.
    ///
    /// # Errors
    /// A process ended.
    pub(super) fn start(
        args: &ActivateArgs,
        generator: &'a Arc<Generator>,
        ground: Option<&'a mut Ground>,
        count: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<Served<'a>> {
        let layout = generator.layout(args.objects, count);
        let (world, https, start): (Box<dyn World + 'a>, _, _) = match (args.source, ground) {
            (Source::Inbox, _) => {
                let (mut inbox, begun) = Inbox::fill(args.workers, generator, layout, bar)?;
                let https = inbox.wait_ready()?;
                (Box::new(inbox), https, begun.elapsed())
            }
            (Source::Dir, _) => {
                let (mut directory, begun) = Directory::fill(args, generator, layout, bar)?;
                let https = directory.wait_ready()?;
                (Box::new(directory), https, begun.elapsed())
            }
            (Source::Kubernetes, ground) => {
                let ground = ground.context("there is a cluster")?;
                let (world, start) = InCluster::start(args, ground, generator, count, bar)?;
                (Box::new(world), Home::https(), start)
            }
            (Source::EnvoyOnDemand | Source::EnvoyChains, _) => {
                let told = match args.source == Source::EnvoyChains {
                    true => Told::Chains,
                    false => Told::OnDemand,
                };
                let started = Driven::start(told, args.workers, generator, layout, bar)?;
                let (driven, https, start) = started;
                (Box::new(driven), https, start)
            }
        };
        Ok(Served {
            world,
            generator,
            prober: Prober::new(https)?,
            https,
            layout,
            is_peer: args.source.is_peer(),
            start,
        })
    }

    /// The address of HTTPS.
    pub(super) fn https(&self) -> SocketAddr {
        self.https
    }

    /// Seconds to the first snapshot that serves: from the end of the first list (inbox), the
    /// start of the process (directory) or that of the proxy (cluster).
    pub(super) fn start_s(&self) -> f64 {
        self.start.as_secs_f64()
    }

    /// The server of domains.
    pub(super) fn world(&mut self) -> &mut (dyn World + 'a) {
        &mut *self.world
    }

    /// A domain that does not exist yet, one of so many that are spread over the name space.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub(super) fn fresh(&self, turn: u64, of: u64, version: u64) -> anyhow::Result<Domain> {
        let index = spread(turn, of, self.layout.domains);
        self.generator.domain(Generator::fresh(index), version)
    }

    /// Puts a domain and waits until it answers.
    ///
    /// # Errors
    /// It does not in time, or a process ended.
    pub(super) fn put(&mut self, domain: &Domain) -> anyhow::Result<Settled> {
        self.world.prepare(domain)?;
        self.settle(&domain.host, self.generator.answer(domain))
    }

    /// Removes a domain and waits until its name is answered as one that nobody has.
    ///
    /// # Errors
    /// It does not in time, or a process ended.
    pub(super) fn remove(&mut self, domain: &Domain) -> anyhow::Result<Settled> {
        self.world.prepare_removal(domain)?;
        let gone = match self.is_peer {
            true => Wanted::Refusal,
            false => self.generator.answer_after(self.layout.objects),
        };
        self.settle(&domain.host, gone)
    }

    /// Makes so many new connections to a name that exists.
    ///
    /// # Errors
    /// It did not answer.
    pub(super) fn repeat(&self, turn: u64, connections: u32) -> anyhow::Result<()> {
        // A prime number of turns wanders over the whole name space.
        let index = spread(turn % 997, 997, self.layout.domains);
        let host = self.generator.host(Generator::existing(index));
        self.prober.repeat(&host, connections)
    }

    /// Ends what serves.
    ///
    /// # Errors
    /// It did not end well.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.world.stop()
    }

    /// Starts probing, publishes a moment later, and takes the time between both ends.
    fn settle(&mut self, host: &str, wanted: Wanted) -> anyhow::Result<Settled> {
        let (world, prober) = (&mut self.world, &self.prober);
        let (written, hit) = prober.watch(host, wanted, || world.publish())?;
        self.world.settled(hit.at)?;
        Ok(Settled {
            after: hit.at.saturating_duration_since(written),
            connections: hit.connections,
        })
    }
}

/// The `turn`th of `of` places that are spread over `0..count`.
pub(super) fn spread(turn: u64, of: u64, count: u64) -> u64 {
    let place = u128::from(turn) * u128::from(count) / u128::from(of.max(1));
    u64::try_from(place).unwrap_or(u64::MAX)
}
