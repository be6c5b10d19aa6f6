//! Certificates that were kept, on their way into the first list. There may be very many, so that
//! they are read one after the other and never all in memory as they were written.

use std::io;
use std::sync::Arc;

use myriad_api::{Batch, Change};
use myriad_pki::acme::{HeldCertificate, Millis};
use tokio::sync::mpsc;

use super::steps::now;
use super::store::{CertificateFiles, FileStore};
use crate::control::Event;

/// The most certificates of one batch; the inbox has room for a few of those.
const LOADED_MAX: usize = 64;

/// Certificates that are about to be read.
pub(super) struct Unread {
    files: CertificateFiles,
    since: Millis,
}

/// Certificates that were read by a process that may not change yet what is kept.
#[derive(Default)]
pub(super) struct ReadCertificates {
    /// The facts by which they are renewed.
    pub kept: Vec<(Arc<str>, HeldCertificate)>,
    /// When reading began; none where nothing was read.
    pub since: Option<Millis>,
}

impl Unread {
    /// The certificates of a store, as they are from now on.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(super) fn of(store: &FileStore) -> io::Result<Unread> {
        let since = now();
        let files = store.certificates(None)?;
        Ok(Unread { files, since })
    }

    /// Reads them, and lets the control loop have them. One that has ended takes none.
    pub(super) async fn load(self, inbox: &mpsc::Sender<Event>) -> ReadCertificates {
        let mut read = ReadCertificates {
            kept: Vec::new(),
            since: Some(self.since),
        };
        let mut files = self.files;
        loop {
            let mut changes = Vec::new();
            for certificate in files.by_ref().take(LOADED_MAX) {
                changes.extend(certificate.object.map(Change::Put));
                read.kept.push((certificate.id, certificate.held));
            }
            if changes.is_empty() {
                return read;
            }
            let batch = Batch {
                changes,
                ..Batch::default()
            };
            if inbox.send(Event::Changed(batch)).await.is_err() {
                return read;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_pki::acme::OrderStage;
    use tokio::sync::mpsc;

    use super::{LOADED_MAX, Unread};
    use crate::acme::store::FileStore;
    use crate::acme::testing;
    use crate::control::Event;

    #[tokio::test]
    async fn certificates_are_loaded_a_few_at_a_time_while_they_are_taken_in() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let issued = testing::issued(&["a.example"]);
        let count = 3 * LOADED_MAX + 1;
        for number in 0..count {
            let order = testing::order(&format!("shop/web{number}"), OrderStage::Placing);
            store.keep_certificate(&order, &issued).unwrap();
        }
        let (inbox, mut events) = mpsc::channel(1);
        let unread = Unread::of(&store).unwrap();
        let taking = async {
            let mut batches = Vec::new();
            while let Some(Event::Changed(batch)) = events.recv().await {
                batches.push(batch.changes.len());
            }
            batches
        };
        let loading = async move { unread.load(&inbox).await };
        let (read, batches) = tokio::join!(loading, taking);
        assert_eq!(batches, [LOADED_MAX, LOADED_MAX, LOADED_MAX, 1]);
        assert_eq!(read.kept.len(), count);
        assert_eq!(read.kept[0].1.names, issued.held.names);
        // Whoever takes over the store reads none of them again but those that have changed.
        assert!(read.since.is_some());
        // A loop that has ended is no reason to wait.
        let (inbox, events) = mpsc::channel(1);
        drop(events);
        let read = Unread::of(&store).unwrap().load(&inbox).await;
        assert!(read.kept.len() <= LOADED_MAX);
    }
}
