//! Certificates that the controllers obtain, where settings say so.

use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_proxy::{BorderSettings, NameSettings};
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{Client, Cluster};
use tokio::sync::mpsc;

use super::issuers;
use crate::acme::{self, Acme, ClusterParts, Issued, IssuerReports};
use crate::control::{Event, follow_cert_manager};
use crate::live::Live;
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

impl Obtaining {
    /// Starts, where settings say so. Certificates are ordered while this process leads.
    ///
    /// # Errors
    /// The roots of directories cannot be read, or the thread cannot be started.
    pub(super) fn start(
        settings: &Controller,
        (cluster, inbox, live): (&Cluster, &mpsc::Sender<Event>, &Live),
        leads: Claim,
        metrics: &Metrics,
    ) -> anyhow::Result<Obtaining> {
        let Some(acme) = &settings.acme else {
            return Ok(Obtaining::default());
        };
        let (wishes, issued) = (Wishes::default(), Issued::default());
        let reports = IssuerReports::default();
        let shown = issuers::show(cluster.client(), leads.clone(), reports.clone());
        drop(task::spawn("statuses of issuers", shown));
        follow_cert_manager(cluster.cert_manager(), inbox);
        let parts = ClusterParts {
            inbox: inbox.clone(),
            wishes: wishes.clone(),
            issued: issued.clone(),
            live: live.clone(),
            leads,
            reports,
            names: NameSettings {
                servers: settings.resolvers.clone(),
                border: BorderSettings {
                    endpoints: settings.meaning.endpoints.clone(),
                    ..BorderSettings::default()
                },
                ..NameSettings::default()
            },
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

/// Lets proxies answer for orders, whichever replica has placed them. Those that are there are in
/// the inbox when this returns.
pub(super) async fn follow_orders(
    client: &Client,
    settings: &Controller,
    inbox: &mpsc::Sender<Event>,
) {
    if settings.acme.is_some() {
        acme::follow_orders(client.clone(), &settings.namespace, inbox.clone()).await;
    }
}
