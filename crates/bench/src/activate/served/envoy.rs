//! Envoy, driven by a control plane of its own that does nothing else.
//!
//! In its best configuration it has one chain, asks for certificates when a client names a host
//! that it has not seen, and for hosts likewise. In the usual one a listener has a filter chain for
//! each domain, so that each change is the whole listener once more. Whatever the control plane
//! needs to encode a listener comes before the time that is measured.

mod bootstrap;
mod plane;
mod protobuf;
mod resources;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use myriad_lab::peer::{self, Envoy};
use myriad_lab::port::free_address;

use super::{Beside, World};
use crate::child::Counts;
use crate::cluster::usage;
use crate::domains::{Domain, Generator, Layout};
use crate::probe::Prober;
use plane::Plane;
use store::{Change, Store};

/// The ways in which Envoy can be told of domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It asks for what clients name.
    OnDemand,
    /// It is sent a chain for each.
    Chains,
}

/// An Envoy with its control plane.
pub(super) struct Driven {
    envoy: Envoy,
    plane: Plane,
    next: Option<Change>,
}

impl Driven {
    /// Starts both with so many domains, and waits until the first is served; where, and how long
    /// that took since the start of the process.
    pub(super) fn start(
        told: Told,
        workers: usize,
        generator: &Arc<Generator>,
        layout: Layout,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Driven, SocketAddr, Duration)> {
        let program = peer::provide()?;
        let address = free_address()?;
        let mut store = Store::fill(told, generator.clone(), layout, address, bar)?;
        let first = generator.domain(Generator::existing(0), 0)?;
        store.hold(first.clone());
        let plane = Plane::start(store)?;
        let config = bootstrap::config(told, address, plane.address(), generator.endpoints());
        let begun = Instant::now();
        let mut envoy = Envoy::start(&program, &config, workers)?;
        let wanted = generator.answer(&first);
        let found = Prober::new(address)?.find(&first.host, &wanted);
        if let Err(error) = found {
            envoy.check()?;
            plane.check()?;
            return Err(error.context("Envoy does not serve"));
        }
        let driven = Driven {
            envoy,
            plane,
            next: None,
        };
        Ok((driven, address, begun.elapsed()))
    }

    fn prepare_change(&mut self, number: u64, domain: Option<Domain>) -> anyhow::Result<()> {
        self.next = Some(self.plane.prepare(number, domain)?);
        Ok(())
    }
}

impl World for Driven {
    fn prepare(&mut self, domain: &Domain) -> anyhow::Result<()> {
        self.prepare_change(domain.number, Some(domain.clone()))
    }

    fn prepare_removal(&mut self, domain: &Domain) -> anyhow::Result<()> {
        self.prepare_change(domain.number, None)
    }

    fn publish(&mut self) -> anyhow::Result<Instant> {
        let next = self.next.take().context("a change is prepared")?;
        let written = Instant::now();
        self.plane.publish(next)?;
        Ok(written)
    }

    fn settled(&mut self, _at: Instant) -> anyhow::Result<()> {
        self.plane.check()
    }

    fn beside(&mut self, _per_second: f64) -> anyhow::Result<Beside> {
        bail!("routes of other domains are not changed in a peer: leave --under-churn out")
    }

    fn counts(&mut self) -> anyhow::Result<Counts> {
        Ok(Counts {
            bytes_received: self.plane.sent(),
            ..Counts::default()
        })
    }

    fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        usage::memory_mib(self.envoy.id())
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}
