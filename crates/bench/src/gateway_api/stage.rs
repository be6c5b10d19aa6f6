//! The stage of a scenario: a Gateway in a namespace of its own, the controller of its class, and a
//! proxy.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::Method;
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Runtime;

use super::asker::Client;
use super::objects::{self, Kind};
use crate::cluster::api::{Api, Write};
use crate::cluster::gateway_api::{class, classes, install};
use crate::cluster::parts::Home;
use crate::cluster::process::Process;

/// How long something that was written may take to be served.
const LIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// Between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A Gateway that is served.
pub(super) struct Stage {
    /// The runtime that requests to the API server are sent from.
    pub runtime: Runtime,
    /// The namespace of the Gateway.
    pub namespace: String,
    home: Home,
    controller: Process,
    proxy: Process,
    /// Namespaces that were made beside it.
    further: Vec<String>,
}

/// The processor time of both processes at a moment.
pub(super) struct Watch {
    at: Instant,
    controller: Duration,
    proxy: Duration,
}

/// The resources that both processes took.
#[derive(Debug, Serialize)]
pub(super) struct Spent {
    controller: Used,
    proxy: Used,
}

#[derive(Debug, Serialize)]
struct Used {
    /// Cores, in the mean.
    vcpu: f64,
    rss_mib: f64,
    rss_peak_mib: f64,
}

impl Stage {
    /// Makes one of the cluster in whose network this process is.
    pub(super) fn start(workers: usize) -> anyhow::Result<Stage> {
        install()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let mut home = runtime.block_on(Home::prepare())?;
        let namespace = home.namespace.clone();
        let name = format!("bench.myriad.dev/{namespace}");
        let class = Write {
            method: Method::POST,
            path: classes(),
            body: Some(class(&namespace, &name).to_string().into_bytes()),
        };
        let gateway = objects::post(Kind::Gateway, &namespace, &objects::gateway(&namespace));
        for write in [class, gateway] {
            runtime.block_on(home.api.write(write))?;
        }
        let mut controller = home.controller_with(&[format!("--gateway-controller={name}")])?;
        controller.wait_ready().context("the controller")?;
        // It leaves the files by which the proxy finds its way.
        runtime.block_on(home.way())?;
        let mut proxy = home.proxy(workers)?;
        proxy.wait_ready().context("the proxy")?;
        Ok(Stage {
            runtime,
            namespace,
            home,
            controller,
            proxy,
            further: Vec::new(),
        })
    }

    /// The client of the API server.
    pub(super) fn api(&self) -> &Api {
        &self.home.api
    }

    /// Does one write.
    pub(super) fn write(&self, write: Write) -> anyhow::Result<()> {
        self.runtime.block_on(self.home.api.write(write))
    }

    /// Does many writes, in any order.
    pub(super) fn write_all(&self, writes: Vec<Write>) -> anyhow::Result<()> {
        let write = |api: Api, write| async move { api.write(write).await };
        let written = self.home.api.for_each(writes.into_iter(), write);
        self.runtime.block_on(written)
    }

    /// Makes so many further namespaces, and says what they are called.
    pub(super) fn namespaces(&mut self, count: u64) -> anyhow::Result<Vec<String>> {
        let names: Vec<String> = (0..count)
            .map(|number| format!("{}-{number}", self.namespace))
            .collect();
        for name in &names {
            let space = json!({"metadata": {"name": name}});
            let made = self
                .home
                .api
                .call(Method::POST, "/api/v1/namespaces", Some(&space));
            self.runtime.block_on(made)?;
            self.further.push(name.clone());
        }
        Ok(names)
    }

    /// Waits until a path of a host is answered with 200 over plain HTTP.
    pub(super) fn wait_live(&self, host: &str, path: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut client = Client::new(Home::http());
        loop {
            let reply = client.ask(host, path);
            if reply.as_ref().is_ok_and(|reply| reply.status == 200) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < LIVE_TIMEOUT,
                "http://{host}{path} is not served: {:?}",
                reply.map(|reply| reply.status)
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Begins to count what both processes take.
    pub(super) fn watch(&self) -> anyhow::Result<Watch> {
        Ok(Watch {
            at: Instant::now(),
            controller: self.controller.processor_time()?,
            proxy: self.proxy.processor_time()?,
        })
    }

    /// The resources that they took since then.
    pub(super) fn spent(&self, since: &Watch) -> anyhow::Result<Spent> {
        let time = since.at.elapsed().as_secs_f64();
        let used = |process: &Process, before: Duration| {
            let worked = process.processor_time()?.saturating_sub(before);
            let (rss_mib, rss_peak_mib) = process.memory_mib()?;
            anyhow::Ok(Used {
                vcpu: (worked.as_secs_f64() / time * 1e4).round() / 1e4,
                rss_mib,
                rss_peak_mib,
            })
        };
        Ok(Spent {
            controller: used(&self.controller, since.controller)?,
            proxy: used(&self.proxy, since.proxy)?,
        })
    }

    /// Deletes all namespaces and the class; what is in them goes in its own time.
    pub(super) fn leave(self) -> anyhow::Result<()> {
        let class = format!("{}/{}", classes(), self.namespace);
        let spaces = self.further.iter().chain([&self.namespace]);
        let spaces = spaces.map(|name| format!("/api/v1/namespaces/{name}"));
        for path in spaces.chain([class]) {
            let deleted = self.home.api.call(Method::DELETE, &path, None);
            self.runtime.block_on(deleted)?;
        }
        Ok(())
    }
}
