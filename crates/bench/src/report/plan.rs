//! The experiments, and the commands of each.

use super::Mode;
use super::point::{Peers, Point};

/// An experiment.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    /// The name in files and on the command line.
    pub id: &'static str,
    /// The heading.
    pub title: &'static str,
    /// The question that it answers, and how.
    pub question: &'static str,
    /// The points in their order.
    pub points: Vec<Point>,
    /// Parts of the published experiment that no command measures yet.
    pub missing: &'static [&'static str],
}

/// The names of experiments.
pub(super) const ACTIVATION: &str = "activation";
pub(super) const GATEWAY: &str = "gateway";
pub(super) const PEERS: &str = "peers";
pub(super) const LATENCY: &str = "latency";
pub(super) const EGRESS: &str = "egress";
pub(super) const FLEET: &str = "fleet";
pub(super) const SERVICES: &str = "services";
pub(super) const ROUTES: &str = "routes";
pub(super) const SOAK: &str = "soak";

/// All experiments, on a machine with so many cores.
pub(super) fn all(mode: Mode, cores: usize) -> Vec<Experiment> {
    vec![
        activation(mode),
        gateway(mode, cores),
        peers(mode),
        latency(mode),
        egress(mode),
        fleet(mode),
        services(mode),
        routes(mode),
        soak(mode),
    ]
}

const ENVOY_BEHIND_THE_API: &str =
    "Envoy behind the API of Kubernetes: its control plane here has no API server";

fn activation(mode: Mode) -> Experiment {
    let domains: &[u64] = mode.pick(
        &[100, 1_000],
        &[1_000, 20_000, 100_000, 1_000_000],
        &[100, 1_000, 20_000, 100_000, 1_000_000],
    );
    let mut points = Vec::new();
    for &count in domains {
        let words = activate(
            mode,
            "inbox",
            count,
            mode.pick([5, 3], [60, 30], [500, 100]),
        );
        points.push(Point::own(format!("serve, {count} domains"), words));
    }
    points.extend(activation_of_envoy(mode));
    let counts = mode.pick("50", "100,1000,7000,20000", "100,1000,7000,20000");
    let samples = mode.pick([3, 3], [40, 20], [200, 100]);
    let words = activate(mode, "kubernetes", counts, samples);
    let name = format!("through the API of Kubernetes, {counts} domains");
    points.push(Point::in_cluster(name, words));
    Experiment {
        id: ACTIVATION,
        title: "Activation against the number of domains",
        question: "How long from the write of a new domain to its first HTTPS answer with its own \
                   certificate, when so many exist: beside little traffic, and beside half of what \
                   the proxy can serve? Envoy is driven in its best configuration (one chain, \
                   certificates on demand by SDS, hosts by VHDS) and in the usual one (a filter \
                   chain per domain in one listener), by a control plane in the bench that sends \
                   nothing else.",
        points,
        missing: match mode {
            Mode::Published => &[ENVOY_BEHIND_THE_API],
            Mode::Quick | Mode::Usual => &[
                ENVOY_BEHIND_THE_API,
                "Envoy with 20,000 filter chains: the published form measures it, in ten minutes \
                 and more",
            ],
        },
    }
}

/// The same domains in Envoy, told of them in both ways.
fn activation_of_envoy(mode: Mode) -> Vec<Point> {
    let on_demand: &[u64] = mode.pick(
        &[100],
        &[1_000, 20_000, 100_000],
        &[100, 1_000, 20_000, 100_000, 1_000_000],
    );
    let chains: &[u64] = mode.pick(
        &[100, 1_000],
        &[100, 1_000, 7_000],
        &[100, 1_000, 7_000, 20_000],
    );
    let mut points = Vec::new();
    for &count in on_demand {
        let samples = mode.pick([5, 3], [60, 30], [500, 100]);
        let words = activate(mode, "envoy-on-demand", count, samples);
        let point = Point::own(format!("Envoy, on demand, {count} domains"), words);
        points.push(point.with(Peers::Envoy));
    }
    for &count in chains {
        // Each change of many domains takes seconds.
        let samples = match count {
            ..1_000 => mode.pick([5, 3], [60, 30], [500, 100]),
            1_000 => mode.pick([5, 3], [30, 15], [500, 100]),
            _ => mode.pick([5, 3], [8, 5], [100, 20]),
        };
        let words = activate(mode, "envoy-chains", count, samples);
        let point = Point::own(format!("Envoy, a chain per domain, {count} domains"), words);
        points.push(point.with(Peers::Envoy));
    }
    points
}

fn activate(
    mode: Mode,
    source: &str,
    domains: impl std::fmt::Display,
    [samples, at_half]: [u64; 2],
) -> Vec<String> {
    let load = mode.pick(100, 200, 200);
    let rate = mode.pick(20, 10, 10);
    let idle = mode.pick(1, 5, 30);
    words(&format!(
        "activate --source {source} --domains {domains} --samples {samples} \
         --samples-at-half {at_half} --load {load} --rate {rate} --idle-seconds {idle} --json"
    ))
}

fn gateway(mode: Mode, cores: usize) -> Experiment {
    let setup = mode.pick(
        "--workspaces 2 --domains 10 --paths 10 --connections 50 --rounds 1 --seconds 1",
        "--rounds 1 --seconds 20",
        "--rounds 3 --seconds 20",
    );
    let several = mode.pick("1", "1,2", "1,2");
    let counts = if cores > 1 { several } else { "1" };
    let beside = words(&format!(
        "scale --requests istio --mode nofilters --cores {counts} {setup} --json"
    ));
    let beside = Point::own("routes and TLS, beside Envoy".to_owned(), beside);
    let mut points = vec![beside.with(Peers::BesideEnvoy)];
    let filters: &[&str] = mode.pick(
        &["all"],
        &["onlyextauth", "all", "direct"],
        &["onlyextauth", "all", "direct"],
    );
    for filters in filters {
        let words = words(&format!(
            "scale --requests istio --mode {filters} --cores 1 {setup} --alone --json"
        ));
        points.push(Point::own(format!("filters: {filters}"), words));
    }
    Experiment {
        id: GATEWAY,
        title: "The gateway at scale, constant users",
        question: "Requests per second, latency, processor time and memory with 1,000 domains of \
                   100 paths each (in the quick form 20 of 10), over keep-alive connections that \
                   each wait for the answer before they ask again; and what filters cost.",
        points,
        missing: &[],
    }
}

fn peers(mode: Mode) -> Experiment {
    let setup = mode.pick(
        "--names 20 --paths 10 --rounds 1 --seconds 0.5",
        "--rounds 2 --seconds 6",
        "--rounds 7 --seconds 3",
    );
    let works = mode.pick("W1", "W1,W2,W3", "W1,W2,W3");
    let cost = words(&format!(
        "throughput --work {works} --connections 64 {setup} --json"
    ));
    let open = words(&format!("throughput --work W5 {setup} --json"));
    let against = |name: &str, words| Point::own(name.to_owned(), words).with(Peers::Against);
    Experiment {
        id: PEERS,
        title: "The cost of a request, and latency in an open loop",
        question: "Processor time of one request beside Envoy, HAProxy and nginx with the same \
                   names and routes on the same core; and what each adds to the latency of 1,000 \
                   requests per second that come by the clock, whatever the answers do.",
        points: vec![
            against("processor time by request", cost),
            against("1,000 requests per second, open loop", open),
        ],
        missing: &[],
    }
}

fn latency(mode: Mode) -> Experiment {
    let setup = mode.pick(
        "--services 10 --seconds 1 --rounds 1",
        "--seconds 5 --rounds 1",
        "--seconds 20 --rounds 2",
    );
    let counts = mode.pick("2,16", "2,4,8,16,32,64", "2,4,8,16,32,64");
    let jitter = mode.pick("false", "false,true", "false,true");
    let sweep = words(&format!(
        "latency --variants metrics --connections {counts} --jitter {jitter} {setup} --json"
    ));
    let records = words(&format!(
        "latency --variants none,metrics+log,metrics+trace --connections 16 --jitter false \
         {setup} --json"
    ));
    let protocols = mode.pick("http2,grpc", "http1,http2,grpc", "http1,http2,grpc");
    let bytes = mode.pick("16384", "128,1024,16384,131072", "128,1024,16384,131072");
    let moments = mode.pick(setup, "--seconds 3 --rounds 1", setup);
    // So few that 128 KiB of each answer are no more than both cores encrypt.
    let lengths = words(&format!(
        "latency --variants metrics --protocols {protocols} --bytes {bytes} --connections 16 \
         --jitter false --rps 200 {moments} --json"
    ));
    let beside =
        |name: &str, words| Point::in_cluster(name.to_owned(), words).with(Peers::BesideEnvoy);
    let mut points = vec![beside("connections", sweep)];
    if mode != Mode::Quick {
        points.push(beside("what is recorded", records));
        for rate in [100, 2_000, 4_000] {
            let words = words(&format!(
                "latency --variants metrics --connections 16 --jitter false --rps {rate} {setup} \
                 --json"
            ));
            points.push(beside(&format!("{rate} requests per second"), words));
        }
    }
    points.push(beside("protocols and lengths of answers", lengths));
    Experiment {
        id: LATENCY,
        title: "Latency of a pair of sidecars against connections",
        question: "1,000 requests per second of 1 KiB from a client through its sidecar, mutual \
                   TLS and the server's sidecar, over 2 to 64 connections, with and without \
                   jitter: without any proxy, with Myriad and with Envoy as both proxies. And 200 \
                   per second over 16 connections, by HTTP/1.1, HTTP/2 and gRPC, with answers of \
                   128 B to 128 KiB.",
        points,
        missing: &[
            "plain TCP through the pair",
            "a sidecar in Rust: none is published as a package that a test can install",
        ],
    }
}

fn egress(mode: Mode) -> Experiment {
    let setup = mode.pick(
        "--clients 5 --seconds 0.5",
        "--clients 1,10,20,40,60 --seconds 4",
        "--seconds 20",
    );
    Experiment {
        id: EGRESS,
        title: "Ways out of a mesh",
        question: "Transactions of a database outside, behind TLS of its client: around the proxy \
                   (1), through the sidecar (2), through the egress gateway (3), with mutual TLS \
                   between both (4), and to any host of a domain (5), with mutual TLS too (5m).",
        points: vec![Point::in_cluster(
            "all ways".to_owned(),
            words(&format!("egress {setup} --json")),
        )],
        missing: &[],
    }
}

fn fleet(mode: Mode) -> Experiment {
    let proxies = mode.pick(
        "--proxies 30 --services 20 --changes 5 --downtime-seconds 1 --idle-seconds 2",
        "--proxies 500 --services 300 --changes 30 --downtime-seconds 1 --idle-seconds 5",
        "--proxies 2000 --services 1000",
    );
    let mesh = mode.pick(
        None,
        Some("--services 500 --sidecars 500 --namespaces 50 --seconds 10 --processes 4"),
        Some("--services 1000 --sidecars 2000 --namespaces 50 --seconds 60 --processes 8"),
    );
    let controllers: &[u64] = mode.pick(&[1, 2], &[1, 2, 3], &[1, 2, 3]);
    let mut points = Vec::new();
    for (followers, setup) in [("gateways", Some(proxies)), ("sidecars", mesh)] {
        let Some(setup) = setup else { continue };
        for &count in controllers {
            let kind = if followers == "sidecars" {
                "--mesh "
            } else {
                ""
            };
            let more = match (mode, followers, count) {
                (Mode::Published, "gateways", 1) => " --reconnect",
                _ => "",
            };
            let words = words(&format!(
                "fleet {kind}{setup} --controllers {count}{more} --json"
            ));
            let name = format!("{followers}, controllers: {count}");
            points.push(Point::in_cluster(name, words));
        }
    }
    Experiment {
        id: FLEET,
        title: "The control plane",
        question: "One to three controllers, of which one leads and all serve, for many proxies \
                   and sidecars (sessions of the real client in one process, and a few sidecars \
                   that are whole processes): processor time, memory and bytes of each \
                   controller, the time until the last one has an endpoint that changed, and a \
                   restart. Each session is told each change once, or the point fails.",
        points,
        missing: &[],
    }
}

fn services(mode: Mode) -> Experiment {
    let setup = mode.pick(
        "--rps 50 --seconds 1 --connections 4",
        "--rps 200 --seconds 20",
        "--rps 200 --seconds 60",
    );
    let topologies = mode.pick(
        ["chain-3", "flights"],
        ["tree-13", "flights"],
        ["tree-13", "flights"],
    );
    let points = topologies.map(|topology| {
        let words = words(&format!(
            "mesh --topology examples/mesh/{topology}.yaml {setup} --json"
        ));
        Point::in_cluster(topology.to_owned(), words)
    });
    Experiment {
        id: SERVICES,
        title: "A graph of services",
        question: "Services that call each other, each a process with its sidecar, under one \
                   controller; and a shop of six, three of which ask a PostgreSQL server behind a \
                   sidecar of its own. Requests to each service and rows that it read are exactly \
                   those that the graph says, or the run fails.",
        points: points.into(),
        missing: &[],
    }
}

fn routes(mode: Mode) -> Experiment {
    let change = mode.pick("--iterations 3", "--iterations 50", "--iterations 200");
    let failover = mode.pick(
        "--iterations 1 --seconds 2",
        "--iterations 2 --seconds 10",
        "--iterations 5 --seconds 22",
    );
    let flap = mode.pick(
        "--seconds 2 --period 1 --rps 200",
        "--seconds 20",
        "--seconds 60",
    );
    let scenario = |name: &str, scenario: &str| {
        let words = words(&format!("gateway-api {scenario} --json"));
        Point::in_cluster(name.to_owned(), words)
    };
    Experiment {
        id: ROUTES,
        title: "Route change and failover",
        question: "Errors and wrong answers while routes change under traffic, while an \
                   endpoint fails and comes back, and while one does so all the time, without \
                   and with ejection of outliers.",
        points: vec![
            scenario("routes change", &format!("routechange {change}")),
            scenario("an endpoint fails", &format!("backendfailover {failover}")),
            Point::own(
                "an endpoint flaps".to_owned(),
                words(&format!("flap {flap} --json")),
            ),
        ],
        missing: &[],
    }
}

fn soak(mode: Mode) -> Experiment {
    let time = mode.pick("--short", "--minutes 2", "--minutes 30");
    Experiment {
        id: SOAK,
        title: "Memory over changes",
        question: "Mixed traffic, clients that stall and a change each second: does memory stay \
                   where it was? The slope of a line through all looks, with its standard error.",
        points: vec![Point::own(
            "mixed traffic".to_owned(),
            words(&format!("soak {time} --json")),
        )],
        missing: &[],
    }
}

impl Point {
    /// A point of Myriad alone, without a cluster.
    pub(super) fn own(name: String, words: Vec<String>) -> Point {
        Point {
            name,
            words,
            peers: Peers::None,
            needs_cluster: false,
        }
    }

    /// The same in a cluster.
    fn in_cluster(name: String, words: Vec<String>) -> Point {
        Point {
            needs_cluster: true,
            ..Point::own(name, words)
        }
    }

    /// The same with peers.
    fn with(self, peers: Peers) -> Point {
        Point { peers, ..self }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
