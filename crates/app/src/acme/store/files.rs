//! The files of accounts, orders and certificates. Each is written aside and renamed, so that a
//! whole one is there at every moment, and nobody but the owner reads any.
//!
//! Certificates may be very many. A process reads each once, one after the other, and where another
//! one has changed some meanwhile those alone: their files are younger than the first reading.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::{Object, ObjectKind};
use myriad_base::file;
use myriad_pki::acme::{IssuedChain, Millis, ORDER_BYTES_MAX, Order, OrderKey};
use rustix::fs::{FlockOperation, flock};

use super::KeptCertificate;
use crate::acme::secret::written;

/// The most bytes of a certificate's file: a chain of 64 KiB and a key, each twice in base64.
const CERTIFICATE_BYTES_MAX: u64 = 256 << 10;

/// The most bytes of an account's file.
const ACCOUNT_BYTES_MAX: u64 = 16 << 10;

/// How much older than it is a file may seem: clocks of file systems go in steps, and those of
/// other machines go wrong.
const AGE_DOUBT: Millis = 60_000;

/// The longest `namespace/name` that a file is called by: a name of a file has 255 bytes.
const ID_BYTES_MAX: usize = 200;

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

    /// All certificates, or those that may have changed since a moment. One that cannot be read is
    /// left out, with a word in the log.
    pub(in crate::acme) fn certificates(
        &self,
        since: Option<Millis>,
    ) -> io::Result<CertificateFiles> {
        let folder = self.root.join(CERTIFICATES);
        let since = since.map(|since| since.saturating_sub(AGE_DOUBT));
        let is_other = since.is_none_or(|since| {
            let metadata = fs::metadata(&folder);
            // One that cannot be looked at is read, which tells why.
            metadata.map_or(true, |it| modified_at(&it) >= since)
        });
        let entries = is_other.then(|| fs::read_dir(&folder)).transpose()?;
        Ok(CertificateFiles { entries, since })
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
    pub(in crate::acme) fn keep_certificate(
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
            found.extend(read_entry(&entry?, bytes_max, &read));
        }
        Ok(found)
    }
}

/// The files of certificates, which are read one after the other.
#[derive(Debug)]
pub(in crate::acme) struct CertificateFiles {
    /// The files that are yet to be read, unless nothing has changed.
    entries: Option<fs::ReadDir>,
    since: Option<Millis>,
}

impl Iterator for CertificateFiles {
    type Item = KeptCertificate;

    fn next(&mut self) -> Option<KeptCertificate> {
        loop {
            let entry = match self.entries.as_mut()?.next()? {
                Ok(entry) => entry,
                Err(error) => {
                    tracing::error!(%error, "certificates that are kept cannot be listed");
                    self.entries = None;
                    return None;
                }
            };
            let is_as_it_was = self.since.is_some_and(|since| {
                let metadata = entry.metadata();
                metadata.is_ok_and(|it| modified_at(&it) < since)
            });
            if is_as_it_was {
                continue;
            }
            let read = read_entry(&entry, CERTIFICATE_BYTES_MAX, |text| {
                let object = Object::from_json(ObjectKind::Secret, text);
                let object = object.map_err(|error| error.to_string())?;
                KeptCertificate::of(object).ok_or_else(|| "it holds no certificate".to_owned())
            });
            if read.is_some() {
                return read;
            }
        }
    }
}

/// Reads what a file of a folder holds; none for one that is no whole file, or cannot be read.
fn read_entry<T>(
    entry: &fs::DirEntry,
    bytes_max: u64,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    // What was written aside and never renamed is of a process that died.
    if !name.ends_with(".json") || name.starts_with('.') {
        return None;
    }
    let text = file::whole(&entry.path(), bytes_max);
    let value = text.map_err(|it| it.to_string()).and_then(|it| read(&it));
    let told = value.inspect_err(|error| {
        let file = entry.path().display().to_string();
        tracing::error!(%file, %error, "is not read");
    });
    told.ok()
}

/// When a file, or what is in a folder, was changed last.
fn modified_at(metadata: &fs::Metadata) -> Millis {
    let seconds = metadata.mtime().saturating_mul(1_000);
    seconds.saturating_add(metadata.mtime_nsec() / 1_000_000)
}

/// The file of a `namespace/name`, neither of which has a `+` or begins with a dot. A long one is
/// called by its hash.
fn file_of(id: &str) -> String {
    match id.len() > ID_BYTES_MAX {
        true => format!("{}.json", blake3::hash(id.as_bytes()).to_hex()),
        false => format!("{}.json", id.replace('/', "+")),
    }
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
        let kept = store.certificates(None).unwrap().next().unwrap();
        assert_eq!(&*kept.id, "shop/web");
        assert_eq!(&*kept.held.names[0], "a.example");
        assert_eq!(kept.held.placed_at, Some(5));
        assert!(kept.object.is_some());
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
        assert_eq!(store.certificates(None).unwrap().count(), 0);
    }

    #[test]
    fn what_was_read_is_not_read_again_but_what_another_process_has_changed_since() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let issued = testing::issued(&["a.example"]);
        for number in 0..3 {
            let order = order(&format!("shop/web{number}"));
            store.keep_certificate(&order, &issued).unwrap();
        }
        let ids = |since| {
            let files = store.certificates(since).unwrap();
            let mut ids: Vec<_> = files.map(|kept| kept.id.to_string()).collect();
            ids.sort();
            ids
        };
        let all = ["shop/web0", "shop/web1", "shop/web2"];
        assert_eq!(ids(None), all);
        // They are of an hour ago, and so is their folder.
        let written = |path: &std::path::Path| {
            let file = std::fs::File::open(path).unwrap();
            file.metadata().unwrap().modified().unwrap()
        };
        let certificates = folder.path().join("certificates");
        let before = written(&certificates) - std::time::Duration::from_secs(3_600);
        let age = |path: &std::path::Path| {
            let file = std::fs::File::open(path).unwrap();
            file.set_modified(before).unwrap();
        };
        for entry in certificates.read_dir().unwrap() {
            age(&entry.unwrap().path());
        }
        age(&certificates);
        let now = Some(crate::acme::steps::now());
        assert!(ids(now).is_empty());
        let other = order("shop/web1");
        store.keep_certificate(&other, &issued).unwrap();
        assert_eq!(ids(now), ["shop/web1"]);
        // One who knows nothing reads all.
        assert_eq!(ids(None), all);
    }

    #[test]
    fn the_longest_names_are_kept_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let id = format!("{}/{}", "n".repeat(63), "s".repeat(253));
        store.keep_order(&order(&id)).unwrap();
        assert_eq!(store.orders().unwrap(), [order(&id)]);
        store.drop_order(&id).unwrap();
        assert!(store.orders().unwrap().is_empty());
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
