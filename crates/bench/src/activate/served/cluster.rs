//! Objects in a cluster: a controller watches them, and a proxy serves them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;
use serde::Serialize;

use super::World;
use super::burst::{self, Burst};
use super::churn::{self, Churn};
use crate::activate::ActivateArgs;
use crate::activate::samples::Quantiles;
use crate::child::Counts;
use crate::cluster::api::Write;
use crate::cluster::ground::Ground;
use crate::cluster::observer::Observer;
use crate::cluster::process::Process;
use crate::cluster::tenant::Kind;
use crate::domains::{Domain, Generator};

/// How often it is looked whether the proxy has everything.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The name in the event that arrived last, and when that was.
type LastEvent = Arc<Mutex<Option<(String, Instant)>>>;

/// A controller, a proxy, and an observer beside it.
pub(super) struct InCluster<'a> {
    ground: &'a mut Ground,
    generator: &'a Generator,
    args: ActivateArgs,
    controller: Process,
    proxy: Process,
    observer: Observer,
    events: LastEvent,
    domains: u64,
    /// The number of the domain that was added last and is still there.
    present: Option<u64>,
    next: Next,
    stages: Stages,
    figures: Begin,
}

/// The objects that were prepared.
#[derive(Default)]
struct Next {
    write: Option<Write>,
    /// The name, where a domain is added.
    added: Option<String>,
    /// The objects that go once the change has been seen.
    leftover: Vec<Write>,
    sent: Option<Instant>,
    answered: Option<Instant>,
}

/// Times since the POST of an Ingress was sent, one each per sample.
#[derive(Default)]
struct Stages {
    answered: Vec<Duration>,
    watched: Vec<Duration>,
    told: Vec<Duration>,
    live: Vec<Duration>,
}

/// The measurements once all is ready.
#[derive(Clone, Copy, Default)]
struct Begin {
    fill_s: f64,
    controller_start_s: f64,
    controller_rss_peak_mib: f64,
}

/// The figures that a cluster adds to the report.
#[derive(Serialize)]
pub(crate) struct ClusterFigures {
    /// Seconds that the objects took to be written which an earlier run had not.
    fill_s: f64,
    /// The time from the start of the process until it is ready.
    controller_start_s: f64,
    controller_rss_mib: f64,
    /// Up to the end of the first list.
    controller_rss_peak_mib: f64,
    proxy_rss_mib: f64,
    /// Since the POST of the Ingress was sent.
    stages_ms: StageFigures,
    #[serde(skip_serializing_if = "Option::is_none")]
    churn: Option<Churn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<Burst>,
}

#[derive(Serialize)]
struct StageFigures {
    /// The API server has answered.
    answered: Quantiles,
    /// A watch of the bench's own has the event.
    watched: Quantiles,
    /// A follower of the bench's own has the commit.
    told: Quantiles,
    /// A client has its answer.
    live: Quantiles,
}

impl<'a> InCluster<'a> {
    /// Fills the cluster, and starts what serves it; the time is that of the proxy.
    pub(super) fn start(
        args: &ActivateArgs,
        ground: &'a mut Ground,
        generator: &'a Generator,
        count: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Self, Duration)> {
        let fill = ground.fill(generator, count, bar)?;
        let mut controller = ground.home.controller()?;
        let controller_start = controller.wait_ready().context("the controller")?;
        let (_, controller_rss_peak_mib) = controller.memory_mib()?;
        let way = ground.runtime.block_on(ground.home.way())?;
        let observer = Observer::start(&way)?;
        observer.wait_for(count)?;
        let begun = Instant::now();
        let mut proxy = ground.home.proxy(args.workers)?;
        proxy.wait_ready().context("the proxy")?;
        while proxy.figures()?.counter("sync_resources")? < observer.seen().held {
            std::thread::sleep(LOOK_INTERVAL);
        }
        let start = begun.elapsed();
        let events = watch(ground)?;
        let world = InCluster {
            ground,
            generator,
            args: args.clone(),
            controller,
            proxy,
            observer,
            events,
            domains: count,
            present: None,
            next: Next::default(),
            stages: Stages::default(),
            figures: Begin {
                fill_s: fill.as_secs_f64(),
                controller_start_s: controller_start.as_secs_f64(),
                controller_rss_peak_mib,
            },
        };
        Ok((world, start))
    }

    fn churn(&mut self) -> anyhow::Result<Option<Churn>> {
        if self.args.churn == 0 {
            return Ok(None);
        }
        let before = self.counts()?;
        let run = churn::Run {
            api: self.ground.home.api.clone(),
            tenant: &self.ground.tenant,
            generator: self.generator,
            observer: &self.observer,
            controller: &self.controller,
            domains: self.domains,
            per_second: self.args.churn,
            seconds: self.args.churn_seconds,
        };
        let mut churned = self.ground.runtime.block_on(run.run())?;
        churned.count(&before, &self.counts()?);
        Ok(Some(churned))
    }

    fn burst(&mut self) -> anyhow::Result<Option<Burst>> {
        if self.args.burst == 0 {
            return Ok(None);
        }
        let run = burst::Run {
            api: self.ground.home.api.clone(),
            tenant: &self.ground.tenant,
            generator: self.generator,
            count: self.args.burst,
        };
        run.run(&self.ground.runtime).map(Some)
    }
}

impl World for InCluster<'_> {
    fn prepare(&mut self, domain: &Domain) -> anyhow::Result<()> {
        let tenant = &self.ground.tenant;
        if self.present == Some(domain.number) {
            let changed = tenant.replace(Kind::Secret, domain);
            let moved = || tenant.replace(Kind::EndpointSlice, domain);
            self.next.write = changed.or_else(moved);
            return Ok(());
        }
        for kind in Kind::NEEDS {
            if let Some(write) = self.ground.tenant.create(kind, domain) {
                self.ground.write(write)?;
            }
        }
        self.next.write = self.ground.tenant.create(Kind::Ingress, domain);
        self.next.added = Some(domain.name());
        self.present = Some(domain.number);
        Ok(())
    }

    fn prepare_removal(&mut self, domain: &Domain) -> anyhow::Result<()> {
        let tenant = &self.ground.tenant;
        self.next.write = tenant.delete(Kind::Ingress, domain);
        let leftover = Kind::NEEDS.into_iter();
        let leftover = leftover.filter_map(|kind| tenant.delete(kind, domain));
        self.next.leftover = leftover.collect();
        self.present = None;
        Ok(())
    }

    fn publish(&mut self) -> anyhow::Result<Instant> {
        let write = self.next.write.take().context("a change is prepared")?;
        let sent = Instant::now();
        self.ground.write(write)?;
        self.next.answered = Some(Instant::now());
        self.next.sent = Some(sent);
        Ok(sent)
    }

    fn settled(&mut self, at: Instant) -> anyhow::Result<()> {
        let next = std::mem::take(&mut self.next);
        for write in next.leftover {
            self.ground.write(write)?;
        }
        let (Some(name), Some(sent), Some(answered)) = (next.added, next.sent, next.answered)
        else {
            return Ok(());
        };
        self.stages.answered.push(answered - sent);
        self.stages.live.push(at.saturating_duration_since(sent));
        let event = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = event.as_ref().filter(|(seen, _)| *seen == name);
        let watched = watched.map(|(_, at)| at.saturating_duration_since(sent));
        self.stages.watched.extend(watched);
        let told = self.observer.seen().domain_at;
        let told = told.and_then(|told| told.checked_duration_since(sent));
        self.stages.told.extend(told);
        Ok(())
    }

    fn counts(&mut self) -> anyhow::Result<Counts> {
        let (controller, proxy) = (self.controller.figures()?, self.proxy.figures()?);
        Ok(Counts {
            units_translated: controller.counter("translate_units")?,
            objects_visited: controller.counter("translate_objects_visited")?,
            resources_changed: controller.counter("translate_resources_changed")?,
            table_nodes_copied: proxy.counter("proxy_table_nodes_copied")?,
            bytes_allocated: 0,
            bytes_encoded: controller.counter("translate_encoded_bytes")?,
            bytes_received: self.observer.bytes(),
        })
    }

    fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        self.proxy.memory_mib()
    }

    fn figures(&mut self) -> anyhow::Result<Option<ClusterFigures>> {
        let (controller_rss_mib, _) = self.controller.memory_mib()?;
        let (proxy_rss_mib, _) = self.proxy.memory_mib()?;
        let of = |times: &[Duration]| Quantiles::of(times.iter().copied());
        let stages_ms = StageFigures {
            answered: of(&self.stages.answered),
            watched: of(&self.stages.watched),
            told: of(&self.stages.told),
            live: of(&self.stages.live),
        };
        let Begin {
            fill_s,
            controller_start_s,
            controller_rss_peak_mib,
        } = self.figures;
        Ok(Some(ClusterFigures {
            fill_s: hundredth(fill_s),
            controller_start_s: hundredth(controller_start_s),
            controller_rss_mib: hundredth(controller_rss_mib),
            controller_rss_peak_mib: hundredth(controller_rss_peak_mib),
            proxy_rss_mib: hundredth(proxy_rss_mib),
            stages_ms,
            churn: self.churn()?,
            burst: self.burst()?,
        }))
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        self.proxy.kill()?;
        self.controller.kill()
    }
}

/// Notes when the events of Ingresses arrive at a watch of our own; the last one is kept.
fn watch(ground: &Ground) -> anyhow::Result<LastEvent> {
    let list = ground.tenant.list(Kind::Ingress);
    let mut events = ground.runtime.block_on(ground.home.api.watch(&list))?;
    let last = Arc::new(Mutex::new(None));
    let noted = last.clone();
    ground.runtime.spawn(async move {
        while let Ok(Some(names)) = events.next().await {
            let now = Instant::now();
            if let Some(name) = names.into_iter().next_back() {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, now));
            }
        }
    });
    Ok(last)
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
