//! The parts of `docs/certificates.md` that need no cluster: every command in them, in their order.
//! Played is all that a reader has and this machine has not: the zones of the document are those of
//! a server of names, the authority is another one, and `curl` and `dig` ask here.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::CertificateAuthority;
use myriad_e2e::document::{CERTIFICATES_IN_CLUSTER, Document, Step};
use myriad_e2e::world::repository;
use myriad_lab::bind::{BindServer, BindZone, KEY_SECRET};
use myriad_lab::port::free_port;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// How long the commands of a step may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The server of zones, as the document calls it: here it listens at a port of its own.
const SERVER: &str = "ns1.example.com";

/// The port of the endpoint that says which names may have certificates, in the document.
const ASKED: &str = "9123";

/// The zones of the document.
const ZONES: [BindZone<'static>; 3] = [
    BindZone {
        name: "example.com",
        records: "ns1 IN A 127.0.0.1\nshop IN CNAME gateway.example.net.",
        takes_updates: true,
    },
    BindZone {
        name: "example.net",
        records: "gateway IN A 127.0.0.1",
        takes_updates: false,
    },
    BindZone {
        name: "tenant.example",
        records: "_acme-challenge.shop IN CNAME shop-tenant.acme.example.com.\n\
                  www IN CNAME gateway.example.net.\nother IN CNAME gateway.example.net.",
        takes_updates: false,
    },
];

/// Somebody who follows the document in a copy of this repository.
struct Walk {
    place: tempfile::TempDir,
    ca: CertificateAuthority,
    zones: BindServer,
    root: PathBuf,
    /// The port of the endpoint here.
    asked: u16,
    /// The process in the first terminal.
    serving: Option<Child>,
}

impl Walk {
    async fn begin() -> Walk {
        let zones = BindServer::start(&ZONES).expect("a server of zones");
        let mut ca = CertificateAuthority::down().with_names_at(zones.address);
        ca.rise();
        let place = tempfile::tempdir().expect("a directory");
        let walk = Walk {
            root: ca.root().await,
            ca,
            zones,
            place,
            asked: free_port(),
            serving: None,
        };
        walk.furnish();
        walk
    }

    /// Puts the programs and the examples where the document has them.
    fn furnish(&self) {
        let bin = self.place.path().join("bin");
        std::fs::create_dir(&bin).expect("a directory");
        let myriad = std::env::var_os("MYRIAD_BIN")
            .expect("MYRIAD_BIN is the path of the binary; `cargo xtask test` sets it");
        symlink(myriad, bin.join("myriad")).expect("a link");
        let examples = self.place.path().join("examples");
        symlink(repository("examples"), examples).expect("a link");
        let (http, https, zones) = (self.ca.http, self.ca.https, self.zones.address);
        let root = self.root.display();
        let here = |name: &str, words: &str| {
            let path = bin.join(name);
            // The first folder of the path is this one.
            let script = format!("#!/bin/sh\nPATH=${{PATH#*:}} exec {name} {words} \"$@\"\n");
            std::fs::write(&path, script).expect("a file");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("a mode");
        };
        here(
            "curl",
            &format!(
                "--cacert '{root}' --connect-to :443:127.0.0.1:{https} \
                 --connect-to :80:127.0.0.1:{http}"
            ),
        );
        here("dig", &format!("@{} -p {}", zones.ip(), zones.port()));
    }

    /// A shell, with the settings that the document leaves to variables.
    fn shell(&self, commands: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("set -eu\n{commands}")]);
        command.current_dir(self.place.path());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.place.path().join("bin")].into_iter();
        let folders: Vec<PathBuf> = folders.chain(std::env::split_paths(&path)).collect();
        command.env("PATH", std::env::join_paths(folders).expect("folders"));
        command.env_remove("http_proxy").env_remove("https_proxy");
        let own = [
            format!("--acme-dns-proof={}", self.zones.address.port()),
            "--admin=127.0.0.1:0".to_owned(),
            "--workers=1".to_owned(),
        ];
        for setting in self.ca.arguments(&self.ca.state()).iter().chain(&own) {
            let setting = setting.trim_start_matches("--");
            let (name, value) = setting.split_once('=').expect("a setting");
            let name = name.replace('-', "_").to_ascii_uppercase();
            command.env(format!("MYRIAD_{name}"), value);
        }
        command.stdin(Stdio::null()).process_group(0);
        command.kill_on_drop(true);
        command
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    /// Runs the commands of a step. One that goes on takes the place of the one before.
    async fn follow(&mut self, step: &Step) {
        let server = format!("{SERVER}:{}", self.zones.address.port());
        let commands = step.commands.replace(SERVER, &server);
        let commands = commands.replace(ASKED, &self.asked.to_string());
        let mut command = self.shell(&commands);
        if commands.contains("myriad serve ") {
            self.leave();
            self.until_left().await;
            let log = std::fs::File::create(self.place.path().join("log")).expect("a file");
            command.stderr(log).stdout(Stdio::null());
            self.serving = Some(command.spawn().expect("a shell"));
            return;
        }
        let ended = tokio::time::timeout(PATIENCE, command.output()).await;
        let Ok(output) = ended else {
            panic!("{commands} does not end: {}\n{}", self.log(), self.ca.log())
        };
        let output = output.expect("a shell");
        if !output.status.success() {
            panic!("{commands}{output:?}\n{}\n{}", self.log(), self.zones.log());
        }
        step.check(&String::from_utf8_lossy(&output.stdout));
    }

    /// Waits for whoever was killed to let its ports go.
    async fn until_left(&self) {
        let ports = [self.ca.http, self.ca.https];
        let is_free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        let free = async {
            while !ports.into_iter().all(is_free) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let is_left = tokio::time::timeout(PATIENCE, free).await;
        is_left.expect("the ports of the process before");
    }

    /// Ends what runs in the first terminal, as a reader does.
    fn leave(&mut self) {
        let Some(serving) = self.serving.take() else {
            return;
        };
        let pid = serving.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may have ended by itself, which the next step says.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.leave();
    }
}

#[tokio::test]
async fn every_command_that_needs_no_cluster_does_what_the_document_says() {
    let document = Document::read("docs/certificates.md");
    let is_elsewhere = |step: &&Step| CERTIFICATES_IN_CLUSTER.contains(&&*step.heading);
    let steps: Vec<&Step> = document
        .steps()
        .iter()
        .filter(|it| !is_elsewhere(it))
        .collect();
    assert!(steps.len() > 4, "the document has commands");
    let mut walk = Walk::begin().await;
    for step in steps {
        walk.follow(step).await;
    }
    assert!(walk.ca.issued() >= 4, "{}", walk.ca.log());
}

#[test]
fn the_key_of_the_document_is_that_of_the_server() {
    let document = Document::read("docs/certificates.md");
    let mut steps = document.steps().iter();
    assert!(steps.any(|step| step.commands.contains(KEY_SECRET)));
}
