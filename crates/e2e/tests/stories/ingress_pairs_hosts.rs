//! Annotations of hosts, beside an nginx with the directives that they stand for: both answer
//! alike.

use std::net::SocketAddr;
use std::process::{Child, Stdio};

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::free_port;
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};
use myriad_lab::peer;
use tokio::net::TcpStream;

/// Annotations of an Ingress of `a.test`, the servers of nginx that they stand for, and what both
/// are asked.
struct Case {
    annotations: &'static [(&'static str, &'static str)],
    /// `LISTEN` is the address of nginx, and `BACKEND` that of the endpoint.
    servers: &'static str,
    urls: &'static [&'static str],
}

const CASES: [Case; 2] = [
    Case {
        annotations: &[("server-alias", "b.test,*.c.test")],
        servers: "server { listen LISTEN; server_name a.test b.test *.c.test;
              location / { proxy_pass http://BACKEND; } }",
        urls: &[
            "http://a.test/x?y=1",
            "http://b.test/x?y=1",
            "http://one.c.test/",
            "http://c.test/",
            "http://d.test/",
        ],
    },
    Case {
        annotations: &[("from-to-www-redirect", "true")],
        servers: "server { listen LISTEN; server_name a.test;
                  location / { proxy_pass http://BACKEND; } }
                  server { listen LISTEN; server_name www.a.test;
                  return 308 $scheme://a.test$request_uri; }",
        urls: &[
            "http://a.test/x?y=1",
            "http://www.a.test/",
            "http://www.a.test/x//y%20z?a=/b&c",
            "http://www.www.a.test/",
        ],
    },
];

/// A running nginx; it ends when dropped.
struct Nginx {
    address: SocketAddr,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Starts it with these servers, and one that answers 404 for every other host.
    async fn start(servers: &str, backend: SocketAddr) -> Nginx {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let folder = tempfile::tempdir().expect("a directory");
        let place = folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {place}/{name};\n"))
            .collect();
        let servers = servers
            .replace("LISTEN", &address.to_string())
            .replace("BACKEND", &backend.to_string());
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\n\
             events {{}}\nhttp {{ {temporary}access_log off; proxy_set_header Host $host;\n\
             server {{ listen {address} default_server; return 404; }}\n{servers}\n}}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).expect("a file");
        let mut command = peer::nginx("nginx", &file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("`cargo xtask test` installs it");
        let is_there = eventually(async || TcpStream::connect(address).await.ok());
        is_there.await.expect("nginx listens");
        Nginx {
            address,
            child,
            _folder: folder,
        }
    }
}

/// An answer as far as both have to agree: the status, where it leads, without a port, and what the
/// endpoint saw.
fn shown(answer: &Answer, port: u16) -> (u16, Option<String>, Option<String>) {
    let location = answer.header("location");
    let location = location.map(|it| it.replace(&format!(":{port}"), ""));
    let uri = (answer.status == 200).then(|| answer.told()["uri"].to_string());
    (answer.status, location, uri)
}

#[tokio::test]
async fn annotations_of_hosts_do_what_directives_of_nginx_do() {
    let backend = Backend::start("a").await;
    for case in CASES {
        let mut site = Site::new("a.test").to(backend.address());
        for (key, value) in case.annotations {
            site = site.annotation(&format!("nginx.ingress.kubernetes.io/{key}"), value);
        }
        let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
        let nginx = Nginx::start(case.servers, backend.address()).await;
        for url in case.urls {
            let own = world.get(url).await;
            let other = world.curl_at(nginx.address, url).ask().await;
            let own = shown(&own, world.http().port());
            let other = shown(&other, nginx.address.port());
            assert_eq!(own, other, "{url} with {:?}", case.annotations);
        }
        world.stop().await;
    }
}
