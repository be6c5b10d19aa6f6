//! The ways out of a mesh, as `docs/egress.md` walks them: every command in it, and which hops
//! each of them takes. The database, which stands outside, is real as far as the protocol goes.

use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use myriad_e2e::NameServer;
use myriad_e2e::cluster::{Arrival, Cluster, Mesh, Outside, Resident, Workload};
use myriad_e2e::document::{Document, Step};
use myriad_e2e::name_server::Saying;
use myriad_e2e::world::{eventually, repository};
use serde_json::Value;
use tokio::process::Command;

use super::istio::installed;
use crate::is_refused;

/// The namespaces of the document.
const NAMESPACES: [&str; 2] = ["mesh-system", "orders"];

/// The gateway in names of its objects.
const GATEWAY: &str = "myriad-gateway-egress";

/// Handshakes that ended at a proxy.
const ENDED: &str = "myriad_handshakes_total{outcome=\"full\"}";

/// There is nobody here who runs Pods or holds volumes: of the chart, the gateway is applied.
const HELM: &str = r#"#!/bin/sh
set -eu
[ "$1 $2" = "upgrade --install" ] && shift 2
for word; do shift; [ "$word" = --create-namespace ] || set -- "$@" "$word"; done
kubectl create namespace mesh-system --dry-run=client --output=yaml | kubectl apply --filename=-
"$MYRIAD_HELM" template "$@" --kube-version=1.36.0 --show-only=templates/gateways.yaml |
    kubectl apply --filename=-
"#;

/// There is no kubelet that is asked for a command: the network of the Pod is entered instead,
/// with the names and the authorities that a Pod outside would have.
const KUBECTL: &str = r#"#!/bin/sh
set -eu
[ "$1" = exec ] || exec "$REAL_KUBECTL" "$@"
pod=
while [ "$1" != -- ]; do case "$1" in -*) ;; *) pod=$1 ;; esac; shift; done
shift
export SSL_CERT_FILE="$WALK/root.pem"
exec nsenter --target="$(cat "$WALK/pods/$pod")" --net unshare --mount \
    sh -c 'mount --bind "$WALK/hosts" /etc/hosts && exec "$@"' sh "$@"
"#;

/// A machine on which somebody follows the document, and the world that its commands change.
struct Walk {
    mesh: Mesh,
    outside: Outside,
    names: NameServer,
    place: PathBuf,
    document: Document,
    settled: Vec<(String, Workload)>,
}

impl Walk {
    async fn begin() -> Walk {
        installed().await;
        let cluster = Cluster::join().await;
        for namespace in NAMESPACES {
            let gone = ["delete", "--ignore-not-found", "namespace", namespace];
            cluster.kubectl(&gone).await;
        }
        let outside = Outside::start(&cluster, &["mongo.example.com", "*.example.com"]).await;
        let names = NameServer::start_at(cluster.service());
        let public = |names: &[&str]| {
            let line = |name: &&str| format!("{} {name}\n", outside.address());
            names.iter().map(line).collect::<String>()
        };
        let known = [
            "mongo.example.com",
            "reports.example.com",
            "proxy.example.com",
        ];
        for name in known {
            names.say(name, Saying::Addresses(vec![outside.address()], 60));
        }
        // What has no business there, and what its owner lets point into the cluster.
        let inside = IpAddr::from([10, 96, 0, 1]);
        names.say("inside.example.com", Saying::Addresses(vec![inside], 60));
        let place = cluster.path("walk");
        let hosts = public(&known) + &public(&["inside.example.com", "mongo.elsewhere.test"]);
        prepare(&place, &cluster, &hosts);
        let document = Document::read("docs/egress.md");
        // The gateways are known to the controller before it starts, as the chart has it.
        let [helm, client] = document.below("What you need")[..] else {
            panic!("the document begins with two commands");
        };
        run(&place, helm).await;
        let output = r"--output=jsonpath={.data.gateways\.yaml}";
        let line = [
            "get",
            "configmap",
            "--namespace=mesh-system",
            "myriad-gateways",
            output,
        ];
        let gateways = cluster.path("gateways.yaml");
        std::fs::write(&gateways, cluster.kubectl(&line).await).expect("a file");
        let client = client.clone();
        let mesh = Mesh::start(cluster, |launch| {
            launch
                .set("--gateways", gateways.display())
                .set("--http", 8080)
                .set("--https", 8443)
        });
        let mut walk = Walk {
            mesh: mesh.await,
            outside,
            names,
            place,
            document,
            settled: Vec::new(),
        };
        walk.settle(1).await;
        walk.follow(&client).await;
        walk
    }

    /// Runs the commands of a step, and what a kubelet would run then.
    async fn follow(&mut self, step: &Step) -> String {
        let before = self.settled.len();
        let printed = run(&self.place, step).await;
        if step.commands.contains("inject") {
            self.settle(before + 1).await;
        }
        printed
    }

    /// Waits until there are so many Pods, and gives each its network, its rules and its proxy.
    async fn settle(&mut self, count: usize) {
        let mut pods = Vec::new();
        let all_there = eventually(async || {
            pods.clear();
            for namespace in NAMESPACES {
                let path = format!("/api/v1/namespaces/{namespace}/pods");
                let list = self.mesh.api.get(&path).await;
                pods.extend(list["items"].as_array().cloned().unwrap_or_default());
            }
            (pods.len() >= count).then_some(())
        });
        assert!(all_there.await.is_some(), "{count} Pods: {pods:?}");
        for pod in pods {
            let name = text(&pod["metadata"]["name"]).to_owned();
            if self.settled.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let resident = Resident {
                number: u8::try_from(self.settled.len()).expect("a few"),
                namespace: text(&pod["metadata"]["namespace"]),
                name: &name,
                account: text(&pod["spec"]["serviceAccountName"]),
                rules: rules(&pod),
            };
            let (root, resolver) = (self.place.join("root.pem"), self.names.address());
            let settle = self.mesh.settle(&resident, |launch| {
                launch
                    .set("--probes", "0.0.0.0:15020")
                    .set("--resolver", resolver)
                    .environment("SSL_CERT_FILE", root.display())
            });
            let workload = settle.await;
            let target = workload.pod.target().to_string();
            std::fs::write(self.place.join("pods").join(&name), target).expect("a file");
            self.settled.push((name, workload));
        }
    }

    fn workload(&self, name: &str) -> &Workload {
        let mut settled = self.settled.iter();
        let found = settled.find(|(known, _)| known.starts_with(name));
        &found.expect("it runs").1
    }

    /// Follows the steps below a heading but for the last one, which takes away what the first
    /// has made, until the database has been reached from this Pod and no other.
    async fn reach(&mut self, heading: &str, from: &str, wanted: impl Fn(&Arrival) -> bool) {
        let steps = self.steps(heading);
        let from = self.workload(from).pod.address();
        let mut last = String::new();
        let reached = eventually(async || {
            self.outside.take_seen();
            let mut is_found = true;
            for step in &steps {
                last = try_run(&self.place, step).await;
                is_found &= step.seen.iter().all(|line| last.contains(line));
            }
            let seen = self.outside.take_seen();
            last = format!("{last}\n{seen:?}");
            let mut seen = seen.iter().filter(|it| it.peer != self.outside.address());
            let is_hop = |it: &Arrival| it.peer == from && wanted(it);
            (is_found && seen.next().is_some_and(is_hop) && seen.all(is_hop)).then_some(())
        });
        let is_reached = reached.await.is_some();
        assert!(is_reached, "{heading}: {last}\n{}", self.logs());
    }

    fn steps(&self, heading: &str) -> Vec<Step> {
        let steps = self.document.below(heading).into_iter();
        let steps = steps.filter(|step| !step.commands.starts_with("kubectl delete"));
        // What makes a Pod or a Secret is not done twice.
        let is_once = |step: &Step| {
            ["inject", "create"]
                .iter()
                .any(|it| step.commands.contains(it))
        };
        let steps = steps.filter(|step| !is_once(step));
        steps.cloned().collect()
    }

    /// Takes away what the steps below a heading have made.
    async fn leave(&self, heading: &str) {
        let steps = self.document.below(heading);
        let last = steps.last().expect("a step");
        assert!(last.commands.starts_with("kubectl delete"), "{heading}");
        run(&self.place, last).await;
    }

    /// Asks as the client would, until that is refused.
    async fn is_refused(&self, name: &str) {
        let commands = format!(
            "kubectl exec --stdin --namespace=orders client -- python - \
             'mongodb://{name}:27017/?tls=true&serverSelectionTimeoutMS=1000' \
             < examples/egress/ask.py 2>&1 || true\n"
        );
        let step = Step {
            commands,
            ..Step::default()
        };
        let mut last = String::new();
        let refused = eventually(async || {
            self.outside.take_seen();
            last = try_run(&self.place, &step).await;
            let is_none = self.outside.take_seen().is_empty();
            (is_none && last.contains("not reached")).then_some(())
        });
        assert!(refused.await.is_some(), "{name}: {last}\n{}", self.logs());
    }

    /// A counter of the proxy of a Pod.
    async fn count(&self, pod: &str, metric: &str) -> u64 {
        let page = self
            .mesh
            .cluster
            .admin(&self.workload(pod).proxy, "/metrics")
            .await;
        let mut lines = page.body.lines();
        let value = lines.find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        value.and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    async fn opened(&self, pod: &str) -> u64 {
        self.count(pod, "myriad_streams_total{event=\"opened\"}")
            .await
    }

    fn logs(&self) -> String {
        let settled = self.settled.iter();
        let logs = settled.map(|(name, it)| format!("{name}:\n{}\n", it.proxy.log()));
        logs.collect()
    }
}

/// The files and programs of somebody who stands in a copy of this repository.
fn prepare(place: &Path, cluster: &Cluster, hosts: &str) {
    for folder in ["bin", "pods"] {
        std::fs::create_dir_all(place.join(folder)).expect("a directory");
    }
    for name in ["deploy", "examples"] {
        symlink(repository(name), place.join(name)).expect("a link");
    }
    for (name, variable) in [("myriad", "MYRIAD_BIN"), ("python", "MYRIAD_MONGO_PYTHON")] {
        let program = std::env::var_os(variable)
            .unwrap_or_else(|| panic!("`cargo xtask test --stage cluster` sets {variable}"));
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", program.display());
        write_program(&place.join("bin").join(name), &script);
    }
    write_program(&place.join("bin/helm"), HELM);
    write_program(&place.join("bin/kubectl"), KUBECTL);
    let client = cluster
        .authority
        .issue_client("spiffe://orders/database-client");
    for (name, text) in [
        ("hosts", &*format!("127.0.0.1 localhost\n{hosts}")),
        ("root.pem", cluster.authority.root()),
        ("server-ca.crt", cluster.authority.root()),
        ("client.crt", &client.certificate),
        ("client.key", &client.key),
    ] {
        std::fs::write(place.join(name), text).expect("a file");
    }
}

fn write_program(path: &Path, script: &str) {
    std::fs::write(path, script).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("a mode");
}

/// Runs the commands of a step, which have to do what the document says.
async fn run(place: &Path, step: &Step) -> String {
    let output = shell(place, step).await;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}{printed}\n{complaint}",
        step.commands
    );
    step.check(&printed);
    printed
}

/// Runs a step that may fail still; what it has printed and complained about.
async fn try_run(place: &Path, step: &Step) -> String {
    let output = shell(place, step).await;
    let both = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

async fn shell(place: &Path, step: &Step) -> Output {
    // Whoever enters the cluster finds its kubectl first.
    let script = format!(
        "export REAL_KUBECTL=\"$(command -v kubectl)\" PATH=\"$WALK/bin:$PATH\"\nset -eu\n{}",
        step.commands
    );
    let mut command = Command::new(std::env::var_os("MYRIAD_CLUSTER").expect("a cluster"));
    command.args(["sh", "-c", &script]).current_dir(place);
    command.env("WALK", place);
    command.env_remove("http_proxy").env_remove("https_proxy");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("a shell")
}

/// The arguments of `redirect` in the init step of an injected Pod; `None` where it has none.
fn rules(pod: &Value) -> Option<Vec<String>> {
    let containers = pod["spec"]["initContainers"].as_array()?;
    let init = containers.iter().find(|it| it["name"] == "myriad-init")?;
    let words = init["args"].as_array()?.iter().skip(1);
    Some(words.map(|word| text(word).to_owned()).collect())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[tokio::test]
async fn each_way_out_takes_the_hops_that_the_document_says() {
    let mut walk = Walk::begin().await;
    around_the_proxy(&mut walk).await;
    through_the_sidecar(&mut walk).await;
    through_the_gateway(&mut walk).await;
    with_mutual_tls(&mut walk).await;
    to_any_host(&mut walk).await;
    with_tls_of_the_mesh(&mut walk).await;
}

async fn around_the_proxy(walk: &mut Walk) {
    let inject = walk.document.below("1 ")[0].clone();
    walk.follow(&inject).await;
    walk.reach("1 ", "client-bypass", |_| true).await;
    assert_eq!(walk.opened("client-bypass").await, 0);
}

async fn through_the_sidecar(walk: &mut Walk) {
    walk.reach("2 ", "client", |it| it.name == "mongo.example.com")
        .await;
    assert!(walk.opened("client").await > 0);
    walk.is_refused("mongo.elsewhere.test").await;
    assert_eq!(walk.opened(GATEWAY).await, 0);
    walk.leave("2 ").await;
}

async fn through_the_gateway(walk: &mut Walk) {
    let before = walk.opened("client").await;
    walk.reach("3 ", GATEWAY, |it| it.name == "mongo.example.com")
        .await;
    assert!(walk.opened("client").await > before);
    assert!(walk.opened(GATEWAY).await > 0);
    // Not even the handshake ended on the way.
    assert_eq!(walk.count(GATEWAY, ENDED).await, 0);
    walk.leave("3 ").await;
}

async fn with_mutual_tls(walk: &mut Walk) {
    walk.reach("4 ", GATEWAY, |it| it.name == "mongo.example.com")
        .await;
    assert!(walk.count(GATEWAY, ENDED).await > 0);

    // Who shows no identity is closed, in plain text and in TLS.
    let failed = "myriad_handshakes_total{outcome=\"failed\"}";
    let before = walk.count(GATEWAY, failed).await;
    let gateway = walk.workload(GATEWAY).pod.address().to_string();
    let cluster = &walk.mesh.cluster;
    let plain = cluster.curl(&format!("http://{gateway}:8443/"), &[]);
    let resolve = [format!("mongo.example.com:8443:{gateway}")];
    let foreign = cluster.curl("https://mongo.example.com:8443/", &resolve);
    for curl in [plain, foreign.args(&["--insecure"])] {
        let answer = curl.ask().await;
        assert_eq!(answer.status, 0, "{answer:?}");
    }
    assert_eq!(walk.count(GATEWAY, failed).await, before + 2);

    // And so is an identity that the policy does not name.
    let example = repository("examples/egress/4-gateway-mutual-tls/mongo.yaml");
    let example = std::fs::read_to_string(example).expect("the example");
    assert!(example.contains("/sa/client"));
    let others = example.replace("/sa/client", "/sa/other");
    walk.mesh.cluster.apply(&others).await;
    walk.is_refused("mongo.example.com").await;
    walk.leave("4 ").await;
}

async fn to_any_host(walk: &mut Walk) {
    walk.reach("5 ", GATEWAY, |it| it.name == "reports.example.com")
        .await;
    let refused = "myriad_dns_addresses_refused_total";
    assert_eq!(walk.count(GATEWAY, refused).await, 0);
    walk.is_refused("inside.example.com").await;
    assert!(walk.count(GATEWAY, refused).await > 0);
    let log = walk.workload(GATEWAY).proxy.log();
    let is_told = |line: &str| line.contains("inside.example.com") && line.contains("10.96.0.1");
    assert!(log.lines().any(is_told), "{log}");

    // A name that the pattern does not cover is nobody's, at the sidecar and at the gateway.
    walk.is_refused("mongo.elsewhere.test").await;
    let gateway = walk.workload(GATEWAY).pod.address();
    let resolve = [format!("mongo.elsewhere.test:8443:{gateway}")];
    let url = "https://mongo.elsewhere.test:8443/";
    let answer = walk.mesh.cluster.curl(url, &resolve).ask().await;
    assert!(is_refused(&answer), "{answer:?}");
    walk.leave("5 ").await;
}

async fn with_tls_of_the_mesh(walk: &mut Walk) {
    let heading = "TLS that begins in the mesh";
    walk.reach(heading, "client", |it| it.name == "mongo.example.com")
        .await;
    walk.leave(heading).await;

    let heading = "Mutual TLS that begins at the gateway";
    let secret = walk.document.below(heading)[0].clone();
    walk.follow(&secret).await;
    walk.reach(heading, GATEWAY, |it| it.is_known && it.port == 27_018)
        .await;
    walk.leave(heading).await;

    let heading = "Through somebody else's proxy";
    let asked = "CONNECT mongo.example.com:27017 HTTP/1.1";
    walk.reach(heading, "client", |it| it.name == asked).await;
    walk.leave(heading).await;
}
