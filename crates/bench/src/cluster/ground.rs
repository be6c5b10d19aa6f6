//! The ground of a run: a namespace in a cluster, with the objects of domains.

use std::time::{Duration, Instant};

use anyhow::ensure;
use http::Method;
use indicatif::ProgressBar;
use tokio::runtime::Runtime;

use super::api::{Api, Write};
use super::gateway_api;
use super::parts::Home;
use super::process::Process;
use super::tenant::{Kind, Tenant};
use crate::domains::{DomainObjects, Generator, SET_LISTENERS};

/// A namespace and the objects that exist in it. They outlive a measurement: the next one, with
/// more domains, adds to them.
pub struct Ground {
    /// The runtime that requests are sent from.
    pub runtime: Runtime,
    /// The directory and network of the processes.
    pub home: Home,
    /// The writer of objects.
    pub tenant: Tenant,
    existing: u64,
}

impl Ground {
    /// An empty namespace of the cluster in whose network this process is.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn prepare(generator: &Generator) -> anyhow::Result<Ground> {
        Ground::prepare_for(generator, DomainObjects::Ingresses)
    }

    /// The same for domains that other objects lead to, with all that these have in common.
    ///
    /// # Errors
    /// The API server refuses, or does not know the kinds of Gateway API.
    pub fn prepare_for(generator: &Generator, objects: DomainObjects) -> anyhow::Result<Ground> {
        if objects != DomainObjects::Ingresses {
            gateway_api::install()?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let home = runtime.block_on(Home::prepare())?;
        let tenant = Tenant {
            namespace: home.namespace.clone(),
            class: home.namespace.clone(),
            issuer: generator.issuer().to_vec(),
            layout: generator.layout(objects, 0),
        };
        let shared = tenant.create_shared(generator.shared());
        for write in [shared].into_iter().chain(tenant.create_common()) {
            runtime.block_on(home.api.write(write))?;
        }
        Ok(Ground {
            runtime,
            home,
            tenant,
            existing: 0,
        })
    }

    /// Writes the objects of domains until so many exist, and says how long that took.
    ///
    /// # Errors
    /// The API server refuses, or more exist already.
    pub fn fill(
        &mut self,
        generator: &Generator,
        count: u64,
        bar: &ProgressBar,
    ) -> anyhow::Result<Duration> {
        let existing = self.existing;
        ensure!(existing <= count, "numbers of domains must rise");
        bar.inc(existing);
        self.tenant.layout.domains = count;
        let begun = Instant::now();
        let tenant = &self.tenant;
        let create = |api: Api, index| async move {
            let domain = generator.domain(Generator::existing(index), 0)?;
            let kinds = Kind::NEEDS.into_iter().chain([tenant.lead()]);
            for write in kinds.filter_map(|kind| tenant.create(kind, &domain)) {
                api.write(write).await?;
            }
            bar.inc(1);
            Ok(())
        };
        let filled = self.home.api.for_each(existing..count, create);
        self.runtime.block_on(filled)?;
        // A set that an earlier run left unfinished grows.
        let sets = existing / SET_LISTENERS..tenant.layout.sets();
        let sets = sets.map(|set| tenant.write_set(set, existing > set * SET_LISTENERS));
        let write = |api: Api, write| async move { api.write(write).await };
        let filled = self.home.api.for_each(sets, write);
        self.runtime.block_on(filled)?;
        self.existing = count;
        Ok(begun.elapsed())
    }

    /// Starts the controller of this namespace's classes.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn controller(&self) -> anyhow::Result<Process> {
        let more = match self.tenant.layout.objects {
            DomainObjects::Ingresses => Vec::new(),
            DomainObjects::ListenerSets | DomainObjects::HttpRoutes => {
                vec![format!("--gateway-controller={}", self.tenant.controller())]
            }
        };
        self.home.controller_with(&more)
    }

    /// Does one write.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn write(&self, write: Write) -> anyhow::Result<()> {
        self.runtime.block_on(self.home.api.write(write))
    }

    /// Deletes the namespace; what is in it goes in its own time.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn leave(self) -> anyhow::Result<()> {
        if let Some(write) = self.tenant.delete_class() {
            self.write(write)?;
        }
        let path = format!("/api/v1/namespaces/{}", self.home.namespace);
        let deleted = self.home.api.call(Method::DELETE, &path, None);
        self.runtime.block_on(deleted)?;
        Ok(())
    }
}
