//! The files of accounts, orders and certificates. Each is written aside and renamed, so that a
//! whole one is there at every moment, and nobody but the owner reads any.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::{Object, ObjectKind};
use myriad_base::file;
use myriad_pki::acme::{HeldCertificate, IssuedChain, Millis, ORDER_BYTES_MAX, Order, OrderKey};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

/// The most bytes of a certificate's file: a chain of 64 KiB and a key, each twice in base64.
const CERTIFICATE_BYTES_MAX: u64 = 256 << 10;

/// The most bytes of an account's file.
const ACCOUNT_BYTES_MAX: u64 = 16 << 10;

/// The annotations of a Secret that say where it came from.
const ISSUER: &str = "myriad.dev/issuer";
const DIRECTORY: &str = "myriad.dev/acme-directory";
const PLACED_AT: &str = "myriad.dev/acme-placed-at";

/// The folders, by what is in them.
const FOLDERS: [&str; 3] = [ACCOUNTS, ORDERS, CERTIFICATES];
const ACCOUNTS: &str = "accounts";
const ORDERS: &str = "orders";
const CERTIFICATES: &str = "certificates";

/// The folder where everything is kept.
#[derive(Clone, Debug)]
pub(super) struct AcmeStore {
    root: PathBuf,
}

/// A certificate that is kept.
pub(super) struct KeptCertificate {
    /// The Secret, as `namespace/name`.
    pub id: Arc<str>,
    /// The Secret.
    pub object: Object,
    /// The facts by which it is renewed.
    pub held: HeldCertificate,
}

/// Held for as long as this process may change what is kept.
pub(super) struct Lock {
    _file: File,
}

impl AcmeStore {
    /// The store of a folder, which is made where it is not there yet.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn open(root: &Path) -> io::Result<AcmeStore> {
        for folder in FOLDERS {
            let mut builder = DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(root.join(folder))?;
        }
        Ok(AcmeStore {
            root: root.to_owned(),
        })
    }

    /// The right to change what is kept; none while another process has it.
    pub(super) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.root.join("lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All certificates. One that cannot be read is left out, with a word in the log.
    pub(super) fn certificates(&self) -> io::Result<Vec<KeptCertificate>> {
        self.read_all(CERTIFICATES, CERTIFICATE_BYTES_MAX, |text| {
            let object = Object::from_json(ObjectKind::Secret, text);
            let object = object.map_err(|error| error.to_string())?;
            KeptCertificate::of(object).ok_or_else(|| "it holds no certificate".to_owned())
        })
    }

    /// All orders.
    pub(super) fn orders(&self) -> io::Result<Vec<Order>> {
        self.read_all(ORDERS, ORDER_BYTES_MAX, |text| {
            Order::from_text(text).map_err(|error| error.to_string())
        })
    }

    /// Keeps an order.
    pub(super) fn keep_order(&self, order: &Order) -> io::Result<()> {
        self.write(ORDERS, &file_of(&order.id), order.expose_text().as_bytes())
    }

    /// Forgets the order of a certificate.
    pub(super) fn drop_order(&self, id: &str) -> io::Result<()> {
        self.remove(ORDERS, &file_of(id))
    }

    /// Keeps a certificate, as the Secret that it is served from, and returns that.
    pub(super) fn keep_certificate(
        &self,
        order: &Order,
        issued: &IssuedChain,
    ) -> io::Result<KeptCertificate> {
        let text = secret(order, issued).to_string();
        let object = Object::from_json(ObjectKind::Secret, &text);
        let kept = object.ok().and_then(KeptCertificate::of);
        let kept = kept.ok_or(io::ErrorKind::InvalidData)?;
        self.write(CERTIFICATES, &file_of(&order.id), text.as_bytes())?;
        Ok(kept)
    }

    /// Forgets a certificate.
    pub(super) fn drop_certificate(&self, id: &str) -> io::Result<()> {
        self.remove(CERTIFICATES, &file_of(id))
    }

    /// The account at a directory, where one is kept.
    pub(super) fn account(&self, name: &str) -> Option<String> {
        let path = self.path(ACCOUNTS, &format!("{name}.json"));
        file::whole(&path, ACCOUNT_BYTES_MAX).ok()
    }

    /// Keeps an account.
    pub(super) fn keep_account(&self, name: &str, text: &str) -> io::Result<()> {
        self.write(ACCOUNTS, &format!("{name}.json"), text.as_bytes())
    }

    /// Forgets an account, but not its key.
    pub(super) fn drop_account(&self, name: &str) -> io::Result<()> {
        self.remove(ACCOUNTS, &format!("{name}.json"))
    }

    /// The key of an account, which is kept before there is one.
    pub(super) fn account_key(&self, name: &str) -> Option<OrderKey> {
        let path = self.path(ACCOUNTS, &format!("{name}.key"));
        let text = file::whole(&path, ACCOUNT_BYTES_MAX).ok()?;
        STANDARD.decode(text.trim()).ok().map(OrderKey::new)
    }

    /// Keeps the key of an account.
    pub(super) fn keep_account_key(&self, name: &str, key: &OrderKey) -> io::Result<()> {
        let text = STANDARD.encode(key.expose());
        self.write(ACCOUNTS, &format!("{name}.key"), text.as_bytes())
    }

    fn path(&self, folder: &str, name: &str) -> PathBuf {
        self.root.join(folder).join(name)
    }

    fn write(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let aside = self.path(folder, &format!(".{name}"));
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, self.path(folder, name))?;
        File::open(self.root.join(folder))?.sync_all()
    }

    fn remove(&self, folder: &str, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(folder, name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn read_all<T>(
        &self,
        folder: &str,
        bytes_max: u64,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> io::Result<Vec<T>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name();
            // What was written aside and never renamed is of a process that died.
            if !name.to_string_lossy().ends_with(".json") || name.to_string_lossy().starts_with('.')
            {
                continue;
            }
            let text = file::whole(&entry.path(), bytes_max);
            match text.map_err(|it| it.to_string()).and_then(|it| read(&it)) {
                Ok(value) => found.push(value),
                Err(error) => {
                    let file = entry.path().display().to_string();
                    tracing::error!(%file, %error, "is not read");
                }
            }
        }
        Ok(found)
    }
}

impl KeptCertificate {
    fn of(object: Object) -> Option<KeptCertificate> {
        let Object::Secret(secret) = &object else {
            return None;
        };
        let leaf = secret.tls.as_ref().ok()?.chain.first()?;
        let meta = &secret.meta;
        let held = HeldCertificate {
            directory: meta.annotation(DIRECTORY).map(Box::from),
            placed_at: meta.annotation(PLACED_AT).and_then(|it| it.parse().ok()),
            ..HeldCertificate::of(leaf)?
        };
        Some(KeptCertificate {
            id: meta.key.id().clone(),
            object,
            held,
        })
    }

    /// Whether it is over.
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.held.until <= now
    }
}

/// The Secret of a certificate, as it is written for a cluster too.
fn secret(order: &Order, issued: &IssuedChain) -> Value {
    let (namespace, name) = order.id.split_once('/').unwrap_or(("", &order.id));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": {
                ISSUER: order.issuer,
                DIRECTORY: order.directory,
                PLACED_AT: order.placed_at.to_string(),
            },
        },
        "data": {
            "tls.crt": STANDARD.encode(&issued.chain_pem),
            "tls.key": STANDARD.encode(issued.expose_key_pem()),
        },
    })
}

/// The file of a `namespace/name`, neither of which has a `+` or begins with a dot.
fn file_of(id: &str) -> String {
    format!("{}.json", id.replace('/', "+"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use myriad_pki::acme::{Order, OrderKey, OrderStage};

    use super::AcmeStore;

    fn order(id: &str) -> Order {
        Order {
            id: id.into(),
            names: vec!["a.example".into()],
            issuer: "default".into(),
            directory: "https://ca.example/dir".into(),
            stage: OrderStage::Fetching("u".into(), OrderKey::new(vec![1, 2, 3])),
            replaces: None,
            failures: 0,
            tried: 0,
            not_before: 0,
            placed_at: 5,
        }
    }

    #[test]
    fn what_is_kept_is_found_by_the_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = AcmeStore::open(&folder.path().join("acme")).unwrap();
        for id in ["shop/web", "shop.a/b"] {
            store.keep_order(&order(id)).unwrap();
        }
        let mut found = store.orders().unwrap();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(found, [order("shop.a/b"), order("shop/web")]);
        let mode = |path: &str| {
            let path = folder.path().join("acme").join(path);
            path.metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode("orders"), 0o700);
        assert_eq!(mode("orders/shop+web.json"), 0o600);
        store.drop_order("shop/web").unwrap();
        store.drop_order("shop/web").unwrap();
        assert_eq!(store.orders().unwrap().len(), 1);
        store
            .keep_account_key("k", &OrderKey::new(vec![7; 9]))
            .unwrap();
        assert_eq!(store.account_key("k"), Some(OrderKey::new(vec![7; 9])));
        assert_eq!(mode("accounts/k.key"), 0o600);
    }

    #[test]
    fn a_file_that_is_broken_or_half_written_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = AcmeStore::open(folder.path()).unwrap();
        store.keep_order(&order("shop/web")).unwrap();
        for name in ["shop+broken.json", ".shop+half.json", "notes.txt"] {
            std::fs::write(folder.path().join("orders").join(name), "{").unwrap();
        }
        assert_eq!(store.orders().unwrap(), [order("shop/web")]);
        let long = "x".repeat(1 << 20);
        std::fs::write(folder.path().join("certificates/a+b.json"), long).unwrap();
        assert!(store.certificates().unwrap().is_empty());
    }

    #[test]
    fn one_process_at_a_time_changes_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| AcmeStore::open(folder.path()).unwrap());
        let lock = one.lock().unwrap();
        assert!(lock.is_some() && other.lock().unwrap().is_none());
        drop(lock);
        assert!(other.lock().unwrap().is_some());
    }
}
