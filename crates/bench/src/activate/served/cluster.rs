//! Objects in a cluster: a controller watches them, and a proxy serves them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;
use serde::Serialize;

use super::beside::{Beside, CHURNED};
use super::burst::{self, Burst};
use super::churn::{self, Churn};
use super::{World, spread};
use crate::activate::ActivateArgs;
use crate::activate::samples::Quantiles;
use crate::child::Counts;
use crate::cluster::api::Write;
use crate::cluster::ground::Ground;
use crate::cluster::observer::{Observer, Seen};
use crate::cluster::process::Process;
use crate::cluster::tenant::Kind;
use crate::domains::{Domain, DomainObjects, Generator};

/// How often it is looked whether the proxy has everything.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How long the controller is left alone with what comes before a ListenerSet, so that the write of
/// this is work of its own.
const APART: Duration = Duration::from_millis(20);

/// The event that is waited for.
type Awaited = Arc<Mutex<Event>>;

/// The first event of an object, of which further ones may follow: statuses are written too.
#[derive(Debug, Default)]
struct Event {
    /// The name of the object.
    name: String,
    at: Option<Instant>,
}

/// A controller, a proxy, and an observer beside it.
pub(super) struct InCluster<'a> {
    ground: &'a mut Ground,
    generator: &'a Generator,
    args: ActivateArgs,
    controller: Process,
    proxy: Process,
    observer: Observer,
    event: Awaited,
    domains: u64,
    /// The number of the domain that was added last and is still there.
    present: Option<u64>,
    /// Whether others change too, whose commits an observer does not tell from those of samples.
    is_beside: bool,
    next: Next,
    stages: Stages,
    figures: Begin,
}

/// The objects that were prepared.
#[derive(Default)]
struct Next {
    write: Option<Write>,
    /// The name of the object that is written, where a domain is added.
    added: Option<String>,
    /// The objects that go once the change has been seen.
    leftover: Vec<Write>,
    sent: Option<Instant>,
    answered: Option<Instant>,
}

/// Times since the write of an Ingress, a ListenerSet or an HTTPRoute was sent, one each per
/// sample.
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
    /// Since the write that makes a domain live was sent.
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
        let mut controller = ground.controller()?;
        let controller_start = controller.wait_ready().context("the controller")?;
        let (_, controller_rss_peak_mib) = controller.memory_mib()?;
        let way = ground.runtime.block_on(ground.home.way())?;
        let observer = Observer::start(&way)?;
        observer.wait_for(count, counted(args.objects))?;
        let begun = Instant::now();
        let mut proxy = ground.home.proxy(args.workers)?;
        proxy.wait_ready().context("the proxy")?;
        while proxy.figures()?.counter("sync_resources")? < observer.seen().held {
            std::thread::sleep(LOOK_INTERVAL);
        }
        let start = begun.elapsed();
        let event = watch(ground)?;
        let world = InCluster {
            ground,
            generator,
            args: args.clone(),
            controller,
            proxy,
            observer,
            event,
            domains: count,
            present: None,
            is_beside: false,
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
        let needs = tenant.needs();
        for write in needs
            .into_iter()
            .filter_map(|kind| tenant.create(kind, domain))
        {
            self.ground.write(write)?;
        }
        if self.args.objects == DomainObjects::ListenerSets {
            std::thread::sleep(APART);
        }
        self.next.write = tenant.admit(domain);
        self.next.added = Some(tenant.live_name(domain));
        self.present = Some(domain.number);
        Ok(())
    }

    fn prepare_removal(&mut self, domain: &Domain) -> anyhow::Result<()> {
        let tenant = &self.ground.tenant;
        self.next.write = tenant.dismiss(domain);
        let leftover = tenant.needs().into_iter();
        let leftover = leftover.filter_map(|kind| tenant.delete(kind, domain));
        self.next.leftover = leftover.collect();
        self.present = None;
        Ok(())
    }

    fn publish(&mut self) -> anyhow::Result<Instant> {
        let write = self.next.write.take().context("a change is prepared")?;
        if let Some(name) = self.next.added.clone() {
            *lock(&self.event) = Event { name, at: None };
        }
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
        let (Some(_), Some(sent), Some(answered)) = (next.added, next.sent, next.answered) else {
            return Ok(());
        };
        if self.is_beside {
            return Ok(());
        }
        self.stages.answered.push(answered - sent);
        self.stages.live.push(at.saturating_duration_since(sent));
        let watched = lock(&self.event).at;
        let watched = watched.map(|at| at.saturating_duration_since(sent));
        self.stages.watched.extend(watched);
        let seen = self.observer.seen();
        let told = match self.args.objects {
            DomainObjects::Ingresses | DomainObjects::ListenerSets => seen.domain_at,
            DomainObjects::HttpRoutes => seen.route_at,
        };
        let told = told.and_then(|told| told.checked_duration_since(sent));
        self.stages.told.extend(told);
        Ok(())
    }

    fn beside(&mut self, per_second: f64) -> anyhow::Result<Beside> {
        self.is_beside = true;
        let (api, tenant) = (self.ground.home.api.clone(), self.ground.tenant.clone());
        let runtime = self.ground.runtime.handle().clone();
        let domains = self.domains;
        let churned = CHURNED.min(domains);
        Beside::start(
            per_second,
            usize::try_from(churned)?,
            move |place, is_edited| {
                let index = spread(place as u64, churned, domains);
                let write = tenant.edit(Generator::existing(index), is_edited);
                runtime.block_on(api.write(write))
            },
        )
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

/// The count of resources that so many domains have one each of.
fn counted(objects: DomainObjects) -> fn(&Seen) -> u64 {
    match objects {
        DomainObjects::Ingresses | DomainObjects::ListenerSets => |seen: &Seen| seen.domains,
        DomainObjects::HttpRoutes => |seen: &Seen| seen.routes,
    }
}

/// Notes when the event that is waited for arrives at a watch of our own.
fn watch(ground: &Ground) -> anyhow::Result<Awaited> {
    let list = ground.tenant.live_list();
    let mut events = ground.runtime.block_on(ground.home.api.watch(&list))?;
    let awaited = Awaited::default();
    let noted = awaited.clone();
    ground.runtime.spawn(async move {
        while let Ok(Some(names)) = events.next().await {
            lock(&noted).note(&names, Instant::now());
        }
    });
    Ok(awaited)
}

impl Event {
    fn note(&mut self, names: &[String], now: Instant) {
        if names.contains(&self.name) {
            self.at.get_or_insert(now);
        }
    }
}

fn lock(event: &Mutex<Event>) -> MutexGuard<'_, Event> {
    event.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_of_an_object_counts_and_none_of_another() {
        let mut event = Event {
            name: "s00000001".to_owned(),
            at: None,
        };
        let begun = Instant::now();
        event.note(&["s00000002".to_owned()], begun);
        assert_eq!(event.at, None);
        let names = ["s00000002", "s00000001"].map(str::to_owned);
        event.note(&names, begun);
        event.note(&names, begun + Duration::from_secs(1));
        assert_eq!(event.at, Some(begun));
    }
}
