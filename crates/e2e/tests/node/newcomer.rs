//! The way of a newcomer through the pages, on nodes that run what they start.

use myriad_e2e::document::Document;

use crate::scene::Scene;

#[tokio::test]
async fn every_command_of_the_pages_does_what_it_says() {
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let definitions = std::env::var("MYRIAD_ISTIO_DEFINITIONS")
        .expect("MYRIAD_ISTIO_DEFINITIONS is a file; `cargo xtask test --stage node` sets it");
    for path in ["docs/kubernetes.md", "docs/mesh.md"] {
        if path.contains("mesh") {
            let file = format!("--filename={definitions}");
            let line = ["apply", "--server-side", &file];
            cluster.kubectl(&line).await;
            let line = [
                "wait",
                "--for=condition=Established",
                "--timeout=60s",
                &file,
            ];
            cluster.kubectl(&line).await;
        }
        let document = Document::read(path);
        assert!(document.steps().len() > 4, "{path} has commands");
        let output = cluster.reader().follow(&document, "").await;
        if !output.status.success() {
            for namespace in ["myriad", "shop"] {
                eprintln!("{}", cluster.told_of_pods(namespace).await);
            }
        }
        document.check(&output);
    }
}
