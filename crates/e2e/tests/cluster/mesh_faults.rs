//! Faults between workloads of a mesh: each has an answer of its own, and leaves the neighbours
//! alone.

use myriad_e2e::cluster::{Cluster, Mesh, Workload};
use myriad_e2e::world::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::istio::installed;

/// The reaction of an endpoint to a connection once it has been asked for something.
#[derive(Clone, Copy)]
enum Way {
    /// It answers as the standard says, and waits for more.
    Answer,
    /// It says what no client of HTTP knows.
    Gibberish,
    /// It gives up without a word.
    Reset,
}

/// The ports of the Service and of the workload behind it, and what is declared of each.
const PORTS: [(u16, &str, Way); 4] = [
    (80, "http", Way::Answer),
    (81, "http-odd", Way::Gibberish),
    (82, "http-reset", Way::Reset),
    (83, "tcp-plain", Way::Answer),
];

const NETWORKING: &str = "networking.istio.io/v1";

/// A workload that offers all of them as the Service `cart`, and one that asks.
struct Story {
    mesh: Mesh,
    cart: Workload,
    web: Workload,
    /// The address of the Service.
    address: String,
}

impl Story {
    async fn new() -> Story {
        installed().await;
        let mesh = Mesh::start(Cluster::join().await, |launch| launch).await;
        let ports = PORTS.map(|(port, name, _)| (name, port, port));
        let address = mesh.expose("cart", &ports).await;
        let cart = mesh.workload(0, "cart").await;
        for (port, _, way) in PORTS {
            tokio::spawn(serve(cart.pod.listen(port), way));
        }
        let web = mesh.workload(1, "web").await;
        let story = Story {
            mesh,
            cart,
            web,
            address,
        };
        // What other stories say of these ports is not for this one.
        story
            .apply("Sidecar", NETWORKING, "{egress: [{hosts: [\"./*\"]}]}")
            .await;
        story
    }

    /// Asks until the answer is this.
    async fn gets(&self, port: u16, expected: &str) {
        let url = format!("http://{}:{port}/", self.address);
        let host = format!("cart:{port}");
        self.web.gets(&host, &url, expected).await;
    }

    async fn apply(&self, kind: &str, version: &str, spec: &str) {
        let tenant = self.mesh.cluster.tenant();
        let object = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: own, namespace: {tenant}}}\n\
             spec: {spec}\n"
        );
        self.mesh.cluster.apply(&object).await;
    }
}

async fn serve(listener: TcpListener, way: Way) {
    while let Ok((tcp, _)) = listener.accept().await {
        tokio::spawn(talk(tcp, way));
    }
}

async fn talk(mut tcp: TcpStream, way: Way) -> std::io::Result<()> {
    let mut bytes = [0; 4_096];
    while tcp.read(&mut bytes).await? > 0 {
        match way {
            Way::Answer => {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nthe-cart";
                tcp.write_all(answer).await?;
            }
            Way::Gibberish => return tcp.write_all(b"+OK ready\r\n").await,
            // What is closed with no time to linger is reset.
            Way::Reset => return tcp.set_zero_linger(),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_workload_that_speaks_otherwise_than_declared_is_the_only_one_that_suffers() {
    let story = Story::new().await;
    story.gets(80, "the-cart 200").await;
    // One that answers otherwise, and one that gives up.
    story.gets(81, " 502").await;
    story.gets(82, " 502").await;
    // What is declared as bytes may be anything.
    story.gets(83, "the-cart 200").await;
    // A client that says what is no request is told so.
    let raw = format!(
        "exec 3<>/dev/tcp/{}/80 && printf 'QUIT\\r\\n\\r\\n' >&3 && timeout 10 cat <&3",
        story.address
    );
    let output = story.web.pod.run(&["bash", "-c", &raw]).await;
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(
        answer.starts_with("HTTP/1.1 400"),
        "{output:?}\n{}",
        story.web.proxy.log()
    );
    story.gets(80, "the-cart 200").await;
}

#[tokio::test]
async fn a_peer_that_is_gone_without_a_word_is_given_up_in_time_and_found_again() {
    let story = Story::new().await;
    let route = "{hosts: [cart], http: [{timeout: 1s, route: [{destination: {host: cart, \
                 port: {number: 80}}}]}]}";
    story.apply("VirtualService", NETWORKING, route).await;
    story.gets(80, "the-cart 200").await;
    // The connection between the proxies stays open on this side, and leads nowhere.
    story.cart.pod.connect(false).await;
    story.gets(80, " 504").await;
    story.cart.pod.connect(true).await;
    story.gets(80, "the-cart 200").await;
}

#[tokio::test]
async fn what_a_sidecar_hides_is_out_of_reach_and_says_so() {
    let story = Story::new().await;
    story.gets(80, "the-cart 200").await;
    let scope = "{egress: [{hosts: [\"other/*\"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}";
    story.apply("Sidecar", NETWORKING, scope).await;
    story.gets(80, "not in the mesh\n 502").await;
    story.gets(83, "not in the mesh\n 502").await;
    let tenant = story.mesh.cluster.tenant();
    let scope = format!(
        "{{egress: [{{hosts: [\"./cart.{tenant}.svc.cluster.local\"]}}], \
         outboundTrafficPolicy: {{mode: REGISTRY_ONLY}}}}"
    );
    story.apply("Sidecar", NETWORKING, &scope).await;
    story.gets(80, "the-cart 200").await;
    story.gets(83, "the-cart 200").await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_translated_lets_nobody_in_and_is_told() {
    let story = Story::new().await;
    let odd = "{selector: {matchLabels: {app: cart}}, rules: [{when: [{key: \
               \"experimental.envoy.filters.network.mysql_proxy[db]\", values: [x]}]}]}";
    story
        .apply("AuthorizationPolicy", "security.istio.io/v1", odd)
        .await;
    story.gets(80, " 403").await;
    let tenant = story.mesh.cluster.tenant();
    let line = [
        "get",
        "events",
        "--namespace",
        &tenant,
        "--field-selector=involvedObject.kind=AuthorizationPolicy",
        "--output=jsonpath={.items[*].message}",
    ];
    let mut last = String::new();
    let told = eventually(async || {
        last = story.mesh.cluster.kubectl(&line).await;
        last.contains("when[0].key: cannot be evaluated")
            .then_some(())
    });
    assert!(told.await.is_some(), "{last}");
    // Whoever is not guarded by it is not concerned.
    let app = story.web.pod.listen(80);
    tokio::spawn(serve(app, Way::Answer));
    let url = format!("http://{}/", story.web.pod.address());
    let answer = story.mesh.cluster.curl(&url, &[]).ask().await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
