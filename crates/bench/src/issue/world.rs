//! The processes of a run: `serve` alone, or controllers of which one orders, and a proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::Method;
use myriad_lab::port::free_port;
use serde::Deserialize;
use tokio::runtime::{Handle, Runtime};

use super::authority::{Authority, Leads};
use super::place::Place;
use super::plan::Plan;
use super::{IssueArgs, Source, relay};
use crate::cluster::ground::Ground;
use crate::cluster::parts::Home;
use crate::cluster::process::Process;
use crate::domains::Generator;

/// The controllers of a cluster.
const REPLICAS: u16 = 2;

/// How long it may take until one of them leads.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How often it is looked which one does.
const LEADER_PAUSE: Duration = Duration::from_millis(50);

/// The processes, the authority that they order at, and what they serve.
pub(super) struct World {
    /// The authority.
    pub authority: Authority,
    orderers: Vec<Process>,
    proxy: Option<Process>,
    ground: Option<Ground>,
    runtime: Option<Runtime>,
    folder: tempfile::TempDir,
    place: Place,
    https: SocketAddr,
    /// The arguments of controllers beside the usual ones.
    arguments: Vec<String>,
    /// Steps that had failed in processes that were killed.
    failures_before: u64,
}

/// The part of a status that is about certificates.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Obtained {
    /// Certificates that have taken the place of others since the start.
    pub renewed: u64,
    /// Certificates whose time has come.
    pub renewing: u64,
}

#[derive(Deserialize)]
struct Status {
    certificates: Option<Obtained>,
}

impl World {
    /// Starts the authority and the processes, and waits until they serve. Names lead there.
    ///
    /// # Errors
    /// A process ended, or the API server refuses.
    pub(super) fn start(
        args: &IssueArgs,
        generator: &Generator,
        plan: &Plan,
        endpoint: SocketAddr,
    ) -> anyhow::Result<World> {
        match args.source {
            Source::Dir => World::serve(args, plan, endpoint),
            Source::Kubernetes => World::in_cluster(args, generator, plan, endpoint),
        }
    }

    fn serve(args: &IssueArgs, plan: &Plan, endpoint: SocketAddr) -> anyhow::Result<World> {
        let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let [http, https, admin] = [(); 3].map(|()| local(free_port()));
        let authority = Authority::start(http.port(), https.port())?;
        let leads = Leads {
            gateway: http.ip(),
            nowhere: IpAddr::from([127, 0, 0, 9]),
        };
        authority.lead(plan, &leads)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let folder = tempfile::tempdir()?;
        let served = folder.path().join("served");
        std::fs::create_dir(&served)?;
        let place = Place::Directory(served.clone());
        runtime.block_on(place.write_shared(endpoint))?;
        let mut arguments = vec![
            "serve".to_owned(),
            served.display().to_string(),
            format!("--http={http}"),
            format!("--https={https}"),
            format!("--workers={}", args.workers),
            format!("--acme-state-dir={}", folder.path().join("state").display()),
            "--log=warn".to_owned(),
        ];
        let look = args.look_seconds();
        arguments.extend(authority.arguments(args.orders(), http.port(), look));
        let mut process = Process::start(admin, &arguments, &[], &log(&folder))?;
        process.wait_ready().context("serve")?;
        Ok(World {
            authority,
            orderers: vec![process],
            proxy: None,
            ground: None,
            runtime: Some(runtime),
            folder,
            place,
            https,
            arguments: Vec::new(),
            failures_before: 0,
        })
    }

    fn in_cluster(
        args: &IssueArgs,
        generator: &Generator,
        plan: &Plan,
        endpoint: SocketAddr,
    ) -> anyhow::Result<World> {
        let (http, https) = (Home::http(), Home::https());
        let authority = Authority::start(http.port(), https.port())?;
        let leads = Leads {
            gateway: http.ip(),
            nowhere: IpAddr::from([10, 244, 3, 9]),
        };
        authority.lead(plan, &leads)?;
        let mut ground = Ground::prepare(generator)?;
        let place = (ground.home.api.clone(), ground.tenant.clone());
        let place = Place::Cluster(Box::new(place));
        ground.runtime.block_on(place.write_shared(endpoint))?;
        let targets = (0..REPLICAS).map(Home::replica_sync).collect();
        relay::start(ground.runtime.handle(), Home::sync(), targets)?;
        let arguments = authority.arguments(args.orders(), http.port(), args.look_seconds());
        let start = |number| ground.home.replica(number, &arguments);
        let mut orderers = (0..REPLICAS).map(start).collect::<Result<Vec<_>, _>>()?;
        for controller in &mut orderers {
            controller.wait_ready().context("a controller")?;
        }
        // Its roots and token are in files from now on.
        ground.runtime.block_on(ground.home.way())?;
        let mut proxy = ground.home.proxy(args.workers)?;
        proxy.wait_ready().context("the proxy")?;
        Ok(World {
            authority,
            orderers,
            proxy: Some(proxy),
            ground: Some(ground),
            runtime: None,
            folder: tempfile::tempdir()?,
            place,
            https,
            arguments,
            failures_before: 0,
        })
    }

    /// The place that objects are written to.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// The address of HTTPS.
    pub(super) fn https(&self) -> SocketAddr {
        self.https
    }

    /// The runtime that everything is asked and written from.
    pub(super) fn runtime(&self) -> anyhow::Result<Handle> {
        let of_cluster = self.ground.as_ref().map(|ground| &ground.runtime);
        let runtime = of_cluster.or(self.runtime.as_ref());
        Ok(runtime.context("there is a runtime")?.handle().clone())
    }

    /// Steps of orders that have failed, in processes that are gone too.
    pub(super) fn failures(&self) -> anyhow::Result<u64> {
        let now = self.sum("acme_failures")?;
        Ok(self.failures_before + now)
    }

    /// Certificates that have taken the place of others.
    pub(super) fn renewed(&self) -> anyhow::Result<u64> {
        self.sum("acme_renewed")
    }

    /// The status of certificates, of the process that orders; none where none orders now.
    pub(super) fn obtained(&self) -> anyhow::Result<Option<Obtained>> {
        for process in &self.orderers {
            let status: Status = serde_json::from_str(&process.page("/status")?)?;
            if status.certificates.is_some() {
                return Ok(status.certificates);
            }
        }
        Ok(None)
    }

    /// Resident memory of all processes together, in MiB.
    pub(super) fn memory_mib(&self) -> anyhow::Result<f64> {
        let all = self.orderers.iter().chain(&self.proxy);
        let memory = all.map(|process| process.memory_mib().map(|(now, _)| now));
        memory.sum()
    }

    /// Kills the controller that leads, and starts it again. Where its Lease is freed, the next
    /// one need not wait for it.
    ///
    /// # Errors
    /// Nobody leads in time, or it does not start again.
    pub(super) fn kill_leader(&mut self, frees_lease: bool) -> anyhow::Result<()> {
        let at = self.leader()?;
        self.failures_before += self.orderers[at].figures()?.counter("acme_failures")?;
        self.orderers.remove(at).kill()?;
        let ground = self.ground.as_ref().context("leaders are of clusters")?;
        if frees_lease {
            let namespace = &ground.home.namespace;
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/myriad");
            let freed = ground.home.api.call(Method::DELETE, &path, None);
            ground.runtime.block_on(freed)?;
        }
        let next = ground.home.replica(u16::try_from(at)?, &self.arguments)?;
        self.orderers.insert(at, next);
        self.orderers[at].wait_ready().context("a controller")?;
        Ok(())
    }

    /// Ends all, and leaves the cluster.
    ///
    /// # Errors
    /// A process has ended before.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        for process in self.orderers.into_iter().chain(self.proxy) {
            process.kill()?;
        }
        self.folder.close()?;
        self.ground.map_or(Ok(()), Ground::leave)
    }

    /// The number of the process that knows of certificates that are wanted.
    fn leader(&self) -> anyhow::Result<usize> {
        let begun = Instant::now();
        loop {
            for (at, process) in self.orderers.iter().enumerate() {
                if process.figures()?.gauge("acme_wanted")? > 0.0 {
                    return Ok(at);
                }
            }
            ensure!(begun.elapsed() < LEADER_TIMEOUT, "no controller leads");
            std::thread::sleep(LEADER_PAUSE);
        }
    }

    fn sum(&self, counter: &str) -> anyhow::Result<u64> {
        let all = self.orderers.iter();
        let counts = all.map(|process| process.figures()?.counter(counter));
        counts.sum()
    }
}

fn log(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("serve.log")
}
