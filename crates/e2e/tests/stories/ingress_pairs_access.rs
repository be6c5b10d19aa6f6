//! Annotations about who may ask and what is put on answers, beside an nginx with the directives
//! that they stand for: a client is told the same by both.

use std::net::SocketAddr;
use std::process::{Child, Stdio};

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::free_port;
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, Site, World};
use myriad_lab::peer;
use tokio::net::TcpStream;

/// A host of both.
struct Case {
    host: &'static str,
    /// Annotations of its Ingress.
    annotations: &'static [(&'static str, &'static str)],
    /// Directives of its location, as ingress-nginx writes them for these.
    directives: &'static str,
    /// Entries of the ConfigMap that it names for fields of responses, if there are any.
    fields: &'static [(&'static str, &'static str)],
}

const PLAIN: Case = Case {
    host: "plain.test",
    annotations: &[],
    directives: "",
    fields: &[],
};

/// Addresses that clients come from; all of them are this machine's.
const CLIENTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.1.1"];

const CASES: &[Case] = &[
    PLAIN,
    Case {
        host: "denied.test",
        annotations: &[("denylist-source-range", "127.0.0.2")],
        directives: "deny 127.0.0.2;",
        ..PLAIN
    },
    Case {
        host: "allowed.test",
        annotations: &[("whitelist-source-range", "127.0.0.0/24")],
        directives: "allow 127.0.0.0/24; deny all;",
        ..PLAIN
    },
    // What is denied stays so where a wider network is admitted.
    Case {
        host: "both.test",
        annotations: &[
            ("whitelist-source-range", "127.0.0.0/24"),
            ("denylist-source-range", "10.0.0.0/8, 127.0.0.2/32"),
        ],
        directives: "deny 10.0.0.0/8; deny 127.0.0.2/32; allow 127.0.0.0/24; deny all;",
        ..PLAIN
    },
    // Nobody is authenticated here, so that the address has to suffice.
    Case {
        host: "any.test",
        annotations: &[
            ("whitelist-source-range", "127.0.0.0/24"),
            ("denylist-source-range", "127.0.0.2"),
            ("satisfy", "any"),
        ],
        directives: "satisfy any; deny 127.0.0.2; allow 127.0.0.0/24; deny all;",
        ..PLAIN
    },
    Case {
        host: "nobody.test",
        annotations: &[("denylist-source-range", "0.0.0.0/0")],
        directives: "deny 0.0.0.0/0;",
        ..PLAIN
    },
    Case {
        host: "fields.test",
        directives: "add_header X-Frame-Options DENY; add_header X-Two 'a, b; c=\"d\"';",
        fields: &[("X-Frame-Options", "DENY"), ("X-Two", "a, b; c=\"d\"")],
        ..PLAIN
    },
];

/// An nginx; it ends when dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
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
    /// Serves all cases from one backend.
    async fn start(cases: &[Case], backend: SocketAddr) -> Nginx {
        let folder = tempfile::tempdir().expect("a directory");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let place = folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {place}/{name};\n"))
            .collect();
        let servers: String = cases
            .iter()
            .map(
                |Case {
                     host, directives, ..
                 }| {
                    format!(
                        "server {{ listen {address}; server_name {host};\n\
                     location / {{ {directives} proxy_pass http://{backend}; }} }}\n"
                    )
                },
            )
            .collect();
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\n\
             events {{}}\nhttp {{ {temporary}access_log off;\n{servers}}}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).expect("a file");
        let mut command = peer::nginx("nginx", &file);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("`cargo xtask test` installs it");
        let listens = eventually(async || TcpStream::connect(address).await.ok());
        listens.await.expect("nginx listens");
        Nginx {
            child,
            address,
            _folder: folder,
        }
    }
}

/// The gateway with the same cases.
async fn gateway(cases: &[Case], backend: SocketAddr) -> World {
    let files = cases.iter().map(|case| {
        let site = Site::new(case.host).to(backend);
        let site = case.annotations.iter().fold(site, |site, (key, value)| {
            site.annotation(&format!("nginx.ingress.kubernetes.io/{key}"), value)
        });
        let (map, site) = match case.fields {
            [] => (String::new(), site),
            fields => {
                let id = format!("default/{}", case.host);
                let key = "nginx.ingress.kubernetes.io/custom-headers";
                (fields_map(case.host, fields), site.annotation(key, &id))
            }
        };
        (format!("{}.yaml", case.host), site.yaml() + &map)
    });
    let files: Vec<(String, String)> = files.collect();
    let files: Vec<(&str, String)> = files
        .iter()
        .map(|(name, text)| (&**name, text.clone()))
        .collect();
    World::serve_with(Authority::new(), &files, &[]).await
}

/// A ConfigMap of fields.
fn fields_map(name: &str, fields: &[(&str, &str)]) -> String {
    let entries = fields.iter().map(|(name, value)| {
        // A JSON string is a YAML string.
        format!("  {name}: {}\n", serde_json::Value::from(*value))
    });
    let entries: String = entries.collect();
    let metadata = format!("metadata: {{namespace: default, name: {name}}}");
    format!("---\napiVersion: v1\nkind: ConfigMap\n{metadata}\ndata:\n{entries}")
}

#[tokio::test]
async fn clients_are_told_what_nginx_tells_them() {
    let backend = Backend::start("a").await;
    let nginx = Nginx::start(CASES, backend.address()).await;
    let world = gateway(CASES, backend.address()).await;
    for Case { host, fields, .. } in CASES {
        let url = format!("http://{host}/");
        for client in CLIENTS {
            let ask = async |address| {
                let curl = world.curl_at(address, &url);
                curl.args(&["--interface", client]).ask().await
            };
            let (wanted, told) = (ask(nginx.address).await, ask(world.http()).await);
            assert!(matches!(wanted.status, 200 | 403), "{host}: {wanted:?}");
            assert_eq!(told.status, wanted.status, "{client} at {host}: {told:?}");
            for (name, _) in *fields {
                let name = name.to_ascii_lowercase();
                let found = [&told, &wanted].map(|it| it.header(&name));
                assert_eq!(found[0], found[1], "{name} at {host}: {told:?}");
            }
        }
    }
    world.stop().await;
}
