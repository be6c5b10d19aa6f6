//! The files of accounts, orders and certificates. Each is written aside and renamed, so that a
//! whole one is there at every moment, and nobody but the owner reads any.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::{Object, ObjectKind};
use myriad_base::file;
use myriad_pki::acme::{IssuedChain, ORDER_BYTES_MAX, Order, OrderKey};
use rustix::fs::{FlockOperation, flock};

use super::KeptCertificate;
use crate::acme::secret::written;

/// The most bytes of a certificate's file: a chain of 64 KiB and a key, each twice in base64.
const CERTIFICATE_BYTES_MAX: u64 = 256 << 10;

/// The most bytes of an account's file.
const ACCOUNT_BYTES_MAX: u64 = 16 << 10;

/// The folders, by what is in them.
const FOLDERS: [&str; 3] = [ACCOUNTS, ORDERS, CERTIFICATES];
const ACCOUNTS: &str = "accounts";
const ORDERS: &str = "orders";
const CERTIFICATES: &str = "certificates";

/// The folder where everything is kept.
#[derive(Clone, Debug)]
pub(in crate::acme) struct FileStore {
    root: PathBuf,
}

/// Held for as long as this process may change what is kept.
pub(in crate::acme) struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// The lock of a process that leads, which is no file.
    pub(super) fn of_leader() -> Lock {
        Lock { _file: None }
    }
}

impl FileStore {
    /// The store of a folder, which is made where it is not there yet.
    ///
    /// # Errors
    /// The errors of the system.
    pub(in crate::acme) fn open(root: &Path) -> io::Result<FileStore> {
        for folder in FOLDERS {
            let mut builder = DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(root.join(folder))?;
        }
        Ok(FileStore {
            root: root.to_owned(),
        })
    }

    /// The right to change what is kept; none while another process has it.
    pub(in crate::acme) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.root.join("lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: Some(file) })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All certificates. One that cannot be read is left out, with a word in the log.
    pub(in crate::acme) fn certificates(&self) -> io::Result<Vec<KeptCertificate>> {
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
        let text = written(order, issued).to_string();
        let object = Object::from_json(ObjectKind::Secret, &text);
        let kept = object.ok().and_then(KeptCertificate::of);
        let kept = kept.ok_or(io::ErrorKind::InvalidData)?;
        self.write(CERTIFICATES, &file_of(&order.id), text.as_bytes())?;
        Ok(kept)
    }

    /// Forgets a certificate.
    pub(in crate::acme) fn drop_certificate(&self, id: &str) -> io::Result<()> {
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

    /// Forgets accounts with their keys, but those of these names.
    pub(super) fn retain_accounts(&self, names: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(ACCOUNTS))? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let account = name.strip_suffix(".json").or(name.strip_suffix(".key"));
            if account.is_some_and(|account| !names.contains(account)) {
                self.remove(ACCOUNTS, &name)?;
            }
        }
        Ok(())
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

/// The file of a `namespace/name`, neither of which has a `+` or begins with a dot.
fn file_of(id: &str) -> String {
    format!("{}.json", id.replace('/', "+"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use myriad_pki::acme::{Order, OrderKey, OrderStage};

    use std::collections::BTreeSet;

    use super::FileStore;
    use crate::acme::testing;

    fn order(id: &str) -> Order {
        let stage = OrderStage::Fetching("u".into(), OrderKey::new(vec![1, 2, 3]));
        testing::order(id, stage)
    }

    #[test]
    fn what_is_kept_is_found_by_the_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(&folder.path().join("acme")).unwrap();
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
    fn a_certificate_that_is_kept_is_served_and_says_where_it_came_from() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let issued = testing::issued(&["a.example"]);
        store.keep_certificate(&order("shop/web"), &issued).unwrap();
        let kept = store.certificates().unwrap().pop().unwrap();
        assert_eq!(&*kept.id, "shop/web");
        assert_eq!(&*kept.held.names[0], "a.example");
        assert_eq!(kept.held.placed_at, Some(5));
        assert!(kept.object.is_some() && !kept.is_over(kept.held.until - 1));
    }

    #[test]
    fn a_file_that_is_broken_or_half_written_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
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
    fn accounts_that_nobody_names_are_forgotten_with_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let names = ["kept".to_owned(), "old".to_owned()];
        for name in &names {
            let key = OrderKey::new(vec![7; 9]);
            store.keep_account_key(name, &key).unwrap();
            store.keep_account(name, "{}").unwrap();
        }
        let kept = BTreeSet::from([names[0].clone()]);
        store.retain_accounts(&kept).unwrap();
        assert_eq!(store.account("kept").as_deref(), Some("{}"));
        assert!(store.account_key("kept").is_some());
        assert_eq!(store.account("old"), None);
        assert_eq!(store.account_key("old"), None);
    }

    #[test]
    fn one_process_at_a_time_changes_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| FileStore::open(folder.path()).unwrap());
        let lock = one.lock().unwrap();
        assert!(lock.is_some() && other.lock().unwrap().is_none());
        drop(lock);
        assert!(other.lock().unwrap().is_some());
    }
}
