//! Certificates that the controllers obtain, where settings say so.

use std::sync::Arc;

use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_proxy::{BorderSettings, NameSettings};
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{Client, Cluster};
use myriad_sync::Obtain;
use tokio::sync::mpsc;

use super::issuers;
use crate::acme::{self, Acme, ClusterParts, Demands, Issued, IssuerReports};
use crate::control::{Event, follow_cert_manager};
use crate::live::Live;
use crate::obtained::Obtained;
use crate::settings::Controller;
use crate::wishes::Wishes;

/// Certificates that are being obtained, until this is dropped.
#[derive(Default)]
pub(super) struct Obtaining {
    /// The certificates that are wanted, which the control loop tells.
    pub wishes: Wishes,
    /// The certificates that are there, which the watch tells; none where nobody asks.
    pub issued: Option<Issued>,
    _acme: Option<Acme>,
}

/// The parts of a controller around that.
type Around<'a> = (
    &'a Cluster,
    &'a mpsc::Sender<Event>,
    &'a Live,
    &'a Obtained,
    &'a Demands,
);

impl Obtaining {
    /// Starts, where settings say so. Certificates are ordered while this process leads.
    ///
    /// # Errors
    /// The roots of directories cannot be read, or the thread cannot be started.
    pub(super) fn start(
        settings: &Controller,
        (cluster, inbox, live, obtained, demands): Around<'_>,
        leads: Claim,
        metrics: &Metrics,
    ) -> anyhow::Result<Obtaining> {
        let Some(acme) = &settings.acme else {
            return Ok(Obtaining::default());
        };
        let (wishes, issued) = (Wishes::default(), demands.issued().clone());
        let reports = IssuerReports::default();
        let shown = issuers::show(cluster.client(), leads.clone(), reports.clone());
        drop(task::spawn("statuses of issuers", shown));
        follow_cert_manager(cluster.cert_manager(), inbox);
        let parts = ClusterParts {
            inbox: inbox.clone(),
            wishes: wishes.clone(),
            issued: issued.clone(),
            demands: demands.clone(),
            live: live.clone(),
            leads,
            reports,
            obtained: obtained.clone(),
            names: names(settings),
            namespace: settings.namespace.clone(),
        };
        let acme = Acme::start_in_cluster(acme, parts, metrics)?;
        Ok(Obtaining {
            wishes,
            issued: Some(issued),
            _acme: Some(acme),
        })
    }
}

/// The hosts that proxies tell, for their streams, where certificates are obtained.
pub(super) fn obtain(settings: &Controller, demands: &Demands) -> Option<Arc<dyn Obtain>> {
    settings.acme.as_ref()?;
    Some(Arc::new(demands.clone()))
}

/// The servers of DNS that are asked, and where those of zones may be.
pub(super) fn names(settings: &Controller) -> NameSettings {
    NameSettings {
        servers: settings.resolvers.clone(),
        border: BorderSettings {
            endpoints: settings.meaning.endpoints.clone(),
            ..BorderSettings::default()
        },
        ..NameSettings::default()
    }
}

/// Lets proxies answer for orders, whichever replica has placed them, and serve certificates on
/// demand. Those that are there are in the inbox when this returns.
pub(super) async fn follow_orders(
    (client, demands): (&Client, &Demands),
    settings: &Controller,
    inbox: &mpsc::Sender<Event>,
) {
    if settings.acme.is_none() {
        return;
    }
    let (namespace, inbox) = (&settings.namespace, inbox.clone());
    let orders = acme::follow_orders(client.clone(), namespace, inbox.clone());
    let served = acme::follow_on_demand(client.clone(), namespace, inbox, demands.clone());
    tokio::join!(orders, served);
}
