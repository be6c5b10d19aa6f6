//! Pairs: what an annotation of ingress-nginx does here, and what the directives do in nginx that
//! ingress-nginx writes for it. Both are asked the same.
//!
//! A new pair is a row of [`pairs`]: annotations and objects for one side, directives and files for
//! the other, requests, and nothing else.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::free_port;
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};
use myriad_lab::peer;

const NGINX: &str = "nginx.ingress.kubernetes.io";

/// The same, twice.
struct Pair {
    /// The host, which no other pair has.
    host: &'static str,
    /// The annotations of its Ingress, without their prefix.
    annotations: Vec<(&'static str, &'static str)>,
    /// Further objects.
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

/// Users with the password `secret`, by hashes of every kind that both sides know.
const USERS: [(&str, &str); 9] = [
    (
        "a2y",
        "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
    ),
    (
        "a2b",
        "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
    ),
    ("apr", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
    ("md5", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
    (
        "s25",
        "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
    ),
    (
        "s51",
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZ\
         N.Pq.H91p5hVO1",
    ),
    ("sha", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
    ("pln", "{PLAIN}secret"),
    // The first line of a name counts.
    ("pln", "{PLAIN}other"),
];

fn pairs() -> Vec<Pair> {
    let lines: String = USERS
        .iter()
        .map(|(name, hash)| format!("{name}:{hash}\n"))
        .collect();
    vec![passwords("file.test", &lines), realm("realm.test", &lines)]
}

/// `auth-type: basic`.
fn passwords(host: &'static str, lines: &str) -> Pair {
    let asked = [
        "a2y", "a2b", "apr", "md5", "s25", "s51", "sha", "pln", "nobody", "",
    ];
    let asked = asked.into_iter().flat_map(|name| match name {
        "a2y" => ["a2y:secret", "a2y:Secret"],
        "a2b" => ["a2b:secret", "a2b:secret "],
        "apr" => ["apr:secret", "apr:"],
        "md5" => ["md5:secret", "md5:other"],
        "s25" => ["s25:secret", "s25:other"],
        "s51" => ["s51:secret", "s51:other"],
        "sha" => ["sha:secret", "sha:other"],
        "pln" => ["pln:secret", "pln:other"],
        "nobody" => ["nobody:secret", "nobody:"],
        _ => [":secret", ":"],
    });
    let mut requests: Vec<Vec<&str>> = asked.map(|given| vec!["--user", given]).collect();
    requests.push(vec![]);
    for field in [
        "Authorization: Bearer abc",
        "Authorization: Basic",
        "Authorization: Basic !!!!",
        "Authorization: Basic c2hh",
        // Without padding, and in another case.
        "Authorization: basic c2hhOnNlY3JldA",
        "Authorization: Basic c2hhOnNlY3JldA==",
    ] {
        requests.push(vec!["-H", field]);
    }
    Pair {
        host,
        annotations: vec![("auth-type", "basic"), ("auth-secret", "users")],
        objects: secret("users", lines),
        directives: "auth_basic \"\"; auth_basic_user_file FOLDER/users;",
        files: vec![("users", lines.to_owned())],
        requests,
        fields: vec!["www-authenticate"],
    }
}

/// The realm, and who has a password but may ask for nothing else.
fn realm(host: &'static str, lines: &str) -> Pair {
    Pair {
        annotations: vec![
            ("auth-type", "basic"),
            ("auth-secret", "default/users"),
            ("auth-secret-type", "auth-file"),
            ("auth-realm", "Authentication Required - foo"),
        ],
        directives: "auth_basic \"Authentication Required - foo\"; \
                     auth_basic_user_file FOLDER/users;",
        requests: vec![
            vec![],
            vec!["--user", "sha:secret", "-X", "POST", "-d", "a=b"],
            vec!["--user", "sha:wrong", "-X", "POST", "-d", "a=b"],
            vec!["--head"],
        ],
        objects: String::new(),
        ..passwords(host, lines)
    }
}

fn secret(name: &str, lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{namespace: default, name: {name}}}\n\
         type: Opaque\nstringData:\n  auth: |\n{lines}"
    )
}

#[tokio::test]
async fn annotations_do_what_the_directives_of_nginx_do() {
    let backend = Backend::start("a").await;
    let pairs = pairs();
    let folder = tempfile::tempdir().expect("a directory");
    let nginx = Nginx::start(folder.path(), &pairs, backend.address()).await;
    let sites = pairs.iter().map(|pair| {
        let mut site = Site::new(pair.host).to(backend.address());
        for (name, value) in &pair.annotations {
            site = site.annotation(&format!("{NGINX}/{name}"), value);
        }
        let yaml = site.yaml() + &pair.objects;
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

/// What of an answer has to be the same.
fn told<'a>(pair: &Pair, answer: &'a Answer) -> (u16, Vec<Option<&'a str>>) {
    let fields = pair.fields.iter();
    let fields = fields.map(|name| answer.header(name)).collect();
    (answer.status, fields)
}

/// A running nginx; it is killed when this is dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it with a server for each pair in front of a backend.
    async fn start(folder: &Path, pairs: &[Pair], backend: SocketAddr) -> Nginx {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let place = folder.display();
        let mut servers = String::new();
        for pair in pairs {
            for (name, text) in &pair.files {
                std::fs::write(folder.join(name), text).expect("a file");
            }
            let directives = pair.directives.replace("FOLDER", &place.to_string());
            servers += &format!(
                "server {{ listen {address}; server_name {}; location / {{ {directives} \
                 proxy_set_header Authorization \"\"; proxy_pass http://{backend}; }} }}\n",
                pair.host
            );
        }
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {place}/{name};\n"))
            .collect();
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\n\
             events {{}}\nhttp {{ {temporary}access_log off;\n{servers}}}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, text).expect("a file");
        let mut command = peer::nginx("nginx", &file);
        let command = command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().expect("nginx is installed");
        let nginx = Nginx { child, address };
        let listening = eventually(async || {
            let connected = tokio::net::TcpStream::connect(address).await;
            connected.is_ok().then_some(())
        });
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
