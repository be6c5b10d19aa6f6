//! Session tickets of several replicas: a client resumes its session on whichever it meets.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, Curl, Shaker, Site};
use tokio::process::{Child, Command};

use super::commands::myriad;

/// A folder as Kubernetes mounts a Secret: what is in it changes by a link that is exchanged.
struct Volume {
    folder: PathBuf,
    versions: usize,
}

impl Volume {
    fn new(folder: PathBuf) -> Volume {
        std::fs::create_dir(&folder).expect("a directory");
        symlink("..data/ticket.keys", folder.join("ticket.keys")).expect("a link");
        Volume {
            folder,
            versions: 0,
        }
    }

    fn write(&mut self, text: &str) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        let file = self.folder.join(&version).join("ticket.keys");
        std::fs::create_dir(self.folder.join(&version)).expect("a directory");
        std::fs::write(&file, text).expect("a file");
        std::fs::set_permissions(&file, Permissions::from_mode(0o440)).expect("a mode");
        let aside = self.folder.join("..aside");
        symlink(version, &aside).expect("a link");
        std::fs::rename(&aside, self.folder.join("..data")).expect("a rename");
    }

    fn argument(&self) -> String {
        format!("--ticket-keys={}/ticket.keys", self.folder.display())
    }
}

/// A replica of its own process.
struct Replica {
    _child: Child,
    log: PathBuf,
    https: SocketAddr,
    admin: SocketAddr,
    root: PathBuf,
}

fn serve(served: &Path, volume: &Volume) -> Command {
    let mut command = myriad();
    command
        .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .args(["--admin=127.0.0.1:0", "--workers=2", "--log=debug"])
        .args([volume.argument()])
        .arg(served);
    command
}

impl Replica {
    async fn start(served: &Path, volume: &Volume, root: &Path, number: u8) -> Replica {
        let log = root.with_file_name(format!("log-{number}"));
        let file = std::fs::File::create(&log).expect("a file");
        let mut command = serve(served, volume);
        command.stdout(Stdio::null()).stderr(file);
        let child = command.spawn().expect("the binary runs");
        let greeting = eventually(async || {
            let said = std::fs::read_to_string(&log).expect("a log");
            // The last line may be on its way.
            let (whole, _) = said.rsplit_once('\n')?;
            let mut lines = whole.lines();
            let line = lines.find(|line| line.starts_with("myriad serves"))?;
            Some(line.to_owned())
        });
        let greeting = greeting.await.expect("it serves in time");
        let find = |name: &str| -> SocketAddr {
            let (_, rest) = greeting.split_once(name).expect("it is there");
            let end = rest.find(',').unwrap_or(rest.len());
            rest[..end].trim().parse().expect("an address")
        };
        Replica {
            https: find("https on "),
            admin: find("admin on "),
            _child: child,
            log,
            root: root.to_owned(),
        }
    }

    /// Asks with the session of a file, if one is named, and keeps that of the answer in the
    /// other file; says whether the session was resumed.
    async fn resumes(&self, version: &str, from: Option<&Path>, to: &Path) -> bool {
        let mut shaker = Shaker::new(self.https, "a.test", &self.root).version(version);
        if let Some(from) = from {
            shaker = shaker.resuming(from);
        }
        let resumed = shaker.keeping(to).resumes().await;
        resumed.unwrap_or_else(|said| panic!("{version}: {said}"))
    }

    async fn page(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.admin);
        Curl::new(&url, &[], &self.root).ask().await.body
    }

    async fn counts(&self, line: &str) {
        let counted = eventually(async || self.page("/metrics").await.contains(line).then_some(()));
        assert!(counted.await.is_some(), "no {line:?}");
    }
}

async fn key() -> String {
    let output = Command::new("openssl")
        .args(["rand", "-hex", "32"])
        .output();
    let output = output.await.expect("openssl is installed");
    String::from_utf8(output.stdout).expect("digits")
}

/// Both versions, since each has tickets of its own kind.
const VERSIONS: [&str; 2] = ["-tls1_3", "-tls1_2"];

/// Two replicas, of which the second one starts once there are keys.
struct Scene {
    directory: tempfile::TempDir,
    served: PathBuf,
    volume: Volume,
    keys: [String; 4],
    one: Replica,
    other: Replica,
    _backend: Backend,
}

impl Scene {
    async fn set() -> Scene {
        let backend = Backend::start("a").await;
        let authority = Authority::new();
        let site = Site::new("a.test")
            .to(backend.address())
            .tls(&authority.issue(&["a.test"]));
        let directory = tempfile::tempdir().expect("a directory");
        let within = |name: &str| directory.path().join(name);
        let (served, root) = (within("served"), within("root"));
        std::fs::create_dir(&served).expect("a directory");
        std::fs::write(served.join("a.yaml"), site.yaml()).expect("a file");
        std::fs::write(&root, authority.root()).expect("a file");
        let keys = [key().await, key().await, key().await, key().await];
        let mut volume = Volume::new(within("volume"));
        // Whoever starts before there are keys waits for nothing.
        let one = Replica::start(&served, &volume, &root, 1).await;
        one.counts("myriad_ticket_keys{source=\"process\"} 1\n")
            .await;
        volume.write(&(keys[0].clone() + &keys[1]));
        let other = Replica::start(&served, &volume, &root, 2).await;
        let mut scene = Scene {
            served,
            directory,
            volume,
            keys,
            one,
            other,
            _backend: backend,
        };
        scene.changed(1).await;
        scene
    }

    /// The file has these keys, and both replicas know it.
    async fn write(&mut self, keys: [usize; 3], changes: u8) {
        let keys = keys.map(|at| self.keys[at].as_str());
        self.volume.write(&keys.concat());
        self.changed(changes).await;
    }

    async fn changed(&mut self, changes: u8) {
        let line = format!("myriad_ticket_key_changes_total {changes}\n");
        for replica in [&self.one, &self.other] {
            replica.counts(&line).await;
        }
    }

    fn session(&self, version: &str, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}{version}"))
    }
}

#[tokio::test]
async fn sessions_are_resumed_on_every_replica_with_the_file_until_it_drops_their_key() {
    let mut scene = Scene::set().await;
    for version in VERSIONS {
        let session = |name| scene.session(version, name);
        let (first, none) = (session("first"), session("none"));
        let kept = scene.one.resumes(version, None, &first).await;
        assert!(!kept, "{version}");
        let kept = scene.other.resumes(version, Some(&first), &none).await;
        assert!(kept, "{version}");
    }
    scene.write([1, 2, 0], 2).await;
    for version in VERSIONS {
        let session = |name| scene.session(version, name);
        let (first, last, none) = (session("first"), session("last"), session("none"));
        let kept = scene.other.resumes(version, Some(&first), &none).await;
        assert!(kept, "{version}");
        let kept = scene.other.resumes(version, None, &last).await;
        assert!(!kept, "{version}");
    }
    scene.write([2, 3, 1], 3).await;
    for version in VERSIONS {
        let session = |name| scene.session(version, name);
        let (first, last, none) = (session("first"), session("last"), session("none"));
        let kept = scene.other.resumes(version, Some(&first), &none).await;
        assert!(!kept, "{version}");
        let kept = scene.one.resumes(version, Some(&last), &none).await;
        assert!(kept, "{version}");
    }
}

#[tokio::test]
async fn a_broken_file_of_keys_changes_nothing_for_who_runs_and_starts_nobody() {
    let mut scene = Scene::set().await;
    let session = |name| scene.session(VERSIONS[0], name);
    let (first, none) = (session("first"), session("none"));
    assert!(!scene.one.resumes(VERSIONS[0], None, &first).await);
    let failures = "myriad_ticket_key_file_failures_total";
    scene.other.counts(&format!("{failures} 0\n")).await;
    let broken = format!("{}# next\n{}", scene.keys[0], &scene.keys[1][1..]);
    scene.volume.write(&broken);
    scene.other.counts(&format!("{failures} 1\n")).await;
    let noted = eventually(async || {
        let log = std::fs::read_to_string(&scene.one.log).expect("a log");
        log.contains("line 3").then_some(())
    });
    assert!(noted.await.is_some(), "it says what is wrong");
    let kept = scene.other.resumes(VERSIONS[0], Some(&first), &none).await;
    assert!(kept);

    let output = serve(&scene.served, &scene.volume).output();
    let output = output.await.expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for words in ["--ticket-keys ", "line 3", "openssl rand"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    for replica in [&scene.one, &scene.other] {
        let log = std::fs::read_to_string(&replica.log).expect("a log");
        let pages = replica.page("/metrics").await + &replica.page("/config").await;
        for key in &scene.keys {
            assert!(!(log.clone() + &pages + &said).contains(&key[1..60]));
        }
    }
}
