//! Shelves of Secrets that every replica follows: what their news mean enters the control loop.

use std::time::Duration;

use myriad_api::{Batch, Change};
use myriad_base::task;
use myriad_source::kubernetes::{ShelfNews, ShelfWatch};
use tokio::sync::{mpsc, oneshot};

use crate::control::Event;

/// How long the start of a controller waits for what is there already: it is part of the first
/// list, so that a controller which starts takes none of it out of service.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Follows a shelf from now on, on a task of this name. Returns once the changes are in the inbox
/// that are made of what was there before, or after a while; whether they are.
pub(super) async fn follow_shelf(
    name: &'static str,
    watch: ShelfWatch,
    inbox: mpsc::Sender<Event>,
    take: impl FnMut(Vec<ShelfNews>) -> Vec<Change> + Send + 'static,
) -> bool {
    let (tell, told) = oneshot::channel();
    drop(task::spawn(name, follow(watch, inbox, tell, take)));
    tokio::time::timeout(FIRST_WAIT, told).await.is_ok()
}

async fn follow(
    mut watch: ShelfWatch,
    inbox: mpsc::Sender<Event>,
    tell: oneshot::Sender<()>,
    mut take: impl FnMut(Vec<ShelfNews>) -> Vec<Change>,
) {
    let mut tell = Some(tell);
    loop {
        let changes = take(watch.next().await);
        if !changes.is_empty() {
            let batch = Batch {
                changes,
                ..Batch::default()
            };
            if inbox.send(Event::Changed(batch)).await.is_err() {
                return;
            }
        }
        if let Some(tell) = tell.take() {
            // Who has waited for too long does not hear of it.
            let _ = tell.send(());
        }
    }
}
