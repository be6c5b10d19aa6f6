//! Joins what a controller says of objects of Gateway API, and what it makes for them.

use std::sync::Arc;

use myriad_base::task;
use myriad_source::kubernetes::Client;
use myriad_translate::Role;
use tokio::sync::{mpsc, watch};

use super::annotations::LiveAnnotations;
use super::deployments::{DeploymentKeeper, Installations};
use super::described::{Described, ObjectParts, ObjectWord};
use super::peers::{PeerKeeper, Peers};
use super::word::{self, Word};
use crate::control::Event;
use crate::dedicated::DedicatedGateways;
use crate::live::Live;
use crate::settings::Controller;
use crate::stated::StatedStatuses;

/// The statuses of objects, of which there are none yet. Proxies of which views serve shared
/// Gateways is known from here on.
pub(super) fn stated(settings: &Controller, live: &Live) -> StatedStatuses {
    let views = settings.meaning.gateways.views.iter();
    let shared = views.filter(|view| view.role == Role::Ingress);
    live.share(shared.map(|view| view.name.clone()));
    let template = settings.gateway_template.as_ref();
    StatedStatuses::new(template.map(|_| DedicatedGateways::default()))
}

/// Writes statuses, makes what Gateways want, and hears of the proxies of other replicas. Returns
/// who is told of statuses that have changed.
pub(super) fn start(
    (client, settings): (&Client, &Controller),
    (word, live, stated): (&Word, &Live, &StatedStatuses),
    (inbox, bundle): (&mpsc::Sender<Event>, watch::Receiver<String>),
) -> ObjectWord {
    let peers = Peers::default();
    let installed = settings.gateway_template.as_ref();
    let installed = installed.map(|_| Installations::default());
    let described = Described {
        stated: stated.clone(),
        live: live.clone(),
        peers: peers.clone(),
        shared: settings.publish_service.as_ref().map(|_| word.addresses()),
        installed: installed.clone(),
        is_live: Arc::default(),
    };
    let controller: Box<str> = settings.meaning.gateway_controller.as_str().into();
    let objects = ObjectWord::start(ObjectParts {
        client: client.clone(),
        leads: word.leads(),
        described,
        controller: controller.clone(),
        manager: word::manager(settings),
        events: word.events(),
        annotations: annotate(client, settings, word),
        counters: word.counters(),
    });
    let keeper = PeerKeeper {
        client: client.clone(),
        namespace: settings.namespace.clone(),
        own: word.identity().to_owned(),
        leads: word.leads(),
        live: live.clone(),
        inbox: inbox.clone(),
        peers,
    };
    drop(task::spawn("replicas", keeper.keep()));
    if let (Some(template), Some(installations)) = (settings.gateway_template.clone(), installed) {
        let keeper = DeploymentKeeper {
            client: client.clone(),
            leads: word.leads(),
            template,
            installation: settings.namespace.clone(),
            controller,
            stated: stated.clone(),
            installations,
            statuses: objects.statuses(),
            bundle,
        };
        drop(task::spawn("deployments", keeper.keep()));
    }
    objects
}

/// Begins to annotate Ingresses, where settings say so.
fn annotate(client: &Client, settings: &Controller, word: &Word) -> Option<LiveAnnotations> {
    let annotations = settings.annotates_live.then(LiveAnnotations::default)?;
    let keeper = annotations.clone().keep(client.clone(), word.leads());
    drop(task::spawn("live annotations", keeper));
    Some(annotations)
}
