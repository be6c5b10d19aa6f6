//! The way of a newcomer through `docs/kubernetes.md` and `docs/mesh.md`: every command in them, in
//! their order.

use myriad_e2e::cluster::{Cluster, Kubelet};
use myriad_e2e::document::Document;
use myriad_e2e::world::repository;

use super::injection::WEBHOOKS;
use super::istio::installed;

/// A script that runs a command in a container, by the network that its pod has, if it has one of
/// its own.
const EXEC: &str = r#"kubectl() {
  [ "$1" = exec ] || { command kubectl "$@"; return; }
  owner=${2#deployment/} namespace=$4
  shift 5
  pod=$(command kubectl get pods --namespace "$namespace" --selector "app=$owner" \
    --output=jsonpath='{.items[0].metadata.name}')
  held=../$namespace.$pod.pid
  if [ -f "$held" ]; then enter="nsenter --target $(cat "$held") --net"; else enter=; fi
  $enter unshare --mount sh -c 'mount --bind ../hosts /etc/hosts && exec "$@"' exec \
    setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
"#;

#[tokio::test]
async fn every_command_of_the_documents_does_what_they_say() {
    installed().await;
    let _alone = WEBHOOKS.lock().await;
    let cluster = Cluster::join().await;
    let api = cluster.api().await;
    // Others may have looked at the manifests before.
    let manifests = repository("deploy/manifests/myriad.yaml");
    let manifests = format!("--filename={}", manifests.display());
    let gone = ["delete", "--ignore-not-found", "--namespace=myriad"];
    cluster.kubectl(&[&gone[..], &[&manifests]].concat()).await;
    let gone = ["delete", "--ignore-not-found", "namespace", "myriad"];
    cluster.kubectl(&gone).await;

    let reader = cluster.reader();
    // It outlives what may fail below, for the sake of the logs of its pods.
    let kubelet = Kubelet::new(&cluster, &api, &["myriad", "shop", "outside"]);
    let mut kubelet = std::pin::pin!(kubelet.run());
    for path in ["docs/kubernetes.md", "docs/mesh.md"] {
        let document = Document::read(path);
        assert!(document.steps().len() > 4, "{path} has commands");
        let output = tokio::select! {
            output = reader.follow(&document, EXEC) => output,
            () = &mut kubelet => unreachable!("it runs on"),
        };
        document.check(&output);
    }
}
