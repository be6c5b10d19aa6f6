//! A directory, the app that serves it, and how to ask it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use myriad::cli::{Cli, Command};
use myriad::serve::{self, Input, Running};
use myriad::settings::Serve;

use crate::authority::Authority;
use crate::backend::Backend;
use crate::client::{Answer, Curl};
use crate::objects::Site;

/// How long a story waits for something that has to come.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// One story's world.
pub struct World {
    directory: tempfile::TempDir,
    running: Option<Running>,
    http: SocketAddr,
    https: SocketAddr,
    admin: SocketAddr,
    /// The authority that the story's clients trust.
    pub authority: Authority,
}

impl World {
    /// Serves these files, with the default settings on ports of its own.
    pub async fn serve(files: &[(&str, String)]) -> World {
        World::serve_with(Authority::new(), files, &[]).await
    }

    /// Serves one host with a certificate and an endpoint.
    pub async fn serve_one(host: &str) -> (Backend, World) {
        let backend = Backend::start("a").await;
        let authority = Authority::new();
        let site = Site::new(host)
            .to(backend.address())
            .tls(&authority.issue(&[host]));
        let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
        (backend, world)
    }

    /// Serves these files with further arguments, as the command line has them.
    ///
    /// # Panics
    /// Where the app does not start.
    pub async fn serve_with(
        authority: Authority,
        files: &[(&str, String)],
        arguments: &[&str],
    ) -> World {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("served")).expect("a directory");
        let root = directory.path().join("root.pem");
        std::fs::write(root, authority.root()).expect("a file");
        for (name, text) in files {
            std::fs::write(directory.path().join("served").join(name), text).expect("a file");
        }
        let served = directory.path().join("served");
        let usual = [
            "--http=127.0.0.1:0",
            "--https=127.0.0.1:0",
            "--admin=127.0.0.1:0",
            "--workers=2",
        ];
        let name = |argument: &str| argument.split('=').next().map(str::to_owned);
        let is_told = |usual: &&str| arguments.iter().any(|it| name(it) == name(usual));
        let usual = usual.into_iter().filter(|usual| !is_told(usual));
        let line = ["myriad", "serve"].into_iter().chain(usual);
        let line = line.chain(arguments.iter().copied());
        let line = line.chain([served.to_str().expect("a path in UTF-8")]);
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        let settings = Serve::check(&raw).expect("settings hold");
        let mut running = serve::start(settings, Input::Directory).expect("the app starts");
        let addresses = running.wait_ready().await.expect("the app gets ready");
        let find = |wanted: &str| {
            let found = addresses.iter().find(|(name, _)| name.as_str() == wanted);
            let Some((_, address)) = found else {
                let board = running.board().dump();
                panic!("{wanted} is not bound, only {addresses:?}: {board}");
            };
            *address
        };
        let (http, https, admin) = (find("http"), find("https"), running.admin());
        World {
            directory,
            running: Some(running),
            http,
            https,
            admin,
            authority,
        }
    }

    /// The address of HTTP.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The address of HTTPS.
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// The address of the admin pages.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The root certificate as a file.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }

    /// The served directory.
    pub fn served(&self) -> PathBuf {
        self.directory.path().join("served")
    }

    /// Writes a file as a careful program does: aside, then renamed.
    ///
    /// # Panics
    /// Where the disk refuses.
    pub fn write(&self, name: &str, text: &str) {
        let aside = self.served().join(format!(".{name}.tmp"));
        std::fs::write(&aside, text).expect("a file");
        std::fs::rename(&aside, self.served().join(name)).expect("a rename");
    }

    /// Deletes a file.
    ///
    /// # Panics
    /// Where it is not there.
    pub fn delete(&self, name: &str) {
        std::fs::remove_file(self.served().join(name)).expect("the file is there");
    }

    /// Writes a file beside the served directory, and gives its path.
    ///
    /// # Panics
    /// Where the disk refuses.
    pub fn keep(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    /// A curl command for `http://host/path` or `https://host/path`, whatever the ports.
    pub fn curl(&self, url: &str) -> Curl {
        let address = if url.starts_with("https:") {
            self.https
        } else {
            self.http
        };
        self.curl_at(address, url)
    }

    /// A curl command that connects to this address, whatever the host.
    ///
    /// # Panics
    /// Where it is no URL.
    pub fn curl_at(&self, address: SocketAddr, url: &str) -> Curl {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (host, path) = rest
            .split_once('/')
            .map_or((rest, ""), |(host, path)| (host, path));
        let url = format!("{scheme}://{host}:{}/{path}", address.port());
        let resolve = format!("{host}:{}:{}", address.port(), address.ip());
        Curl::new(&url, &[resolve], &self.root())
    }

    /// Asks once.
    pub async fn get(&self, url: &str) -> Answer {
        self.curl(url).ask().await
    }

    /// Asks until the answer is as wanted.
    ///
    /// # Panics
    /// At the deadline, with the last answer.
    pub async fn eventually(&self, url: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let mut last = None;
        let asked = eventually(async || {
            let answer = self.get(url).await;
            let fits = wanted(&answer);
            last = Some(answer.clone());
            fits.then_some(answer)
        });
        match asked.await {
            Some(answer) => answer,
            None => panic!("{url} never answered as wanted; last: {last:?}"),
        }
    }

    /// A page of the admin address.
    pub async fn admin(&self, path: &str) -> Answer {
        self.admin_curl(path).ask().await
    }

    /// A request for a page of the admin address, to be changed before it is sent.
    pub fn admin_curl(&self, path: &str) -> Curl {
        let url = format!("http://{}{path}", self.admin);
        Curl::new(&url, &[], &self.root())
    }

    /// The value of a metric without labels.
    ///
    /// # Panics
    /// Where there is none of this name.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = self.admin("/metrics").await.body;
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not a number in: {page}"))
    }

    /// The findings in the configuration dump, as one text each, but for what the process says of
    /// the machine that tests run on.
    pub async fn findings(&self) -> Vec<String> {
        let dump: serde_json::Value =
            serde_json::from_str(&self.admin("/config").await.body).expect("a dump");
        let findings = dump["findings"].as_array().cloned().unwrap_or_default();
        let is_of_process =
            |it: &&serde_json::Value| it["object"].is_null() && it["field"] == "connections";
        let findings = findings.iter().filter(|it| !is_of_process(it));
        findings.map(ToString::to_string).collect()
    }

    /// Drains and stops.
    ///
    /// # Panics
    /// Where the app ended with an error.
    pub async fn stop(mut self) {
        let running = self.running.take().expect("the app runs");
        running.stop().await.expect("the app ends well");
    }
}

/// A path below this repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Asks again and again until there is an answer, or the deadline has passed.
pub async fn eventually<T>(ask: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    eventually_within(DEADLINE, ask).await
}

/// Asks as [`eventually`] does, with a deadline of its own, for what takes its time by design.
pub async fn eventually_within<T>(
    deadline: Duration,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let end = Instant::now() + deadline;
    while Instant::now() < end {
        if let Some(answer) = ask().await {
            return Some(answer);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}
