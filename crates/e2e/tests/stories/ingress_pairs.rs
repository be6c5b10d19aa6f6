//! Pairs: what an annotation of ingress-nginx does here, and what the directives do in nginx that
//! ingress-nginx writes for it. Both are asked the same.
//!
//! A new pair is a row of one of the modules: annotations and objects for one side, directives and
//! files for the other, requests, and nothing else.

use std::net::SocketAddr;
use std::process::{Child, Stdio};

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::free_port;
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};
use myriad_lab::peer;
use tokio::net::TcpStream;

mod access;
mod asking;
mod certificates;
mod hosts;
mod passwords;

const NGINX: &str = "nginx.ingress.kubernetes.io";

/// The same, twice.
#[derive(Clone)]
struct Pair {
    /// The host, which no other pair has.
    host: &'static str,
    /// The annotations of its Ingress, without their prefix.
    annotations: Vec<(&'static str, &'static str)>,
    /// Further objects; `NGINX_IP` and `NGINX_PORT` are where nginx listens.
    objects: String,
    /// The directives of nginx in the location `/`; `FOLDER` is where its files are.
    directives: &'static str,
    /// The files of nginx.
    files: Vec<(&'static str, String)>,
    /// The requests, as curl is told of them.
    requests: Vec<Vec<&'static str>>,
    /// The fields of answers that have to be the same, beside the status.
    fields: Vec<&'static str>,
}

#[tokio::test]
async fn annotations_do_what_the_directives_of_nginx_do() {
    let backend = Backend::start("a").await;
    let pairs = [access::pairs(), asking::pairs(), passwords::pairs()].concat();
    let nginx = Nginx::of_pairs(&pairs, backend.address()).await;
    let sites = pairs.iter().map(|pair| {
        let mut site = Site::new(pair.host).to(backend.address());
        for (name, value) in &pair.annotations {
            site = site.annotation(&format!("{NGINX}/{name}"), value);
        }
        let (ip, port) = (nginx.address.ip(), nginx.address.port());
        let objects = pair.objects.replace("NGINX_IP", &ip.to_string());
        let yaml = site.yaml() + &objects.replace("NGINX_PORT", &port.to_string());
        (format!("{}.yaml", pair.host), yaml)
    });
    let sites: Vec<(String, String)> = sites.collect();
    let files: Vec<(&str, String)> = sites
        .iter()
        .map(|(name, yaml)| (&**name, yaml.clone()))
        .collect();
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    let mut differing = Vec::new();
    for pair in &pairs {
        for request in &pair.requests {
            let url = format!("http://{}/", pair.host);
            let ours = world.curl(&url).args(request).ask().await;
            let theirs = world.curl_at(nginx.address, &url).args(request).ask().await;
            let (ours, theirs) = (told(pair, &ours), told(pair, &theirs));
            if ours != theirs {
                let line = format!("{} {request:?}: {ours:?}, nginx {theirs:?}", pair.host);
                differing.push(line);
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    world.stop().await;
}

/// The parts of an answer that have to be the same.
fn told<'a>(pair: &Pair, answer: &'a Answer) -> (u16, Vec<Option<&'a str>>) {
    let fields = pair.fields.iter();
    let fields = fields.map(|name| answer.header(name)).collect();
    (answer.status, fields)
}

/// A running nginx; it ends when dropped.
pub(super) struct Nginx {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts it with a server for each pair in front of a backend.
    async fn of_pairs(pairs: &[Pair], backend: SocketAddr) -> Nginx {
        let servers = pairs.iter().map(|pair| {
            format!(
                "server {{ listen LISTEN; server_name {}; location / {{ {} \
                 proxy_set_header Authorization \"\"; proxy_pass http://BACKEND; }} }}\n",
                pair.host, pair.directives
            )
        });
        let servers: String = servers.chain([asking::SERVER.to_owned()]).collect();
        let files = pairs.iter().flat_map(|pair| &pair.files);
        let files: Vec<(&str, &str)> = files.map(|(name, text)| (*name, &**text)).collect();
        Nginx::start(&servers, &files, backend).await
    }

    /// Starts it with these servers, and one that answers 404 for every other host. `LISTEN` is
    /// where it listens, `BACKEND` the address of a backend, and `FOLDER` where its files are.
    pub(super) async fn start(servers: &str, files: &[(&str, &str)], backend: SocketAddr) -> Nginx {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let place = folder.path().display();
        let servers = servers
            .replace("LISTEN", &address.to_string())
            .replace("BACKEND", &backend.to_string())
            .replace("FOLDER", &place.to_string());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {place}/{name};\n"))
            .collect();
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\n\
             events {{}}\nhttp {{ {temporary}access_log off; proxy_set_header Host $host;\n\
             server {{ listen {address} default_server; return 404; }}\n{servers}\n}}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).expect("a file");
        let mut command = peer::nginx("nginx", &file);
        let command = command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().expect("`cargo xtask test` installs it");
        let nginx = Nginx {
            address,
            child,
            _folder: folder,
        };
        let listening = eventually(async || TcpStream::connect(address).await.ok());
        listening.await.expect("nginx listens");
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
