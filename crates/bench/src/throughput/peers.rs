//! The configuration of other proxies, so that they serve the same names and routes with one
//! thread, by the same protocols, over pooled connections. What costs them more and says nothing
//! about routes (access logs, headers about the client, statistics by route) is left out.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use myriad_lab::peer;
use serde_json::{Value, json};

use super::subject::{Doors, Peer};
use crate::istio::{self, Served, Setup, extend, typed};

/// How long connections stay open that nothing happens on, and more requests than there will be
/// on any.
const IDLE_SECONDS: u32 = 3_600;
const REQUESTS_MAX: u32 = 2_000_000_000;

/// Connections to the upstream that are kept.
const POOL_MAX: usize = 2_048;

/// The parts of a peer's configuration.
pub(super) struct Recipe<'a> {
    pub setup: &'a Setup,
    pub all: &'a [Served],
    /// The folder with a file for each name.
    pub certificates: &'a Path,
    pub backend: SocketAddr,
    pub doors: Doors,
    /// The directory of its own files.
    pub directory: &'a Path,
    /// Connections that come, at most.
    pub connections: usize,
}

/// The program of a peer, and its name and version.
///
/// # Errors
/// It is neither there nor to be had.
pub(super) fn provide(peer: Peer) -> anyhow::Result<(PathBuf, String)> {
    let (name, argument) = match peer {
        Peer::Envoy => {
            let program = peer::provided("envoy")?;
            let version = peer::version(&program)?;
            return Ok((program, version));
        }
        Peer::Haproxy => ("haproxy", "-v"),
        Peer::Nginx => ("nginx", "-v"),
        Peer::Floor => return Ok(("/proc/self/exe".into(), "floor".to_owned())),
    };
    let program = peer::provided(name)?;
    let output = Command::new(&program).arg(argument).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // "HAProxy version 2.6.12-1 2026/10/17 ...", "nginx version: nginx/1.22.1"
    let is_version = |word: &&str| word.starts_with(|start: char| start.is_ascii_digit());
    let mut words = text.split([' ', '/', '-', '+', '\n']);
    let version = words.find(is_version).context("a version")?;
    Ok((program, format!("{name} {version}")))
}

impl Recipe<'_> {
    /// The command that starts the peer, with its files written.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn command(&self, of: Peer, program: &Path) -> anyhow::Result<Command> {
        Ok(match of {
            Peer::Floor => {
                let mut command = Command::new(program);
                command.arg("floor");
                command.arg("--certificates").arg(self.certificates);
                command.arg(format!("--upstream={}", self.backend));
                command.arg(format!("--https={}", self.doors.https.port()));
                command.arg(format!("--http={}", self.doors.http.port()));
                command
            }
            Peer::Haproxy => {
                self.write("paths.map", &self.map())?;
                let file = self.write("haproxy.cfg", &self.haproxy())?;
                peer::haproxy(program, &file)
            }
            Peer::Nginx => {
                let file = self.write("nginx.conf", &self.nginx())?;
                let mut command = peer::nginx(program, &file);
                command
                    .arg("-e")
                    .arg("stderr")
                    .arg("-p")
                    .arg(self.directory);
                command
            }
            Peer::Envoy => {
                let file = self.write("envoy.json", &serde_json::to_string(&self.envoy())?)?;
                peer::envoy(Command::new(program), &file, 1)
            }
        })
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let file = self.directory.join(name);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        Ok(file)
    }

    /// Every path of every host.
    fn map(&self) -> String {
        let mut text = String::new();
        for host in self.setup.all().map(istio::Domain::host) {
            for number in 0..self.setup.paths {
                // Writing to a String does not fail.
                let _ = writeln!(text, "{host}{} /", istio::path(number));
            }
        }
        text
    }

    fn haproxy(&self) -> String {
        let Doors { https, http } = self.doors;
        let (certificates, map) = (self.certificates, self.directory.join("paths.map"));
        format!(
            "global
  nbthread 1
  maxconn {connections}
  no strict-limits
  ssl-default-bind-options ssl-min-ver TLSv1.3
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
defaults
  mode http
  timeout connect 5s
  timeout client {IDLE_SECONDS}s
  timeout server {IDLE_SECONDS}s
  http-reuse always
frontend all
  bind {https} ssl crt {certificates} curves X25519 alpn h2,http/1.1
  bind {http}
  http-request return status 404 unless {{ base,map_str({map}) -m found }}
  http-request set-path %[base,map_str({map})]
  default_backend application
backend application
  server one {backend} pool-purge-delay {IDLE_SECONDS}s
",
            connections = self.connections + POOL_MAX,
            certificates = certificates.display(),
            map = map.display(),
            backend = self.backend,
        )
    }

    fn nginx(&self) -> String {
        let mut text = format!(
            "daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server_names_hash_max_size 65536;
  server_names_hash_bucket_size 128;
  keepalive_timeout {IDLE_SECONDS}s;
  keepalive_requests {REQUESTS_MAX};
  ssl_protocols TLSv1.3;
  ssl_ecdh_curve X25519;
  ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  proxy_set_header Host $host;
  upstream application {{
    server {backend};
    keepalive {POOL_MAX};
    keepalive_requests {REQUESTS_MAX};
    keepalive_timeout {IDLE_SECONDS}s;
  }}
",
            connections = self.connections + POOL_MAX,
            backend = self.backend,
        );
        let Doors { https, http } = self.doors;
        for host in self.setup.all().map(istio::Domain::host) {
            let file = self.certificates.join(format!("{host}.pem"));
            let file = file.display();
            let _ = writeln!(
                text,
                "  server {{
    listen {https} ssl http2;
    listen {http};
    server_name {host};
    ssl_certificate {file};
    ssl_certificate_key {file};"
            );
            for number in 0..self.setup.paths {
                let path = istio::path(number);
                let _ = writeln!(
                    text,
                    "    location = {path} {{ proxy_pass http://application/; }}"
                );
            }
            text.push_str("  }\n");
        }
        text.push_str("}\n");
        text
    }

    /// The configuration that Istio would send, and the same hosts without TLS.
    fn envoy(&self) -> Value {
        let Doors { https, http } = self.doors;
        let mut all = istio::bootstrap(self.setup, self.all, https, self.backend);
        let hosts: Vec<_> = (self.all.iter())
            .map(|served| istio::virtual_host(served, self.setup.paths))
            .collect();
        let mut manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager");
        extend(&mut manager, istio::manager("http", &hosts));
        let plain = json!({
            "name": "http",
            "address": istio::address(http),
            "filter_chains": [{
                "filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager,
                }],
            }],
        });
        if let Some(listeners) = all["static_resources"]["listeners"].as_array_mut() {
            listeners.push(plain);
        }
        all
    }
}
