//! The events that wake the control loop.

use std::sync::Arc;

use myriad_api::Batch;
use myriad_base::task;
use myriad_translate::{CertManager, ClaimsChange, FindingsChange, Tenants, View};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::stating::Progress;
use crate::tenants::Followed;

/// Everything that can wake the control loop.
#[derive(Debug)]
pub enum Event {
    /// A source saw objects change.
    Changed(Batch),
    /// Batches from here on count revisions anew.
    Epoch(u64),
    /// There is a view, or another one of its name.
    ViewPut(View),
    /// A view is gone.
    ViewGone(Arc<str>),
    /// The proxy of a Pod, by `namespace/name`, asks which view it sees.
    Asked(String, Answer, InboxPermits),
    /// Another replica has seen since when objects claim hosts.
    Learned(ClaimsChange),
    /// There is no room for since when objects of a namespace claim hosts.
    Overrun(Arc<str>),
    /// Namespaces have other lists of hosts, or other quotas.
    Tenants(Tenants),
    /// Whether cert-manager provides certificates in the same cluster.
    CertManager(CertManager),
    /// Everything that is told to people shall be told again.
    Restate,
    /// Somebody else has found something, or found it gone.
    Found(FindingsChange),
    /// Somebody asks how far the loop has come.
    Progress(oneshot::Sender<Progress>),
    /// The process was asked to stop.
    Stop,
}

/// Takes the name of a view to the one who asked; none where its Pod has none.
pub(super) type Answer = oneshot::Sender<Option<Arc<str>>>;

/// The places in the inbox that a question of a proxy has, until it was worked off: one of those of
/// its namespace, and one of those of all.
pub(super) type InboxPermits = [Option<OwnedSemaphorePermit>; 2];

/// The most events that wait in the inbox. A source that finds it full waits: what would pile up
/// here during a first list is memory that a million small objects leave in pieces.
pub const INBOX_EVENTS_MAX: usize = 32;

/// Tells a control loop of the tenants in a file, if there is one, whenever they are others.
pub fn follow_tenants(file: Option<Followed>, inbox: &mpsc::Sender<Event>) {
    let Some(mut followed) = file else { return };
    let inbox = inbox.clone();
    drop(task::spawn("tenants", async move {
        loop {
            let tenants = followed.next().await;
            if inbox.send(Event::Tenants(tenants)).await.is_err() {
                return;
            }
        }
    }));
}

/// Tells a control loop whether cert-manager is there, whenever that is found out or differs.
pub fn follow_cert_manager(mut found: watch::Receiver<Option<bool>>, inbox: &mpsc::Sender<Event>) {
    let inbox = inbox.clone();
    drop(task::spawn("cert-manager", async move {
        loop {
            let state = match *found.borrow_and_update() {
                None => CertManager::Unknown,
                Some(false) => CertManager::Absent,
                Some(true) => CertManager::Present,
            };
            let sent = inbox.send(Event::CertManager(state)).await;
            if sent.is_err() || found.changed().await.is_err() {
                return;
            }
        }
    }));
}
