//! The way of a newcomer through the pages, on nodes that run what they start.

use myriad_e2e::document::Document;

use crate::scene::Scene;

#[tokio::test]
async fn every_command_of_the_pages_does_what_it_says() {
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    for path in ["docs/kubernetes.md", "docs/mesh.md"] {
        if path.contains("mesh") {
            scene.definitions().await;
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
