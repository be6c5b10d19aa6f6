//! A test cluster with real nodes: the image, the chart and injected proxies meet a kubelet.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use myriad_lab::cluster::{Cluster, NODES_MAX};
use myriad_lab::image::Image;

use super::cluster::{play, timed, within};
use super::{Place, setup};
use crate::peer::{self, Peer};
use crate::{cluster, image};

/// The image of both parts, under the name that the documents give it.
const MYRIAD: &str = "registry.example.com/myriad:0.1.0";

/// The application of the documents: a server that tells what it was asked for, with a shell and
/// `curl`.
const APPLICATION: &str = "docker.io/library/nginx:1.29";

/// The programs of the application beside its server.
const PROGRAMS: [&str; 5] = ["sh", "curl", "sleep", "cat", "env"];

const CONFIGURATION: &str = r#"
worker_processes 1;
pid /tmp/nginx.pid;
user root root;
events { worker_connections 1024; }
http {
  map $uri $is_told { /bye 1; default 0; }
  access_log /dev/stdout combined if=$is_told;
  client_body_temp_path /tmp/body;
  proxy_temp_path /tmp/proxy;
  fastcgi_temp_path /tmp/fastcgi;
  uwsgi_temp_path /tmp/uwsgi;
  scgi_temp_path /tmp/scgi;
  server {
    listen 80;
    default_type application/json;
    location / {
      return 200 '{"pod":"$hostname","headers":{"host":"$http_host"}}\n';
    }
  }
}
"#;

/// The folder with the images.
fn images(place: &Place) -> PathBuf {
    place.root.join("target/image")
}

/// Starts a cluster with nodes, plays the stories, and ends it, whatever became of it.
pub(super) fn run(place: &Place) -> Result<()> {
    super::build(place)?;
    cluster::provide_node_programs(&place.root)?;
    let archives = [
        images(place).join("tested.tar"),
        images(place).join("nginx.tar"),
    ];
    timed("images", || {
        let binary = place.programs.join("myriad");
        let bytes = image::write(&place.root, &binary, MYRIAD, &archives[0])?;
        println!("{MYRIAD} has {} MiB", bytes >> 20);
        write_application(place, &archives[1])
    })?;
    within(place, NODES_MAX, |cluster| {
        timed("images on nodes", || load(cluster, &archives))?;
        timed("stories on nodes", || play(place, cluster, "node"))
    })
}

fn load(cluster: &Cluster, archives: &[PathBuf]) -> Result<()> {
    archives
        .iter()
        .try_for_each(|archive| cluster.load(archive))
}

fn write_application(place: &Place, archive: &Path) -> Result<()> {
    let mut image = Image::new()?;
    let server = peer::provide(&place.root, Peer::Nginx, &place.cache)?;
    image.file(&server, "/usr/sbin/nginx")?;
    image.libraries(&server)?;
    for name in PROGRAMS {
        let program = setup::find(name).with_context(|| format!("`{name}` is missing"))?;
        image.file(&program, &format!("/usr/bin/{name}"))?;
        image.libraries(&program)?;
    }
    image.file(&setup::find("sh").context("a shell")?, "/bin/sh")?;
    image.text("root:x:0:0:root:/root:/bin/sh\n", "/etc/passwd")?;
    image.text("root:x:0:\n", "/etc/group")?;
    image.text("hosts: files dns\n", "/etc/nsswitch.conf")?;
    image.text(CONFIGURATION, "/etc/nginx/nginx.conf")?;
    image.folder("/tmp", true)?;
    image.set("--stop-signal=SIGQUIT");
    image.set(r#"--entrypoint=["/usr/sbin/nginx","-e","stderr","-g","daemon off;"]"#);
    image.set("--env=PATH=/usr/bin:/bin:/usr/sbin");
    image.write(APPLICATION, archive)
}
