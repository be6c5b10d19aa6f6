//! The place that objects are written to: a directory, or the API of a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use http::Method;
use serde_json::Value;

use super::objects;
use crate::cluster::api::{Api, Write};
use crate::cluster::tenant::{Kind, Tenant};
use crate::domains::{self, Domain, NAMESPACE};

/// A place. Cheap to clone.
#[derive(Clone)]
pub(super) enum Place {
    /// A directory that is served, with a file for each domain.
    Directory(PathBuf),
    /// A namespace, by its API server.
    Cluster(Box<(Api, Tenant)>),
}

impl Place {
    /// Writes what all domains with issued certificates share.
    pub(super) async fn write_shared(&self, endpoint: SocketAddr) -> anyhow::Result<()> {
        match self {
            Place::Directory(path) => {
                let shared = [
                    objects::service(NAMESPACE),
                    objects::slice(NAMESPACE, endpoint),
                ];
                let text = objects::documents(&shared);
                Ok(std::fs::write(path.join("issued.yaml"), text)?)
            }
            Place::Cluster(cluster) => {
                let (api, tenant) = &**cluster;
                let namespace = &tenant.namespace;
                let service = objects::service(namespace);
                let slice = objects::slice(namespace, endpoint);
                for (kind, object) in [(Kind::Service, service), (Kind::EndpointSlice, slice)] {
                    api.write(post(tenant.list(kind), &object)).await?;
                }
                Ok(())
            }
        }
    }

    /// Writes the Ingress of a domain whose certificate is to be issued, and says when that began.
    pub(super) async fn write(&self, name: &str, host: &str) -> anyhow::Result<Instant> {
        match self {
            Place::Directory(path) => {
                let ingress = objects::ingress(NAMESPACE, None, name, host);
                put_aside(path, name, &objects::documents(&[ingress]))?;
                rename(path, name)
            }
            Place::Cluster(cluster) => {
                let (api, tenant) = &**cluster;
                let class = Some(tenant.class.as_str());
                let ingress = objects::ingress(&tenant.namespace, class, name, host);
                let write = post(tenant.list(Kind::Ingress), &ingress);
                let written = Instant::now();
                api.write(write).await?;
                Ok(written)
            }
        }
    }

    /// Does all that comes before the one write that makes an ordinary domain live, whose
    /// certificate is there and of this issuer.
    pub(super) async fn prepare(&self, domain: &Domain, issuer: &[u8]) -> anyhow::Result<()> {
        match self {
            Place::Directory(path) => {
                put_aside(path, &domain.name(), &domains::documents(domain, issuer))
            }
            Place::Cluster(cluster) => {
                let (api, tenant) = &**cluster;
                for kind in Kind::NEEDS {
                    if let Some(write) = tenant.create(kind, domain) {
                        api.write(write).await?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Makes an ordinary domain live that was prepared, and says when that began.
    pub(super) async fn publish(&self, domain: &Domain) -> anyhow::Result<Instant> {
        match self {
            Place::Directory(path) => rename(path, &domain.name()),
            Place::Cluster(cluster) => {
                let (api, tenant) = &**cluster;
                let write = tenant.create(Kind::Ingress, domain);
                let write = write.context("a domain has an Ingress")?;
                let written = Instant::now();
                api.write(write).await?;
                Ok(written)
            }
        }
    }
}

fn put_aside(path: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    Ok(std::fs::write(path.join(format!(".{name}")), text)?)
}

fn rename(path: &Path, name: &str) -> anyhow::Result<Instant> {
    let (aside, file) = (format!(".{name}"), format!("{name}.yaml"));
    let written = Instant::now();
    std::fs::rename(path.join(aside), path.join(file))?;
    Ok(written)
}

fn post(list: String, object: &Value) -> Write {
    Write {
        method: Method::POST,
        path: list,
        body: Some(object.to_string().into_bytes()),
    }
}
