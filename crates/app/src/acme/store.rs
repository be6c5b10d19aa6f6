//! The accounts, orders and certificates that are kept: in files, or in Secrets of a cluster. They
//! are enough to go on after a crash at any moment.

mod cluster;
mod files;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use myriad_api::{Meta, Object, ObjectKey, ObjectKind, OnDemand};
use myriad_model::on_demand_name;
use myriad_pki::acme::{
    HeldCertificate, IssuedChain, Millis, Order, OrderKey, SpentBudget, StepTrouble,
};

pub(super) use cluster::{
    ClusterSite, ClusterStore, KeptOnDemand, KeptOrder, ON_DEMAND_LABEL, ORDER_LABEL, Shown,
    WISH_LABEL, named, today,
};
pub(super) use files::{CertificateFiles, FileStore, Lock};

use super::issued::IssuedNews;
use super::secret::{facts_of, on_demand_in};

/// The store of everything.
pub(super) enum AcmeStore {
    /// A folder, of which one process at a time has the use.
    Files(FileStore),
    /// Secrets of a cluster, of which the leader has the use.
    Cluster(ClusterStore),
}

/// A certificate that is kept.
pub(super) struct KeptCertificate {
    /// The Secret, as `namespace/name`.
    pub id: Arc<str>,
    /// The Secret; none where a watch sees it anyway.
    pub object: Option<Object>,
    /// The facts by which it is renewed.
    pub held: HeldCertificate,
}

impl AcmeStore {
    /// The right to change what is kept; none while another process has it. Of a cluster's Secrets
    /// whoever leads has it.
    pub(super) fn lock(&self) -> io::Result<Option<Lock>> {
        match self {
            AcmeStore::Files(files) => files.lock(),
            AcmeStore::Cluster(_) => Ok(Some(Lock::of_leader())),
        }
    }

    /// The certificates that an issuer has provided: of files those that may have changed since a
    /// moment, or all.
    pub(super) fn certificates(
        &self,
        since: Option<Millis>,
    ) -> io::Result<Box<dyn Iterator<Item = KeptCertificate>>> {
        let certificates: Box<dyn Iterator<Item = KeptCertificate>> = match self {
            AcmeStore::Files(files) => Box::new(files.certificates(since)?),
            AcmeStore::Cluster(cluster) => Box::new(cluster.certificates().into_iter()),
        };
        Ok(certificates)
    }

    /// The spent part of the budgets of authorities, where that is kept apart from certificates.
    pub(super) async fn spent(&self) -> io::Result<Vec<SpentBudget>> {
        match self {
            // Nobody else writes the files of certificates, which tell it.
            AcmeStore::Files(_) => Ok(Vec::new()),
            AcmeStore::Cluster(cluster) => cluster.spent().await,
        }
    }

    /// All orders.
    pub(super) async fn orders(&self) -> io::Result<Vec<Order>> {
        match self {
            AcmeStore::Files(files) => files.orders(),
            AcmeStore::Cluster(cluster) => cluster.orders().await,
        }
    }

    /// Keeps an order. Its answers are in service once what is returned says so, where that takes
    /// effect by itself.
    pub(super) async fn keep_order(&self, order: &Order) -> io::Result<Option<Shown>> {
        match self {
            AcmeStore::Files(files) => files.keep_order(order).map(|()| None),
            AcmeStore::Cluster(cluster) => cluster.keep_order(order).await,
        }
    }

    /// Keeps an order before the next step of it, without waiting for that.
    pub(super) fn keep_soon(&self, order: &Order) {
        match self {
            AcmeStore::Files(files) => {
                if let Err(error) = files.keep_order(order) {
                    tracing::error!(secret = %order.id, %error, "its order is not kept");
                }
            }
            AcmeStore::Cluster(cluster) => cluster.keep_soon(order),
        }
    }

    /// Forgets the order of a certificate, before the next step of another, without waiting for
    /// that.
    pub(super) fn drop_soon(&self, id: &Arc<str>) {
        match self {
            AcmeStore::Files(files) => {
                if let Err(error) = files.drop_order(id) {
                    tracing::error!(secret = %id, %error, "its order is not forgotten");
                }
            }
            AcmeStore::Cluster(cluster) => cluster.drop_soon(id),
        }
    }

    /// Whether the certificate of an order may be kept, before anything is done for it.
    ///
    /// # Errors
    /// Why it may not, and what is to be done.
    pub(super) async fn admit(&self, order: &Order) -> Result<(), StepTrouble> {
        match self {
            AcmeStore::Files(_) => Ok(()),
            AcmeStore::Cluster(cluster) => cluster.admit(order).await,
        }
    }

    /// The certificate of an order that is to be placed, where it is there although the office did
    /// not know of it: another leader has obtained it.
    ///
    /// # Errors
    /// The Secret is somebody else's, or cannot be read.
    pub(super) async fn find(&self, order: &Order) -> Result<Option<HeldCertificate>, StepTrouble> {
        match self {
            AcmeStore::Files(_) => Ok(None),
            AcmeStore::Cluster(cluster) => cluster.find(order).await,
        }
    }

    /// Keeps a certificate.
    pub(super) async fn keep_certificate(
        &self,
        order: &Order,
        issued: &IssuedChain,
    ) -> io::Result<KeptCertificate> {
        match self {
            AcmeStore::Files(files) => files.keep_certificate(order, issued),
            AcmeStore::Cluster(cluster) => cluster.keep_certificate(order, issued).await,
        }
    }

    /// Forgets a certificate that nobody else has a use for, without waiting for that.
    pub(super) fn drop_certificate_soon(&self, id: &Arc<str>) {
        match self {
            AcmeStore::Files(files) => {
                if let Err(error) = files.drop_certificate(id) {
                    tracing::error!(secret = %id, %error, "stays, although it is over");
                }
            }
            AcmeStore::Cluster(cluster) => cluster.drop_on_demand_soon(id),
        }
    }

    /// The account at a directory, where one is kept.
    pub(super) async fn account(&self, name: &str) -> io::Result<Option<String>> {
        match self {
            AcmeStore::Files(files) => Ok(files.account(name)),
            AcmeStore::Cluster(cluster) => cluster.account(name).await,
        }
    }

    /// Keeps an account.
    pub(super) async fn keep_account(&self, name: &str, text: &str) -> io::Result<()> {
        match self {
            AcmeStore::Files(files) => files.keep_account(name, text),
            AcmeStore::Cluster(cluster) => cluster.keep_account(name, text).await,
        }
    }

    /// Forgets an account, but not its key.
    pub(super) async fn drop_account(&self, name: &str) -> io::Result<()> {
        match self {
            AcmeStore::Files(files) => files.drop_account(name),
            AcmeStore::Cluster(cluster) => cluster.drop_account(name).await,
        }
    }

    /// The key of an account, which is kept before there is one.
    pub(super) async fn account_key(&self, name: &str) -> io::Result<Option<OrderKey>> {
        match self {
            AcmeStore::Files(files) => Ok(files.account_key(name)),
            AcmeStore::Cluster(cluster) => cluster.account_key(name).await,
        }
    }

    /// Keeps the key of an account.
    pub(super) async fn keep_account_key(&self, name: &str, key: &OrderKey) -> io::Result<()> {
        match self {
            AcmeStore::Files(files) => files.keep_account_key(name, key),
            AcmeStore::Cluster(cluster) => cluster.keep_account_key(name, key).await,
        }
    }

    /// Forgets accounts with their keys, but those of these names.
    pub(super) async fn retain_accounts(&self, names: &BTreeSet<String>) -> io::Result<()> {
        match self {
            AcmeStore::Files(files) => files.retain_accounts(names),
            AcmeStore::Cluster(cluster) => cluster.retain_accounts(names).await,
        }
    }

    /// Waits until certificates have changed although no order of this process did that.
    pub(super) async fn news(&self) -> IssuedNews {
        match self {
            AcmeStore::Files(_) => std::future::pending().await,
            AcmeStore::Cluster(cluster) => cluster.news().await,
        }
    }

    /// Waits until somebody else has written an order, so that what is known of all is in doubt.
    pub(super) async fn doubted(&self) {
        match self {
            AcmeStore::Files(_) => std::future::pending().await,
            AcmeStore::Cluster(cluster) => cluster.doubted().await,
        }
    }

    /// The Secrets of a cluster, where they are the store.
    pub(super) fn cluster(&self) -> Option<&ClusterStore> {
        match self {
            AcmeStore::Files(_) => None,
            AcmeStore::Cluster(cluster) => Some(cluster),
        }
    }
}

impl KeptCertificate {
    fn of(object: Object) -> Option<KeptCertificate> {
        let Object::Secret(secret) = &object else {
            return None;
        };
        if let Some(host) = on_demand_in(secret) {
            let id = on_demand_name(host).text().clone();
            return Some(KeptCertificate {
                held: facts_of(secret)?,
                object: Some(Object::OnDemand(Arc::new(OnDemand {
                    meta: Meta::new(ObjectKey::from_id(ObjectKind::OnDemand, id.clone())),
                    host: host.into(),
                    secret: secret.clone(),
                }))),
                id,
            });
        }
        Some(KeptCertificate {
            id: secret.meta.key.id().clone(),
            held: facts_of(secret)?,
            object: Some(object),
        })
    }
}
