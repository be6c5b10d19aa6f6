//! Where proofs are kept: in a file, or in a ConfigMap of the controllers' namespace. They outlive
//! every process, so that whoever has proven a host keeps it when nobody answers questions.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use myriad_base::file;
use myriad_source::kubernetes::{CallError, Client, Texts};

use super::book::TEXT_BYTES_MAX;

/// The ConfigMap. The role of the chart names it.
pub(super) const CONFIG_MAP: &str = "myriad-host-proofs";

/// The key in it.
const KEY: &str = "proofs";

/// The most bytes of a file.
const FILE_BYTES_MAX: u64 = 2 * TEXT_BYTES_MAX as u64;

/// The place where proofs are kept.
pub(super) enum ProofStore {
    /// A file of this process.
    File(PathBuf),
    /// The ConfigMap in a namespace.
    Cluster(Client, String),
}

/// The outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It says what was written.
    Done,
    /// Somebody else has written this, which is to be taken in first.
    Other(String),
}

/// Why proofs cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The file.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The API server.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl StoreError {
    /// Whether it stays as it is until somebody mends it.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            StoreError::File(_) => true,
            StoreError::Call(error) => {
                matches!(error, CallError::Forbidden(_) | CallError::Rejected(_))
            }
        }
    }
}

impl ProofStore {
    /// The text that is kept; empty where nothing is.
    pub(super) async fn read(&self) -> Result<String, StoreError> {
        match self {
            ProofStore::File(path) => Ok(read_file(path)?),
            ProofStore::Cluster(client, namespace) => {
                match client.config_map(namespace, CONFIG_MAP).await {
                    Ok(mut map) => Ok(map.texts.remove(KEY).unwrap_or_default()),
                    Err(CallError::NotFound) => Ok(String::new()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Keeps a text in place of the one that was known, unless somebody else has written another.
    /// Deleted ones are written anew.
    pub(super) async fn write(&self, known: &str, text: &str) -> Result<Written, StoreError> {
        let (client, namespace) = match self {
            ProofStore::File(path) => {
                write_file(path, text)?;
                return Ok(Written::Done);
            }
            ProofStore::Cluster(client, namespace) => (client, namespace),
        };
        let read = match client.config_map(namespace, CONFIG_MAP).await {
            Ok(map) => Some(map),
            Err(CallError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let there = read.as_ref().and_then(|map| map.texts.get(KEY));
        // One that was emptied is written anew: nobody loses a host by that.
        if let Some(there) = there.filter(|there| *there != known && !there.is_empty()) {
            return Ok(Written::Other(there.clone()));
        }
        let texts = Texts::from([(KEY.to_owned(), text.to_owned())]);
        let written = client.write_config_map(namespace, CONFIG_MAP, read.as_ref(), &texts);
        match written.await {
            Ok(()) => Ok(Written::Done),
            // Whoever has written it first is read.
            Err(CallError::Conflict) => match self.read().await? {
                text if text.is_empty() => Err(CallError::Conflict.into()),
                text => Ok(Written::Other(text)),
            },
            Err(error) => Err(error.into()),
        }
    }
}

/// The text of a file; empty where there is none.
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    match file::whole(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Writes a file aside and renames it, so that a whole one is there at every moment.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let aside = folder.join(format!(".{}", name.to_string_lossy()));
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::{KEY, ProofStore, Written};
    use crate::fake_api;

    #[tokio::test]
    async fn a_file_is_kept_for_its_owner_and_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/proofs");
        let store = ProofStore::File(path.clone());
        assert_eq!(store.read().await.unwrap(), "");
        for text in ["a.test shop 1\n", "b.test blog 2\n"] {
            assert_eq!(store.write("", text).await.unwrap(), Written::Done);
            assert_eq!(store.read().await.unwrap(), text);
        }
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let names = std::fs::read_dir(folder.path().join("state")).unwrap();
        assert_eq!(names.count(), 1, "nothing is left aside");
    }

    /// An API server with one ConfigMap in a namespace, or none.
    #[derive(Clone, Default)]
    struct Api(Arc<Mutex<KeptMap>>);

    #[derive(Default)]
    struct KeptMap {
        map: Option<Value>,
        version: u64,
    }

    impl Api {
        async fn store(&self) -> ProofStore {
            let api = self.clone();
            let answer = move |method: &str, path: &str, body: &Value| {
                let collection = "/api/v1/namespaces/myriad/configmaps";
                assert!(path.starts_with(collection), "{path}");
                Some(api.0.lock().unwrap().call(method, body))
            };
            let client = fake_api::serve(answer).await;
            ProofStore::Cluster(client, "myriad".to_owned())
        }

        /// Somebody writes it.
        fn set(&self, data: Value) {
            self.0.lock().unwrap().set(data);
        }

        /// Somebody deletes it.
        fn delete(&self) {
            self.0.lock().unwrap().map = None;
        }

        /// The text that it has.
        fn text(&self) -> String {
            let kept = self.0.lock().unwrap();
            let map = kept.map.as_ref().unwrap();
            map["data"][KEY].as_str().unwrap().to_owned()
        }
    }

    impl KeptMap {
        fn set(&mut self, data: Value) -> Value {
            self.version += 1;
            let metadata = json!({"resourceVersion": self.version.to_string()});
            let map = json!({"metadata": metadata, "data": data});
            self.map = Some(map.clone());
            map
        }

        fn call(&mut self, method: &str, body: &Value) -> (u16, Value) {
            let status = |code: u16| (code, json!({"kind": "Status", "code": code}));
            let version = self.map.as_ref();
            let version = version.map(|map| map["metadata"]["resourceVersion"].clone());
            match (method, version) {
                ("POST", None) => (201, self.set(body["data"].clone())),
                (_, None) => status(404),
                ("GET", Some(_)) => (200, self.map.clone().unwrap()),
                ("PATCH", Some(known)) if body["metadata"]["resourceVersion"] == known => {
                    (200, self.set(body["data"].clone()))
                }
                _ => status(409),
            }
        }
    }

    #[tokio::test]
    async fn a_map_that_somebody_has_emptied_or_deleted_is_written_anew() {
        let api = Api::default();
        let store = api.store().await;
        assert_eq!(store.read().await.unwrap(), "");
        assert_eq!(store.write("", "a\n").await.unwrap(), Written::Done);
        assert_eq!(store.read().await.unwrap(), "a\n");
        // Another process has kept a proof meanwhile, which is taken in first.
        api.set(json!({KEY: "a\nb\n"}));
        let written = store.write("a\n", "a\nc\n").await.unwrap();
        assert_eq!(written, Written::Other("a\nb\n".to_owned()));
        assert_eq!(api.text(), "a\nb\n");
        // An empty one says of no host that nobody has proven it.
        for emptied in [json!({KEY: ""}), json!({})] {
            api.set(emptied);
            assert_eq!(store.read().await.unwrap(), "");
            let written = store.write("a\nb\n", "a\nb\nc\n").await.unwrap();
            assert_eq!(written, Written::Done);
            assert_eq!(api.text(), "a\nb\nc\n");
        }
        api.delete();
        let written = store.write("a\nb\nc\n", "a\nb\nc\n").await.unwrap();
        assert_eq!(
            (written, api.text()),
            (Written::Done, "a\nb\nc\n".to_owned())
        );
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let error = ProofStore::File(folder.path().to_owned()).read().await;
        assert!(error.unwrap_err().is_lasting());
    }
}
