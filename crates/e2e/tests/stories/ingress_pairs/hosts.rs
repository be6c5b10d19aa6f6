//! Annotations of hosts and limits, beside an nginx with the directives that they stand for: both
//! answer alike.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::free_port;
use myriad_e2e::world::eventually;
use myriad_e2e::{Answer, Backend, Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{NGINX, Nginx};

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

/// The endpoints that requests for paths get, each asked twice at an address.
async fn endpoints_of(world: &World, address: SocketAddr, paths: usize) -> Vec<[String; 2]> {
    let mut all = Vec::new();
    for path in 0..paths {
        let url = format!("http://a.test/{path}?x=1");
        let ask = async || {
            let answer = world.curl_at(address, &url).ask().await;
            answer.told()["backend"].to_string()
        };
        all.push([ask().await, ask().await]);
    }
    all
}

#[tokio::test]
async fn equal_requests_go_to_one_endpoint_as_with_nginx() {
    let backends = [
        Backend::start("a").await,
        Backend::start("b").await,
        Backend::start("c").await,
    ];
    let key = "nginx.ingress.kubernetes.io/upstream-hash-by";
    let site = Site::new("a.test").annotation(key, "$host-$request_uri");
    let site = backends
        .iter()
        .fold(site, |site, backend| site.to(backend.address()));
    let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
    let servers = backends.each_ref().map(Backend::address);
    let [first, second, third] = servers;
    let servers = format!(
        "upstream three {{ hash $host-$request_uri consistent;
         server {first}; server {second}; server {third}; }}
         server {{ listen LISTEN; server_name a.test;
         location / {{ proxy_pass http://three; }} }}"
    );
    let nginx = Nginx::start(&servers, &[], first).await;
    for address in [world.http(), nginx.address] {
        let all = endpoints_of(&world, address, 40).await;
        assert!(all.iter().all(|[one, other]| one == other), "{all:?}");
        let used: BTreeSet<&String> = all.iter().flatten().collect();
        assert_eq!(used.len(), 3, "{all:?}");
    }
    world.stop().await;
}

/// The request that comes next, which is answered: its first line, host and body.
async fn next_request(endpoint: &TcpListener) -> (String, String, String) {
    let accepted = eventually(async || {
        let wait = Duration::from_secs(1);
        let accepted = tokio::time::timeout(wait, endpoint.accept()).await;
        accepted.ok()?.ok()
    });
    let (mut stream, _) = accepted.await.expect("a connection");
    let mut text = String::new();
    let (head, body) = loop {
        let mut bytes = [0; 4_096];
        let count = stream.read(&mut bytes).await.expect("a request");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(count > 0, "{text}");
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head
            .split_once("\r\ncontent-length: ")
            .map_or(0, |(_, it)| {
                let digits = it.split("\r\n").next().unwrap_or_default();
                digits.parse().expect("a number")
            });
        if body.len() >= length {
            break (head, body.to_owned());
        }
    };
    let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    stream
        .write_all(response)
        .await
        .expect("a response is sent");
    let line = head.lines().next().unwrap_or_default();
    // nginx speaks HTTP/1.0 to endpoints.
    let line = line.rsplit_once(' ').map_or(line, |(line, _)| line);
    let host = head.lines().find_map(|line| line.strip_prefix("host: "));
    (line.to_owned(), host.unwrap_or_default().to_owned(), body)
}

#[tokio::test]
async fn copies_are_those_of_nginx() {
    let backend = Backend::start("a").await;
    let endpoint = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let copies = endpoint.local_addr().expect("an address");
    for (body, without) in [
        ("on", ""),
        (
            "off",
            "proxy_pass_request_body off; proxy_set_header Content-Length \"\";",
        ),
    ] {
        let annotations = [
            ("mirror-target", "http://copy-test.default.svc$request_uri"),
            ("mirror-request-body", body),
        ];
        let mut site = Site::new("a.test").to(backend.address());
        for (key, value) in annotations {
            site = site.annotation(&format!("{NGINX}/{key}"), value);
        }
        let files = [
            ("a.yaml", site.yaml()),
            ("copy.yaml", Site::new("copy.test").to(copies).yaml()),
        ];
        let world = World::serve_with(Authority::new(), &files, &[]).await;
        let servers = format!(
            "server {{ listen LISTEN; server_name a.test;
             location / {{ mirror /copy; mirror_request_body {body}; proxy_pass http://BACKEND; }}
             location = /copy {{ internal; {without}
             proxy_set_header Host copy-test.default.svc;
             proxy_pass http://{copies}$request_uri; }} }}"
        );
        let nginx = Nginx::start(&servers, &[], backend.address()).await;
        let mut heard = Vec::new();
        for address in [world.http(), nginx.address] {
            let curl = world.curl_at(address, "http://a.test/x?y=1");
            let curl = curl.args(&["--data-binary", "hello"]);
            let (answer, copy) = tokio::join!(curl.ask(), next_request(&endpoint));
            assert_eq!(answer.told()["body_bytes"], 5, "{answer:?}");
            heard.push(copy);
        }
        assert_eq!(heard[0], heard[1]);
        let length = if body == "on" { 5 } else { 0 };
        assert_eq!(heard[0].2.len(), length, "{heard:?}");
        world.stop().await;
    }
}

/// An endpoint whose answers have the status that the path says.
async fn erring() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut text = String::new();
                while !text.contains("\r\n\r\n") {
                    let mut bytes = [0; 4_096];
                    let count = stream.read(&mut bytes).await.unwrap_or(0);
                    if count == 0 {
                        return;
                    }
                    text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                }
                let status = text.split(['/', '?', ' ']).nth(2).unwrap_or_default();
                let response = format!(
                    "HTTP/1.1 {status} It\r\nConnection: close\r\nContent-Length: 3\r\n\r\nown"
                );
                // A client that went away is no matter here.
                let _ = stream.write_all(response.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn pages_of_errors_are_asked_for_as_by_ingress_nginx() {
    let endpoint = erring().await;
    let pages = Backend::start("pages").await;
    let mut site = Site::new("a.test").to(endpoint);
    for (key, value) in [
        ("custom-http-errors", "404,503"),
        ("default-backend", "pages-test"),
    ] {
        site = site.annotation(&format!("{NGINX}/{key}"), value);
    }
    let files = [
        ("a.yaml", site.yaml()),
        (
            "pages.yaml",
            Site::new("pages.test").to(pages.address()).yaml(),
        ),
    ];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    let page = |status: u16| {
        format!(
            "location @page{status} {{ internal; proxy_intercept_errors off;
             proxy_set_header X-Code {status}; proxy_set_header X-Format $http_accept;
             proxy_set_header X-Original-URI $request_uri;
             proxy_set_header X-Namespace default; proxy_set_header X-Ingress-Name a-test;
             proxy_set_header X-Service-Name a-test; proxy_set_header X-Service-Port 80;
             proxy_set_header Host $host; rewrite (.*) / break;
             proxy_pass http://{}; }}",
            pages.address()
        )
    };
    let servers = format!(
        "server {{ listen LISTEN; server_name a.test;
         location / {{ proxy_intercept_errors on; error_page 404 = @page404;
         error_page 503 = @page503; proxy_pass http://BACKEND; }} {} {} }}",
        page(404),
        page(503)
    );
    let nginx = Nginx::start(&servers, &[], endpoint).await;
    for path in ["200", "404?x=1", "503", "500"] {
        let mut seen = Vec::new();
        for address in [world.http(), nginx.address] {
            let curl = world.curl_at(address, &format!("http://a.test/{path}"));
            let answer = curl.args(&["-H", "Accept: text/html"]).ask().await;
            let told = (answer.body != "own").then(|| {
                let told = answer.told();
                ["x-code", "x-format", "x-original-uri", "x-namespace"]
                    .into_iter()
                    .chain(["x-ingress-name", "x-service-name", "x-service-port"])
                    .map(|name| told["headers"][name].to_string())
                    .chain([told["method"].to_string()])
                    .collect::<Vec<_>>()
            });
            seen.push((answer.status, told));
        }
        assert_eq!(seen[0], seen[1], "{path}");
    }
    assert_eq!(pages.asked(), 4);
    world.stop().await;
}

#[tokio::test]
async fn an_error_without_a_page_keeps_its_status() {
    let mut site = Site::new("a.test").to(erring().await);
    for (key, value) in [
        ("custom-http-errors", "404"),
        ("default-backend", "pages-test"),
    ] {
        site = site.annotation(&format!("{NGINX}/{key}"), value);
    }
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let files = [
        ("a.yaml", site.yaml()),
        ("pages.yaml", Site::new("pages.test").to(closed).yaml()),
    ];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    let answer = world.get("http://a.test/404").await;
    assert_eq!((answer.status, &*answer.body), (404, ""), "{answer:?}");
    world.stop().await;
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
            site = site.annotation(&format!("{NGINX}/{key}"), value);
        }
        let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
        let nginx = Nginx::start(case.servers, &[], backend.address()).await;
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

/// The statuses of requests of one client, each begun while those before it are served, and of one
/// after them.
async fn statuses_at_once(address: SocketAddr, endpoint: &TcpListener, count: usize) -> Vec<u16> {
    let ask = async || {
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.expect("a request is sent");
        client
    };
    let status = async |mut client: TcpStream| {
        let mut text = String::new();
        client.read_to_string(&mut text).await.expect("a response");
        let status = text.split(' ').nth(1).and_then(|it| it.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {text}"))
    };
    let mut statuses = Vec::new();
    let mut served = Vec::new();
    for _ in 0..count {
        let client = ask().await;
        // Either the endpoint is asked, or the client is answered.
        let mut first = [0; 1];
        tokio::select! {
            accepted = endpoint.accept() => {
                served.push((client, accepted.expect("a connection").0));
            }
            read = client.peek(&mut first) => {
                assert_eq!(read.ok(), Some(1));
                statuses.push(status(client).await);
            }
        }
    }
    for (client, mut held) in served {
        let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        held.write_all(response).await.expect("a response is sent");
        statuses.push(status(client).await);
    }
    statuses
}

#[tokio::test]
async fn as_many_requests_of_a_client_are_served_at_once_as_by_nginx() {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = endpoint.local_addr().expect("an address");
    let key = "nginx.ingress.kubernetes.io/limit-connections";
    let site = Site::new("a.test").to(address).annotation(key, "2");
    let world = World::serve_with(Authority::new(), &[("a.yaml", site.yaml())], &[]).await;
    let servers = "limit_conn_zone $binary_remote_addr zone=a:1m;
                   server { listen LISTEN; server_name a.test;
                   location / { limit_conn a 2; proxy_pass http://BACKEND; } }";
    let nginx = Nginx::start(servers, &[], address).await;
    let own = statuses_at_once(world.http(), &endpoint, 4).await;
    let other = statuses_at_once(nginx.address, &endpoint, 4).await;
    assert_eq!(own, other);
    assert_eq!(own, [503, 503, 200, 200]);
    world.stop().await;
}
