//! cert-manager at work beside Myriad: its objects in the order in which it writes them, from an
//! Ingress without a certificate to one that is renewed under traffic.

use myriad_e2e::Site;
use myriad_e2e::authority::Pair;
use myriad_e2e::cluster::{Api, Cluster};
use myriad_e2e::world::eventually;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const HOST: &str = "shop.test";
const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ";
/// The text that the authority wants to read at the token's path.
const KEY: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ.nP1qzpXGymHBrUEepNY9HCsQk7K8";
/// A client that sees who it talks to, and does not mind.
const PACE: [&str; 3] = ["--insecure", "--rate", "40/s"];
const NEW_CONNECTIONS: [&str; 2] = ["--header", "Connection: close"];

#[tokio::test]
async fn a_certificate_is_issued_and_renewed_while_people_ask() {
    let cluster = Cluster::join().await;
    let _played = cluster.without_cert_manager().await;
    let _endpoint = cluster.backend("shop");
    let solver = std::net::SocketAddr::new(cluster.endpoint().ip(), 8089);
    let _solver = cluster.endpoint_at(solver, KEY);
    let _controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;

    let plain = format!("http://{HOST}:8080/");
    wait_for_a_certificate(&cluster, &api, &plain).await;
    // With its annotation, cert-manager first puts a certificate of nobody's authority there.
    api.apply(&private_key(&cluster)).await;
    api.apply(&secret(&cluster, &temporary())).await;
    cluster
        .eventually(HOST, |answer| answer.error.contains("exit code Some(60)"))
        .await;

    // The challenge is answered without TLS, though the host has it.
    let solver_objects = solver_objects(&cluster, solver);
    api.apply(&solver_objects).await;
    let challenge = format!("http://{HOST}:8080/.well-known/acme-challenge/{TOKEN}");
    let answered = eventually(async || {
        // Until the solver is known, the site answers here too.
        let answer = cluster.ask(&challenge).await;
        answer.body.contains(KEY).then_some(())
    });
    assert!(answered.await.is_some(), "the challenge is answered");
    assert_eq!(cluster.ask(&plain).await.status, 308, "all else redirects");

    // The certificate comes, in place of the other, and nobody notices.
    let mut challenges = cluster.watch(&challenge);
    let mut visits = cluster.poll(&url(), &[&PACE[..], &NEW_CONNECTIONS].concat());
    let mut stays = cluster.poll(&url(), &PACE);
    visits.all_well(10).await;
    let issued = cluster.authority.issue(&[HOST]);
    api.apply(&secret(&cluster, &issued)).await;
    cluster
        .eventually(HOST, |answer| answer.status == 200)
        .await;
    challenges.all_well(10).await;

    // The solver goes, and with it only what it answered. Its Service may go before its Ingress,
    // and until then there is nobody behind the path.
    api.delete(&solver_objects).await;
    let ended = eventually(async || {
        let answer = cluster.ask(&challenge).await;
        (answer.status != 503 && !answer.body.contains(KEY)).then_some(answer)
    });
    let answer = ended.await.expect("the challenge ends");
    assert!(answer.body.contains("shop"), "the site has it: {answer:?}");

    // Renewed, for those who see only certificates that they trust.
    let mut trusting = cluster.watch(&format!("https://{HOST}:8443/"));
    trusting.all_well(5).await;
    api.apply(&secret(&cluster, &cluster.authority.issue(&[HOST])))
        .await;
    trusting.all_well(20).await;
    visits.all_well(10).await;
    stays.all_well(10).await;
}

/// The Ingress names a Secret that does not exist: nothing is shown, and no other's.
async fn wait_for_a_certificate(cluster: &Cluster, api: &Api, plain: &str) {
    api.apply(&shop(cluster)).await;
    let redirected = eventually(async || {
        let answer = cluster.ask(plain).await;
        (answer.status == 308).then_some(answer)
    });
    let answer = redirected.await.expect("people are sent to HTTPS");
    let location = answer.header("location");
    assert_eq!(location, Some("https://shop.test/"), "{answer:?}");
    cluster.eventually(HOST, crate::is_refused).await;
}

fn url() -> String {
    format!("https://{HOST}:8443/?[1-100000]")
}

/// The site as its owner writes it, without a Secret.
fn shop(cluster: &Cluster) -> String {
    let site = Site::new(HOST)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .annotation("cert-manager.io/cluster-issuer", "letsencrypt")
        .annotation("cert-manager.io/issue-temporary-certificate", "true")
        .to(cluster.endpoint())
        .tls(&cluster.authority.issue(&[HOST]));
    let mut documents = site.documents();
    documents.truncate(3);
    documents.join("---\n")
}

/// The Secret as cert-manager writes it.
fn secret(cluster: &Cluster, pair: &Pair) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop-test\n  namespace: {}\n  \
         labels:\n    controller.cert-manager.io/fao: 'true'\n  annotations:\n    \
         cert-manager.io/certificate-name: shop-test\n    \
         cert-manager.io/issuer-kind: ClusterIssuer\n\
         type: kubernetes.io/tls\ndata:\n  tls.crt: {}\n  tls.key: {}\n",
        cluster.tenant(),
        STANDARD.encode(&pair.certificate),
        STANDARD.encode(&pair.key),
    )
}

/// A certificate that nobody trusts: it is its own authority.
fn temporary() -> Pair {
    let issued = rcgen::generate_simple_self_signed([HOST.to_owned()]).expect("a certificate");
    Pair {
        certificate: issued.cert.pem(),
        key: issued.signing_key.serialize_pem(),
    }
}

/// The key of the certificate to come, which is not for gateways.
fn private_key(cluster: &Cluster) -> String {
    let pair = cluster.authority.issue(&[HOST]);
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop-test-x7k2p\n  namespace: {}\n  \
         labels:\n    cert-manager.io/next-private-key: 'true'\n\
         type: Opaque\ndata:\n  tls.key: {}\n",
        cluster.tenant(),
        STANDARD.encode(&pair.key),
    )
}

/// The objects that answer a challenge: a Service, its endpoint, and an Ingress on the same host.
fn solver_objects(cluster: &Cluster, solver: std::net::SocketAddr) -> String {
    let (namespace, class) = (cluster.tenant(), cluster.class());
    let labels = "  labels:\n    acme.cert-manager.io/http-domain: '1187532174'\n    \
                  acme.cert-manager.io/http-token: '1194233041'\n    \
                  acme.cert-manager.io/http01-solver: 'true'\n";
    let name = "cm-acme-http-solver-8xj4d";
    let (address, port) = (solver.ip(), solver.port());
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         {labels}  annotations:\n    auth.istio.io/8089: NONE\n\
         spec:\n  type: NodePort\n  ports:\n  - {{name: http, port: {port}}}\n\
         ---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-abcde\n  \
         namespace: {namespace}\n  labels:\n    kubernetes.io/service-name: {name}\n\
         addressType: IPv4\nendpoints:\n- addresses: ['{address}']\n\
         ports:\n- {{name: http, port: {port}}}\n\
         ---\n\
         apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  \
         name: cm-acme-http-solver-kq7zn\n  namespace: {namespace}\n{labels}  annotations:\n    \
         nginx.ingress.kubernetes.io/whitelist-source-range: 0.0.0.0/0,::/0\n\
         spec:\n  ingressClassName: {class}\n  rules:\n  - host: {HOST}\n    http:\n      \
         paths:\n      - path: /.well-known/acme-challenge/{TOKEN}\n        \
         pathType: ImplementationSpecific\n        backend: {{\
         service: {{name: {name}, port: {{number: {port}}}}}}}\n"
    )
}
