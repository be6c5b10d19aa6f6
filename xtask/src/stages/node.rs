//! A test cluster with real nodes: the image, the chart and injected proxies meet a kubelet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use myriad_lab::cluster::{Cluster, NODES_MAX};
use myriad_lab::image::Image;

use super::cluster::{play, timed, within};
use super::{Place, setup};
use crate::peer::{self, Peer};
use crate::{cluster, image, mongo};

/// The image of both parts, under the name that the documents give it.
const MYRIAD: &str = "registry.example.com/myriad:0.1.0";

/// The name that the chart gives it by default.
const MYRIAD_BY_DEFAULT: &str = concat!("docker.io/library/myriad:", env!("CARGO_PKG_VERSION"));

/// The application of the documents: a server that tells what it was asked for, with a shell and
/// `curl`.
const APPLICATION: &str = "docker.io/library/nginx:1.29";

/// The programs of the application beside its server.
const PROGRAMS: [&str; 5] = ["sh", "curl", "sleep", "cat", "env"];

/// The client of the documents that asks a database.
const CLIENT: &str = "docker.io/library/python:3.13-slim";

/// Asks Python where its program is, and its library.
const WHERE: &str = "import os, sys, sysconfig; \
    print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))";

/// Parts of Python's library that are large and that a client has no need of, by how they begin.
const WITHOUT: [&str; 8] = [
    "__pycache__",
    "config-",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
];

/// The folder with the driver, in the image.
const DRIVER: &str = "/usr/lib/driver";

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
    within(place, NODES_MAX, |cluster| {
        timed("images", || write_images(place, cluster))?;
        timed("images on nodes", || load_images(place, cluster))?;
        timed("stories on nodes", || play(place, cluster, "node"))
    })
}

/// Writes the images. What stands outside of the cluster shows certificates of its authority, so
/// those who go there trust it.
fn write_images(place: &Place, cluster: &Cluster) -> Result<()> {
    let binary = place.programs.join("myriad");
    let authority = cluster.authority();
    let [ours, application, client] = archives(place);
    let bytes = image::write(&place.root, &binary, MYRIAD, &ours, Some(&authority))?;
    println!("{MYRIAD} has {} MiB", bytes >> 20);
    write_application(place, &application)?;
    write_client(place, &authority, &client)
}

fn archives(place: &Place) -> [PathBuf; 3] {
    ["tested.tar", "nginx.tar", "python.tar"].map(|name| images(place).join(name))
}

fn load_images(place: &Place, cluster: &Cluster) -> Result<()> {
    for archive in archives(place) {
        cluster.load(&archive)?;
    }
    cluster.tag(MYRIAD, MYRIAD_BY_DEFAULT)
}

fn write_application(place: &Place, archive: &Path) -> Result<()> {
    let mut image = Image::new()?;
    let server = peer::provide(&place.root, Peer::Nginx, &place.cache)?;
    image.file(&server, "/usr/sbin/nginx")?;
    image.libraries(&server)?;
    add_programs(&image, &PROGRAMS)?;
    image.text(CONFIGURATION, "/etc/nginx/nginx.conf")?;
    image.folder("/tmp", true)?;
    image.set("--stop-signal=SIGQUIT");
    image.set(r#"--entrypoint=["/usr/sbin/nginx","-e","stderr","-g","daemon off;"]"#);
    image.set("--env=PATH=/usr/bin:/bin:/usr/sbin");
    image.write(APPLICATION, archive)
}

/// Writes the image of a Python of this machine, with the driver that its Pods ask `pip` for.
fn write_client(place: &Place, authority: &Path, archive: &Path) -> Result<()> {
    let mut image = Image::new()?;
    let (program, library) = python()?;
    image.program(&program)?;
    let at = library.to_string_lossy();
    image.files(&library, &at, |name| {
        !WITHOUT.iter().any(|it| name.starts_with(it))
    })?;
    let extensions = library.join("lib-dynload");
    for entry in fs::read_dir(&extensions).with_context(|| extensions.display().to_string())? {
        image.libraries(&entry?.path())?;
    }
    let driver = mongo::driver(&place.root, &place.cache)?;
    let folder = driver.ancestors().nth(2).context("it lies in a folder")?;
    image.files(&folder.join("packages"), DRIVER, |name| {
        name != "__pycache__"
    })?;
    let line = format!("PYTHONPATH={DRIVER} exec {} \"$@\"", program.display());
    image.script(&line, "/usr/bin/python")?;
    // Pods reach no index of packages, and need none.
    image.script("exec python -c 'import pymongo'", "/usr/bin/pip")?;
    add_programs(&image, &["sh", "sleep"])?;
    image::add_roots(&image, Some(authority))?;
    image.folder("/tmp", true)?;
    image.set("--env=PATH=/usr/bin:/bin");
    image.set(&format!("--env=SSL_CERT_FILE={}", image::ROOTS));
    image.write(CLIENT, archive)
}

/// The program of Python, and the folder of its library.
fn python() -> Result<(PathBuf, PathBuf)> {
    let output = Command::new("python3").args(["-c", WHERE]).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let (program, library) = printed
        .trim_end()
        .split_once('\n')
        .context("Python does not say where it is")?;
    Ok((program.into(), library.into()))
}

/// Adds programs of this machine, and a shell where they look for it.
fn add_programs(image: &Image, names: &[&str]) -> Result<()> {
    for name in names {
        let program = setup::find(name).with_context(|| format!("`{name}` is missing"))?;
        image.file(&program, &format!("/usr/bin/{name}"))?;
        image.libraries(&program)?;
    }
    let shell = setup::find("sh").context("a shell")?;
    image.file(&shell, "/bin/sh")?;
    image.text("root:x:0:0:root:/root:/bin/sh\n", "/etc/passwd")?;
    image.text("root:x:0:\n", "/etc/group")?;
    image.text("hosts: files dns\n", "/etc/nsswitch.conf")
}
