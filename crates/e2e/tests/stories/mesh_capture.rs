//! Two workloads in networks of their own, each with a proxy that rules of nftables lead its
//! connections to. It takes root, `unshare`, `ip` and `nft`, and fails without them.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use myriad_base::metrics::Metrics;
use myriad_lab::network::Network;
use myriad_model::{
    Action, Capture, CaptureDirection, Certificate, Commit, Delta, Endpoint, Endpoints, Form, Host,
    KeyEncoding, Listener, ListenerProtocol, MeshTls, MutualTls, Name, Origin, PathMatch, Position,
    PrivateKey, Protocol, Resource, Route, Sealer, StreamRoute, Trust, Upstream, UpstreamTls,
    Users, Value, WeightedUpstream, Writer,
};
use myriad_proxy::{Identity, Proxy, Settings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The rules that lead the connections of the workload that asks; the proxy is root, the workload
/// is nobody.
const OUTBOUND: &str = "table ip capture {
    chain output {
        type nat hook output priority -100
        meta skuid 0 accept
        ip daddr 127.0.0.0/8 accept
        meta l4proto tcp redirect to :15001
    }
}
";

/// The rules that lead the connections of the workload that answers.
const INBOUND: &str = "table ip capture {
    chain prerouting {
        type nat hook prerouting priority -100
        ip daddr 10.77.0.2 meta l4proto tcp redirect to :15006
    }
}
";

/// A workload's network.
struct Pod(Network);

impl Pod {
    fn new() -> Pod {
        Pod(Network::bare().expect("this story makes networks, which takes root"))
    }

    /// Runs a script inside, which may end in a client that is not root.
    fn run(&self, script: &str, input: &str) -> String {
        let mut command = self.0.command("sh");
        let mut child = command
            .args(["-ec", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this story needs `nsenter`");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {text}");
        text
    }

    /// Asks by curl as nobody, and gives the status and the body.
    async fn ask(self: &Arc<Self>, url: &str) -> String {
        let script = format!(
            "setpriv --reuid=65534 --regid=65534 --clear-groups \
             curl -sS --noproxy '*' --max-time 10 -w ' %{{response_code}}' '{url}' || true"
        );
        let pod = self.clone();
        let asked = tokio::task::spawn_blocking(move || pod.run(&script, ""));
        asked.await.unwrap()
    }

    /// Does something on a thread whose sockets and threads are inside.
    fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        self.0.inside(what).unwrap()
    }

    fn listen(&self, address: &'static str) -> tokio::net::TcpListener {
        tokio::net::TcpListener::from_std(self.0.listen(address).unwrap()).unwrap()
    }
}

/// Two networks with a link between them: 10.77.0.1, and 10.77.0.2 that is 10.77.0.9 as well.
fn pods() -> (Arc<Pod>, Arc<Pod>) {
    let (a, b) = (Pod::new(), Pod::new());
    let link = Command::new("ip")
        .args(["link", "add", "eth0", "netns", &a.0.target().to_string()])
        .args(["type", "veth", "peer", "name", "eth0"])
        .args(["netns", &b.0.target().to_string()])
        .status();
    assert!(link.expect("this story needs `ip`").success());
    for (pod, addresses, rules) in [
        (&a, &["10.77.0.1"][..], OUTBOUND),
        (&b, &["10.77.0.2", "10.77.0.9"], INBOUND),
    ] {
        let mut script = "ip link set lo up; ip link set eth0 up; ".to_owned();
        for address in addresses {
            script += &format!("ip addr add {address}/24 dev eth0; ");
        }
        pod.run(&(script + "ip route add default dev eth0; nft -f -"), rules);
    }
    (Arc::new(a), Arc::new(b))
}

/// A proxy inside, and the writer of what it obeys.
struct Sidecar(Proxy, Writer);

impl Sidecar {
    fn start(pod: &Pod) -> Sidecar {
        let proxy = pod.inside(|| {
            let settings = Settings {
                workers: 1,
                captures: vec![
                    (
                        CaptureDirection::Outbound,
                        "127.0.0.1:15001".parse().unwrap(),
                    ),
                    (CaptureDirection::Inbound, "0.0.0.0:15006".parse().unwrap()),
                ],
                ..Settings::default()
            };
            Proxy::start(settings, &Metrics::default()).unwrap()
        });
        Sidecar(proxy, Writer::new(Sealer::new([7; 32], Form::Value)))
    }

    fn put(&mut self, resources: Vec<(&str, Value)>) {
        let outputs = resources.into_iter().map(|(name, value)| {
            let origin = Origin::settings();
            (Name::from(name), Resource { origin, value })
        });
        let mut delta = Delta::default();
        let changes = self.1.replace(&[], outputs.collect(), &mut delta).to_vec();
        let applied = self.0.apply(&Commit {
            changes,
            position: Position::default(),
        });
        assert!(applied.refused.is_empty());
    }
}

fn listener(address: &str, protocol: ListenerProtocol, mutual: Option<MutualTls>) -> Value {
    let direction = match mutual {
        None => CaptureDirection::Outbound,
        Some(_) => CaptureDirection::Inbound,
    };
    let mutual = mutual.unwrap_or_default();
    Value::Listener(Box::new(Listener {
        address: address.parse().unwrap(),
        tls: false,
        default_certificate: None,
        protocol,
        capture: Some(Capture {
            direction,
            mutual,
            detects_hosts: false,
        }),
    }))
}

fn shares(upstream: &str) -> Box<[WeightedUpstream]> {
    let share = WeightedUpstream {
        upstream: upstream.into(),
        weight: 1,
        headers: None,
        filters: None,
    };
    [share].into()
}

fn route(listener: &str, upstream: &str) -> Value {
    Value::Route(Box::new(Route {
        listeners: [Name::from(listener)].into(),
        hosts: [Host::any()].into(),
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank: 0,
        action: Action::Forward(shares(upstream).into_vec().into()),
        policy: Arc::default(),
    }))
}

fn stream_route(listener: &str, upstream: &str) -> Value {
    Value::StreamRoute(Box::new(StreamRoute {
        listeners: [Name::from(listener)].into(),
        hosts: Box::default(),
        sources: Box::default(),
        destinations: Box::default(),
        rank: 0,
        behind: 0,
        terminate: false,
        upstreams: shares(upstream),
        idle_timeout: std::time::Duration::ZERO,
        connect_timeout: std::time::Duration::from_secs(5),
    }))
}

fn original(source: Option<&str>) -> Value {
    Value::Upstream(Box::new(Upstream {
        original_destination: true,
        source_address: source.map(|source| Box::new(source.parse().unwrap())),
        ..Upstream::plain(Protocol::Http1)
    }))
}

/// An upstream of one endpoint, which speaks mutual TLS of the mesh as this account, or none.
fn to(name: &'static str, address: &str, account: Option<&str>) -> Vec<(&'static str, Value)> {
    let upstream = Upstream {
        tls: account.map(|account| {
            Box::new(UpstreamTls {
                server_name: "outbound_.80_._.b.shop.svc.cluster.local".into(),
                subject_alt_names: [uri(account).into()].into(),
                mesh: MeshTls::Flagged,
                ..UpstreamTls::unverified()
            })
        }),
        ..Upstream::plain(match account {
            Some(_) => Protocol::Https1,
            None => Protocol::Http1,
        })
    };
    let address: SocketAddr = address.parse().unwrap();
    let endpoint = Endpoint {
        mesh: account.is_some(),
        ..Endpoint::even(address)
    };
    let endpoints = Endpoints::new([endpoint].into());
    vec![
        (name, Value::Upstream(Box::new(upstream))),
        (name, Value::Endpoints(Box::new(endpoints))),
    ]
}

fn uri(account: &str) -> String {
    format!("spiffe://cluster.local/ns/shop/sa/{account}")
}

/// Identities of these accounts by one authority.
fn identities<const N: usize>(accounts: [&str; N]) -> [Identity; N] {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = Bytes::from(params.self_signed(&key).unwrap().der().to_vec());
    let issuer = Issuer::new(params, key);
    accounts.map(|account| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let uri = uri(account);
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap();
        Identity {
            certificate: Certificate {
                chain: [Bytes::from(leaf.der().to_vec())].into(),
                key: PrivateKey::new(KeyEncoding::Pkcs8, key.serialize_der().into()),
            },
            roots: Trust {
                roots: [root.clone()].into(),
                crls: Box::default(),
                users: Users::default(),
            },
            trust_domains: ["cluster.local".into()].into(),
        }
    })
}

/// Answers requests with where they came from and by whom; says so at once where it speaks first.
async fn app(listener: tokio::net::TcpListener, speaks_first: bool) {
    while let Ok((mut tcp, peer)) = listener.accept().await {
        tokio::spawn(async move {
            let from = peer.ip();
            if speaks_first {
                let _ = tcp.write_all(format!("hello {from}\n").as_bytes()).await;
                return;
            }
            let mut head = Vec::new();
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = tcp.read(&mut bytes).await {
                head.extend_from_slice(&bytes[..count]);
                if head.ends_with(b"\r\n\r\n") {
                    let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
                    let by = text.rsplit_once(";URI=").map_or("nobody", |(_, rest)| rest);
                    let body = format!("{} from {from}", by.lines().next().unwrap());
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                    let _ = tcp.write_all(answer.as_bytes()).await;
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workloads_talk_through_their_proxies_and_know_nothing_of_them() {
    let (a, b) = pods();
    let (mut of_a, mut of_b) = (Sidecar::start(&a), Sidecar::start(&b));
    tokio::spawn(app(b.listen("10.77.0.2:80"), false));
    tokio::spawn(app(b.listen("10.77.0.2:25"), true));
    tokio::spawn(app(b.listen("10.77.0.9:9000"), false));
    let (http, tcp) = (ListenerProtocol::Http, ListenerProtocol::Tcp);
    let out = |address, protocol| listener(address, protocol, None);
    of_a.put(vec![
        ("outbound/10.96.0.10:80", out("10.96.0.10:80", http)),
        ("outbound/10.96.0.10:25", out("10.96.0.10:25", tcp)),
        ("b", route("outbound/10.96.0.10:80", "b")),
        ("mail", stream_route("outbound/10.96.0.10:25", "mail")),
    ]);
    of_a.put(to("b", "10.77.0.2:80", None));
    of_a.put(to("mail", "10.77.0.2:25", None));
    let inbound = |mutual: MutualTls| {
        let on = |address, protocol| listener(address, protocol, Some(mutual));
        vec![
            ("inbound/any:80", on("0.0.0.0:80", http)),
            ("inbound/any:25", on("0.0.0.0:25", tcp)),
            ("app", original(Some("127.0.0.6"))),
            ("app", route("inbound/any:80", "app")),
            ("app", stream_route("inbound/any:25", "app")),
        ]
    };
    of_b.put(inbound(MutualTls::None));
    // In plain text both ways.
    let (service, mail) = ("http://10.96.0.10/", "telnet://10.96.0.10:25");
    assert_eq!(a.ask(service).await, "nobody from 127.0.0.6 200");
    assert_eq!(a.ask(mail).await, "hello 127.0.0.6\n 000");
    // Whom nobody has declared is out of reach until that is allowed.
    let unknown = "http://10.77.0.9:9000/";
    assert_eq!(a.ask(unknown).await, " 000");
    let detected = ListenerProtocol::Detected;
    of_a.put(vec![
        ("outbound/any:any", out("0.0.0.0:0", detected)),
        ("elsewhere", original(None)),
    ]);
    assert_eq!(a.ask(unknown).await, "not in the mesh\n 502");
    of_a.put(vec![
        ("elsewhere", route("outbound/any:any", "elsewhere")),
        ("elsewhere", stream_route("outbound/any:any", "elsewhere")),
    ]);
    assert_eq!(a.ask(unknown).await, "nobody from 10.77.0.1 200");
    // Under mutual TLS the one that is asked knows who asks.
    let [of_caller, of_called] = identities(["a", "b"]);
    of_a.0.identify(of_caller).unwrap();
    of_b.0.identify(of_called).unwrap();
    of_b.put(inbound(MutualTls::Strict));
    assert!(
        a.ask(service).await.ends_with(" 502"),
        "plain text under STRICT"
    );
    of_a.put(to("b", "10.77.0.2:80", Some("b")));
    of_a.put(to("mail", "10.77.0.2:25", Some("b")));
    let known = format!("{} from 127.0.0.6 200", uri("a"));
    assert_eq!(a.ask(service).await, known);
    assert_eq!(a.ask(mail).await, "hello 127.0.0.6\n 000");
    assert!(
        a.ask("http://10.77.0.2/").await.ends_with(" 502"),
        "round the Service"
    );
    of_a.0.drain().await;
    of_b.0.drain().await;
}
