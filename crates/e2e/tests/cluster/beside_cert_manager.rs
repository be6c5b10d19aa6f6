//! cert-manager and Myriad in one cluster, each with certificates of its own, and an Ingress that
//! moves from one to the other and back, as `docs/certificates.md` has it.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_e2e::cluster::{Api, CertManager, Cluster, Reader};
use myriad_e2e::document::{Document, Step};
use myriad_e2e::world::{eventually_within, repository};
use myriad_e2e::{CertificateAuthority, Site};
use serde_json::Value;

use super::certificates::{PATIENCE, answers, answers_by, authority};
use super::issuers::{controller, define, issuer};

/// The objects by which cert-manager's documentation makes an authority out of nothing, with the
/// issuer for all namespaces that uses it.
const AUTHORITY: &str = "\
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata:
  name: selfsigned-issuer
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: my-selfsigned-ca
  namespace: NAMESPACE
spec:
  isCA: true
  commonName: my-selfsigned-ca
  secretName: root-secret
  privateKey:
    algorithm: ECDSA
    size: 256
  issuerRef:
    name: selfsigned-issuer
    kind: ClusterIssuer
    group: cert-manager.io
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata:
  name: ISSUER
spec:
  ca:
    secretName: root-secret
";

/// A certificate of its own, with its issuer, as the documentation has them.
const CERTIFICATE: &str = "\
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: my-ca-issuer
  namespace: NAMESPACE
spec:
  ca:
    secretName: root-secret
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: alone
  namespace: NAMESPACE
spec:
  secretName: alone-test
  dnsNames: [alone.test]
  issuerRef:
    name: my-ca-issuer
    kind: Issuer
    group: cert-manager.io
";

/// The authorities that prove names, with what each issues; and where they are asked.
struct Scene {
    cluster: Cluster,
    ca: CertificateAuthority,
    cert_manager: CertManager,
    api: Api,
    namespace: String,
    /// The issuer of cert-manager for all namespaces.
    issuer: &'static str,
}

impl Scene {
    /// Starts cert-manager with an authority of its own.
    async fn set(
        cluster: Cluster,
        ca: CertificateAuthority,
        namespace: String,
        issuer: &'static str,
    ) -> Scene {
        let cert_manager = cluster.cert_manager(&namespace).await;
        let scene = Scene {
            api: cluster.api().await,
            cluster,
            ca,
            cert_manager,
            namespace,
            issuer,
        };
        scene.cluster.apply(&scene.theirs()).await;
        define(&scene.cluster).await;
        scene
    }

    fn theirs(&self) -> String {
        AUTHORITY
            .replace("NAMESPACE", &self.namespace)
            .replace("ISSUER", self.issuer)
    }

    /// Takes away what is the cluster's.
    async fn end(&self) {
        self.cluster.delete(&self.theirs()).await;
    }

    /// A Secret; null while it is not there.
    async fn secret(&self, name: &str) -> Value {
        let namespace = &self.namespace;
        let only = format!("fieldSelector=metadata.name%3D{name}");
        let path = format!("/api/v1/namespaces/{namespace}/secrets?{only}");
        let list = self.api.get(&path).await;
        list["items"].get(0).cloned().unwrap_or_default()
    }

    /// The root of what cert-manager issues, as a file.
    async fn root(&self) -> PathBuf {
        let found = eventually_within(PATIENCE, async || {
            let secret = self.secret("root-secret").await;
            let root = STANDARD.decode(secret["data"]["tls.crt"].as_str()?).ok()?;
            String::from_utf8(root).ok()
        });
        let Some(root) = found.await else {
            panic!("no authority: {}", self.cert_manager.log())
        };
        let path = self.cluster.path("cert-manager.pem");
        std::fs::write(&path, root).expect("a file");
        path
    }

    /// Waits until a host is served with a certificate of cert-manager's.
    async fn is_theirs(&self, host: &str) {
        let served = answers_by(&self.cluster, self.root().await, host).await;
        assert!(served.is_some(), "{host}: {}", self.cert_manager.log());
    }

    /// The versions of the Secrets of both.
    async fn versions(&self) -> Vec<Value> {
        let mut versions = Vec::new();
        for name in ["theirs-test", "alone-test", "ours-test"] {
            let secret = self.secret(name).await;
            versions.push(secret["metadata"]["resourceVersion"].clone());
        }
        versions
    }

    /// Takes a Secret of each away: each provides its own again, and sees nothing in the other's.
    async fn provided_again(&self) {
        let before = self.versions().await;
        let within = format!("--namespace={}", self.namespace);
        for name in ["theirs-test", "ours-test"] {
            let line = ["delete", "secret", name, &within];
            self.cluster.kubectl(&line).await;
        }
        let both = eventually_within(PATIENCE, async || {
            let now = self.versions().await;
            let is_new = |at: usize| !now[at].is_null() && now[at] != before[at];
            (is_new(0) && is_new(2)).then_some(now)
        });
        let now = both.await.expect("both are provided again");
        assert_eq!(now[1], before[1], "nobody has touched it");
    }

    /// Waits until a host is served with a certificate that Myriad has obtained.
    async fn is_ours(&self, host: &str) {
        let served = answers(&self.cluster, &self.ca, host).await;
        assert!(served.is_some(), "{host}: {}", self.ca.log());
    }
}

/// The annotations of an object whose names begin so.
fn annotations<'a>(object: &'a Value, prefix: &str) -> Vec<&'a String> {
    let annotations = object["metadata"]["annotations"].as_object();
    let names = annotations.into_iter().flat_map(|it| it.keys());
    names.filter(|name| name.starts_with(prefix)).collect()
}

#[tokio::test]
async fn both_provide_certificates_and_neither_touches_what_is_the_others() {
    const HOSTS: [&str; 3] = ["theirs.test", "alone.test", "ours.test"];
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let ca = authority(&cluster, &HOSTS.map(str::to_owned));
    let tenant = cluster.tenant();
    let scene = Scene::set(cluster, ca, tenant, "corporate").await;
    let (cluster, ca) = (&scene.cluster, &scene.ca);
    // One of ours has the same name, which a hint would mean if it were understood.
    let ours = issuer(cluster, ca, "ClusterIssuer", "name: corporate");
    cluster.apply(&ours).await;
    let controller = controller(cluster, ca).start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;

    let site = |host: &str| {
        let site = Site::new(host).namespace(&scene.namespace);
        site.class(&cluster.class()).to(cluster.endpoint())
    };
    // The Secrets of cert-manager's are not there yet, nor does anything but the Ingress name them.
    let without_secret = |site: Site| {
        let mut documents = site
            .tls(&cluster.authority.issue(&["any.test"]))
            .documents();
        documents.truncate(3);
        documents.join("---\n")
    };
    let hinted = site("theirs.test").annotation("cert-manager.io/cluster-issuer", "corporate");
    cluster.apply(&without_secret(hinted)).await;
    cluster.apply(&without_secret(site("alone.test"))).await;
    let alone = CERTIFICATE.replace("NAMESPACE", &scene.namespace);
    cluster.apply(&alone).await;
    let own = site("ours.test").issued_by("corporate").yaml();
    cluster.apply(&own).await;
    scene.is_theirs("theirs.test").await;
    scene.is_theirs("alone.test").await;
    scene.is_ours("ours.test").await;
    assert_eq!(ca.issued(), 1, "the hint is cert-manager's: {}", ca.log());
    for name in ["theirs-test", "alone-test", "root-secret"] {
        let secret = scene.secret(name).await;
        assert_eq!(annotations(&secret, "myriad.dev/"), [""; 0], "{secret}");
        assert!(!annotations(&secret, "cert-manager.io/").is_empty());
    }
    let secret = scene.secret("ours-test").await;
    assert_eq!(annotations(&secret, "cert-manager.io/"), [""; 0]);

    scene.provided_again().await;
    scene.is_theirs("theirs.test").await;
    scene.is_ours("ours.test").await;
    assert_eq!(ca.issued(), 2, "{}", ca.log());
    cluster.delete(&ours).await;
    scene.end().await;
}

/// The host of the document's Ingress.
const HOST: &str = "store.example.com";

/// The Ingress of the document, with a certificate of cert-manager's.
fn store(cluster: &Cluster) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  \
         namespace: store\n  annotations:\n    cert-manager.io/cluster-issuer: letsencrypt\n    \
         myriad.dev/respond: hello\nspec:\n  ingressClassName: {}\n  \
         tls: [{{hosts: [{HOST}], secretName: web-tls}}]\n  rules:\n  - host: {HOST}\n    \
         http:\n      paths:\n      - path: /\n        pathType: Prefix\n        \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}\n",
        cluster.class()
    )
}

/// The example of an issuer, where a reader has another authority, with its URL and its roots, and
/// controllers that go by another name than the usual one.
fn example(cluster: &Cluster, ca: &CertificateAuthority) -> String {
    let text = std::fs::read_to_string(repository(EXAMPLE)).expect("the example");
    let url = format!("{{url: '{}',", ca.directory());
    let changed = text.replace("{url: letsencrypt,", &url);
    assert_ne!(changed, text, "it names an authority");
    let root = std::fs::read_to_string(ca.directory_root()).expect("a file");
    let controller = cluster.controller_name();
    // A JSON string is a YAML string.
    let root = Value::from(root);
    format!("{changed}    ca: {{pem: {root}}}\n  controller: {controller}\n")
}

const EXAMPLE: &str = "examples/certificates/clusterissuer.yaml";

/// Runs the commands of a step, which have to do what the document says.
async fn follow(scene: &Scene, reader: &Reader, step: &Step) {
    let commands = step.commands.replace(EXAMPLE, "clusterissuer.yaml");
    let output = reader.run(&format!("set -eu\n{commands}")).await;
    if !output.status.success() {
        panic!("{commands}{output:?}\n{}", scene.cert_manager.log());
    }
    step.check(&String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn an_ingress_moves_from_cert_manager_and_back_by_the_commands_of_the_document() {
    let cluster = Cluster::join().await;
    let ca = authority(&cluster, &[HOST.to_owned()]);
    cluster.kubectl(&["create", "namespace", "store"]).await;
    let scene = Scene::set(cluster, ca, "store".to_owned(), "letsencrypt").await;
    let (cluster, ca) = (&scene.cluster, &scene.ca);
    let controller = controller(cluster, ca).start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    cluster.apply(&store(cluster)).await;
    scene.is_theirs(HOST).await;

    let document = Document::read("docs/certificates.md");
    let reader = cluster.reader();
    reader.keep("clusterissuer.yaml", &example(cluster, ca));
    for step in document.below("Issuers as objects") {
        follow(&scene, &reader, step).await;
    }
    let steps = document.below("From cert-manager, and back");
    let [take, hand_over, renew, back] = steps[..] else {
        panic!("{steps:?}")
    };
    // It is served all the while, with the certificate that there is.
    let anybody = ["--insecure", "--rate", "40/s"];
    let anew = ["--header", "Connection: close"];
    let url = format!("https://{HOST}:8443/?[1-100000]");
    let mut visits = cluster.poll(&url, &[&anybody[..], &anew].concat());
    visits.all_well(5).await;
    follow(&scene, &reader, take).await;
    follow(&scene, &reader, hand_over).await;
    visits.all_well(20).await;
    drop(visits);
    scene.is_theirs(HOST).await;
    assert_eq!(ca.issued(), 0, "it is renewed in its time: {}", ca.log());

    follow(&scene, &reader, renew).await;
    scene.is_ours(HOST).await;
    assert_eq!(ca.issued(), 1, "{}", ca.log());
    let secret = scene.secret("web-tls").await;
    assert_eq!(annotations(&secret, "cert-manager.io/"), [""; 0]);

    let mut visits = cluster.poll(&url, &[&anybody[..], &anew].concat());
    visits.all_well(5).await;
    follow(&scene, &reader, back).await;
    scene.is_theirs(HOST).await;
    visits.all_well(10).await;
    assert_eq!(ca.issued(), 1, "{}", ca.log());
    let secret = scene.secret("web-tls").await;
    assert_eq!(annotations(&secret, "myriad.dev/issuer"), [""; 0]);

    scene.end().await;
    let line = ["delete", "clusterissuers.myriad.dev", "letsencrypt"];
    cluster.kubectl(&line).await;
    let line = ["delete", "namespace", "store", "--wait=false"];
    cluster.kubectl(&line).await;
}
