//! The ground of a run: a namespace in a cluster, with the objects of domains.

use std::time::{Duration, Instant};

use anyhow::ensure;
use http::Method;
use indicatif::ProgressBar;
use tokio::runtime::Runtime;

use super::api::{Api, Write};
use super::parts::Home;
use super::tenant::{Kind, Tenant};
use crate::domains::Generator;

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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let home = runtime.block_on(Home::prepare())?;
        let tenant = Tenant {
            namespace: home.namespace.clone(),
            class: home.namespace.clone(),
            issuer: generator.issuer().to_vec(),
        };
        let shared = tenant.create_shared(generator.shared());
        runtime.block_on(home.api.write(shared))?;
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
        let begun = Instant::now();
        let tenant = &self.tenant;
        let create = |api: Api, index| async move {
            let domain = generator.domain(Generator::existing(index), 0)?;
            for kind in [
                Kind::Secret,
                Kind::Service,
                Kind::EndpointSlice,
                Kind::Ingress,
            ] {
                if let Some(write) = tenant.create(kind, &domain) {
                    api.write(write).await?;
                }
            }
            bar.inc(1);
            Ok(())
        };
        let filled = self.home.api.for_each(existing..count, create);
        self.runtime.block_on(filled)?;
        self.existing = count;
        Ok(begun.elapsed())
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
        let path = format!("/api/v1/namespaces/{}", self.home.namespace);
        let deleted = self.home.api.call(Method::DELETE, &path, None);
        self.runtime.block_on(deleted)?;
        Ok(())
    }
}
