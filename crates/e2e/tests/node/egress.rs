//! The ways out of a mesh, as `docs/egress.md` walks them: every command in it, and which hops
//! each of them takes. The database, which stands outside, is real as far as the protocol goes.

use std::net::IpAddr;

use myriad_e2e::authority::Authority;
use myriad_e2e::cluster::{Arrival, Cluster, Outside, Reader};
use myriad_e2e::document::{Document, Step};
use myriad_e2e::world::{eventually, repository};

use crate::scene::{PODS_DEADLINE, Scene};

/// The namespaces of the document.
const NAMESPACES: [&str; 2] = ["orders", "mesh-system"];

/// The namespace and the start of the name of each Pod.
const CLIENT: Place = ("orders", "client");
const CLIENT_BYPASS: Place = ("orders", "client-bypass");
const GATEWAY: Place = ("mesh-system", "myriad-gateway-egress-");

type Place = (&'static str, &'static str);

/// Handshakes that ended at a proxy.
const ENDED: &str = "myriad_handshakes_total{outcome=\"full\"}";

/// Names that lead to the machine outside, those that have no business there among them.
const NAMES: [&str; 4] = [
    "mongo.example.com",
    "reports.example.com",
    "proxy.example.com",
    "mongo.elsewhere.test",
];

/// A name whose owner lets it point into the cluster, and where it points.
const INSIDE: (&str, &str) = ("inside.example.com", "10.96.0.1");

/// Somebody who follows the document, and the world that its commands change.
struct Walk {
    scene: Scene,
    outside: Outside,
    reader: Reader,
    document: Document,
}

impl Walk {
    async fn begin() -> Walk {
        let scene = Scene::set().await;
        scene.definitions().await;
        let cluster = &scene.cluster;
        let authority = Authority::read(&cluster.folder());
        let names = ["mongo.example.com", "*.example.com"];
        let outside = Outside::start(cluster, &authority, &names).await;
        let address = outside.address();
        let lines = NAMES.iter().map(|name| format!("{address} {name}\n"));
        let hosts: String = lines
            .chain([format!("{} {}\n", INSIDE.1, INSIDE.0)])
            .collect();
        cluster.resolve(&hosts);

        let reader = cluster.reader();
        let client = authority.issue_client("spiffe://orders/database-client");
        reader.keep("server-ca.crt", authority.root());
        reader.keep("client.crt", &client.certificate);
        reader.keep("client.key", &client.key);
        let walk = Walk {
            scene,
            outside,
            reader,
            document: Document::read("docs/egress.md"),
        };
        walk.follow(&walk.document.below("What you need")).await;
        walk
    }

    /// Takes away what the first commands have made.
    async fn end(self) {
        let cluster = &self.scene.cluster;
        let home = NAMESPACES[1];
        let script = format!("helm uninstall myriad --namespace {home} --wait");
        let output = self.reader.run(&script).await;
        assert!(output.status.success(), "{output:?}");
        for namespace in NAMESPACES {
            let line = ["delete", "namespace", namespace, "--wait=false"];
            cluster.kubectl(&line).await;
        }
        cluster.resolve("");
    }

    /// Runs commands as they stand, which have to do what the document says.
    async fn follow(&self, steps: &[&Step]) {
        for step in steps {
            let output = self
                .reader
                .run(&format!("set -eu\n{}", step.commands))
                .await;
            if !output.status.success() {
                panic!("{}{output:?}\n{}", step.commands, self.told().await);
            }
            step.check(&String::from_utf8_lossy(&output.stdout));
        }
    }

    /// Follows the steps below a heading but for the last one, which takes away what the first
    /// has made. Then the client asks until the database has been reached from this Pod and no
    /// other: what was there before may have had the first answer.
    async fn reach(&self, heading: &str, from: Place, wanted: impl Fn(&Arrival) -> bool) {
        let steps = self.document.below(heading);
        let is_last = |step: &&&Step| step.commands.starts_with("kubectl delete");
        let steps: Vec<&Step> = steps.iter().filter(|it| !is_last(it)).copied().collect();
        self.follow(&steps).await;
        let asks = |step: &&&Step| step.commands.contains("ask.py");
        let asking = steps.iter().find(asks).expect("the client asks");
        let from = self.address(from).await;
        let mut last = String::new();
        let reached = eventually(async || {
            self.outside.take_seen();
            let output = self.reader.run(&asking.commands).await;
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_found = asking.seen.iter().all(|line| printed.contains(line));
            let seen = self.outside.take_seen();
            last = format!("{printed}\n{seen:?}");
            let mut seen = seen.iter().filter(|it| it.peer != self.outside.address());
            let is_hop = |it: &Arrival| it.peer == from && wanted(it);
            (is_found && seen.next().is_some_and(is_hop) && seen.all(is_hop)).then_some(())
        });
        if reached.await.is_none() {
            panic!("{heading} from {from}: {last}\n{}", self.told().await);
        }
    }

    /// Takes away what the steps below a heading have made.
    async fn leave(&self, heading: &str) {
        let steps = self.document.below(heading);
        let last = *steps.last().expect("a step");
        assert!(last.commands.starts_with("kubectl delete"), "{heading}");
        self.follow(&[last]).await;
    }

    /// Asks as the client would, until that is refused.
    async fn is_refused(&self, name: &str) {
        let commands = format!(
            "kubectl exec --stdin --namespace=orders client -- python - \
             'mongodb://{name}:27017/?tls=true&serverSelectionTimeoutMS=1000' \
             < examples/egress/ask.py 2>&1 || true\n"
        );
        let mut last = String::new();
        let refused = eventually(async || {
            self.outside.take_seen();
            let output = self.reader.run(&commands).await;
            last = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_none = self.outside.take_seen().is_empty();
            (is_none && last.contains("not reached")).then_some(())
        });
        if refused.await.is_none() {
            panic!("{name}: {last}\n{}", self.told().await);
        }
    }

    /// Has the policy of an example name the identity of somebody else.
    async fn name_another(&self, example: &str) {
        let path = repository("examples/egress")
            .join(example)
            .join("mongo.yaml");
        let example = std::fs::read_to_string(path).expect("the example");
        assert!(example.contains("/sa/client"));
        let others = example.replace("/sa/client", "/sa/other");
        self.scene.cluster.apply(&others).await;
    }

    /// The name and the address of a Pod, once it has one.
    async fn pod(&self, (namespace, name): Place) -> (String, IpAddr) {
        let form =
            "--output=jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{'\\n'}{end}";
        let line = ["get", "pods", "--namespace", namespace, form];
        let is_it = |line: &str| {
            let (found, address) = line.split_once(' ')?;
            let fits = found == name || name.ends_with('-') && found.starts_with(name);
            fits.then(|| Some((found.to_owned(), address.parse().ok()?)))?
        };
        let has_it = |printed: &str| printed.lines().find_map(is_it).is_some();
        let cluster = &self.scene.cluster;
        let printed = cluster.until(PODS_DEADLINE, &line, has_it).await;
        printed.lines().find_map(is_it).expect("it was there")
    }

    async fn address(&self, place: Place) -> IpAddr {
        self.pod(place).await.1
    }

    /// A counter of the proxy of a Pod, which a sidecar shows at the port of its checks.
    async fn count(&self, place: Place, metric: &str) -> u64 {
        let port = if place == GATEWAY { 9901 } else { 15020 };
        let url = format!("http://{}:{port}/metrics", self.address(place).await);
        let page = self.scene.cluster.curl(&url, &[]).ask().await;
        assert_eq!(page.status, 200, "{url}: {page:?}");
        let mut lines = page.body.lines();
        let value = lines.find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        value.and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    async fn opened(&self, place: Place) -> u64 {
        self.count(place, "myriad_streams_total{event=\"opened\"}")
            .await
    }

    async fn log(&self, place: Place) -> String {
        let (name, _) = self.pod(place).await;
        let line = ["logs", "--namespace", place.0, &name];
        self.scene.cluster.kubectl(&line).await
    }

    async fn told(&self) -> String {
        let cluster = &self.scene.cluster;
        let mut told = String::new();
        for namespace in NAMESPACES {
            told += &cluster.told_of_pods(namespace).await;
        }
        told
    }
}

#[tokio::test]
async fn each_way_out_takes_the_hops_that_the_document_says() {
    let walk = Walk::begin().await;
    around_the_proxy(&walk).await;
    through_the_sidecar(&walk).await;
    through_the_gateway(&walk).await;
    with_mutual_tls(&walk).await;
    to_any_host(&walk).await;
    to_any_host_with_mutual_tls(&walk).await;
    with_tls_of_the_mesh(&walk).await;
    walk.end().await;
}

async fn around_the_proxy(walk: &Walk) {
    walk.reach("1 ", CLIENT_BYPASS, |_| true).await;
    assert_eq!(walk.opened(CLIENT_BYPASS).await, 0);
}

async fn through_the_sidecar(walk: &Walk) {
    walk.reach("2 ", CLIENT, |it| it.name == "mongo.example.com")
        .await;
    assert!(walk.opened(CLIENT).await > 0);
    walk.is_refused("mongo.elsewhere.test").await;
    assert_eq!(walk.opened(GATEWAY).await, 0);
    walk.leave("2 ").await;
}

async fn through_the_gateway(walk: &Walk) {
    let before = walk.opened(CLIENT).await;
    walk.reach("3 ", GATEWAY, |it| it.name == "mongo.example.com")
        .await;
    assert!(walk.opened(CLIENT).await > before);
    assert!(walk.opened(GATEWAY).await > 0);
    // Not even the handshake ended on the way.
    assert_eq!(walk.count(GATEWAY, ENDED).await, 0);
    walk.leave("3 ").await;
}

async fn with_mutual_tls(walk: &Walk) {
    walk.reach("4 ", GATEWAY, |it| it.name == "mongo.example.com")
        .await;
    assert!(walk.count(GATEWAY, ENDED).await > 0);

    // Who shows no identity is closed, in plain text and in TLS.
    let failed = "myriad_handshakes_total{outcome=\"failed\"}";
    let before = walk.count(GATEWAY, failed).await;
    let gateway = walk.address(GATEWAY).await;
    let cluster: &Cluster = &walk.scene.cluster;
    let plain = cluster.curl(&format!("http://{gateway}:8443/"), &[]);
    let resolve = [format!("mongo.example.com:8443:{gateway}")];
    let foreign = cluster.curl("https://mongo.example.com:8443/", &resolve);
    for curl in [plain, foreign.args(&["--insecure"])] {
        let answer = curl.ask().await;
        assert_eq!(answer.status, 0, "{answer:?}");
    }
    assert_eq!(walk.count(GATEWAY, failed).await, before + 2);

    // And so is an identity that the policy does not name.
    walk.name_another("4-gateway-mutual-tls").await;
    walk.is_refused("mongo.example.com").await;
    walk.leave("4 ").await;
}

async fn to_any_host(walk: &Walk) {
    walk.reach("5 ", GATEWAY, |it| it.name == "reports.example.com")
        .await;
    let refused = "myriad_dns_addresses_refused_total";
    assert_eq!(walk.count(GATEWAY, refused).await, 0);
    let (name, address) = INSIDE;
    walk.is_refused(name).await;
    assert!(walk.count(GATEWAY, refused).await > 0);
    let log = walk.log(GATEWAY).await;
    let is_told = |line: &str| line.contains(name) && line.contains(address);
    assert!(log.lines().any(is_told), "{log}");

    // A name that the pattern does not cover is nobody's, at the sidecar and at the gateway.
    walk.is_refused("mongo.elsewhere.test").await;
    let gateway = walk.address(GATEWAY).await;
    let resolve = [format!("mongo.elsewhere.test:8443:{gateway}")];
    let url = "https://mongo.elsewhere.test:8443/";
    let answer = walk.scene.cluster.curl(url, &resolve).ask().await;
    // Where handshakes are handed on, an unknown name is closed without an alert.
    let is_alert = answer.error.contains("unrecognized name");
    assert!(answer.status == 0 && !is_alert, "{answer:?}");
    walk.leave("5 ").await;
}

async fn to_any_host_with_mutual_tls(walk: &Walk) {
    let before = walk.count(GATEWAY, ENDED).await;
    walk.reach("5m ", GATEWAY, |it| it.name == "reports.example.com")
        .await;
    assert!(walk.count(GATEWAY, ENDED).await > before);
    let refused = "myriad_dns_addresses_refused_total";
    let before = walk.count(GATEWAY, refused).await;
    walk.is_refused(INSIDE.0).await;
    assert!(walk.count(GATEWAY, refused).await > before);
    walk.is_refused("mongo.elsewhere.test").await;

    // Whoever shows no identity is closed, whatever name it says.
    let gateway = walk.address(GATEWAY).await;
    let resolve = [format!("reports.example.com:8443:{gateway}")];
    let cluster = &walk.scene.cluster;
    let foreign = cluster.curl("https://reports.example.com:8443/", &resolve);
    let answer = foreign.args(&["--insecure"]).ask().await;
    assert_eq!(answer.status, 0, "{answer:?}");
    walk.name_another("5-wildcard-mutual-tls").await;
    walk.is_refused("reports.example.com").await;
    walk.leave("5m ").await;
}

async fn with_tls_of_the_mesh(walk: &Walk) {
    let heading = "TLS that begins in the mesh";
    walk.reach(heading, CLIENT, |it| it.name == "mongo.example.com")
        .await;
    walk.leave(heading).await;

    let heading = "Mutual TLS that begins at the gateway";
    walk.reach(heading, GATEWAY, |it| it.is_known && it.port == 27_018)
        .await;
    walk.leave(heading).await;

    let heading = "Through somebody else's proxy";
    let asked = "CONNECT mongo.example.com:27017 HTTP/1.1";
    walk.reach(heading, CLIENT, |it| it.name == asked).await;
    walk.leave(heading).await;
}
