use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

const SMALL: Setup = Setup {
    workspaces: 2,
    domains: 1,
    paths: 3,
};

/// The committed sample: what `generate istio` writes for these numbers.
const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/istio-at-scale/sample"
);

fn endpoint() -> SocketAddr {
    "127.0.0.1:9080".parse().unwrap()
}

/// All files below a folder, by their path in it; certificates and keys differ each time.
fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for folder in std::fs::read_dir(root).unwrap() {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(|line| match line.split_once(": LS0t") {
                Some((key, _)) => key,
                None => line,
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            all.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
    all
}

#[test]
fn the_committed_sample_is_what_is_generated() {
    let fresh = tempfile::tempdir().unwrap();
    let all = SMALL.make().unwrap();
    SMALL.write(&all, endpoint(), fresh.path()).unwrap();
    assert_eq!(files(Path::new(SAMPLE)), files(fresh.path()));
}

#[test]
fn every_path_of_a_domain_is_a_rule_with_labels_and_a_rewrite() {
    let all = SMALL.make().unwrap();
    let text = documents::domain(&all[1], 3, false);
    let routes = text.split("  http:\n").nth(1).unwrap();
    assert_eq!(routes.matches("exact: /path-").count(), 3);
    assert_eq!(routes.matches("istio: ingressgateway").count(), 3);
    assert_eq!(routes.matches("uri: /\n").count(), 3);
    assert_eq!(routes.matches("application.workspace-1.svc").count(), 3);
    assert!(text.contains("- d0.w1.scale.test"), "{text}");
}

#[test]
fn envoy_has_a_chain_for_each_domain_and_a_route_for_each_path() {
    let all = SMALL.make().unwrap();
    let listen = "127.0.0.1:8444".parse().unwrap();
    let config = bootstrap(&SMALL, &all, listen, endpoint());
    let resources = &config["static_resources"];
    assert_eq!(resources["clusters"].as_array().unwrap().len(), 2);
    let chains = resources["listeners"][0]["filter_chains"].as_array();
    let chains = chains.unwrap();
    assert_eq!(chains.len(), 2);
    for (chain, served) in chains.iter().zip(&all) {
        let host = served.domain.host();
        assert_eq!(chain["filter_chain_match"]["server_names"][0], host);
        let tls = &chain["transport_socket"]["typed_config"]["common_tls_context"];
        let certificate = &tls["tls_certificates"][0]["certificate_chain"]["inline_string"];
        assert_eq!(certificate, &Value::from(served.credential.chain.clone()));
        let manager = &chain["filters"][0]["typed_config"];
        let routes = &manager["route_config"]["virtual_hosts"][0]["routes"];
        for (number, route) in routes.as_array().unwrap().iter().enumerate() {
            assert_eq!(route["match"]["path"], format!("/path-{number}"));
            assert_eq!(route["route"]["prefix_rewrite"], "/");
        }
        assert_eq!(routes.as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_setup_without_a_route_is_refused() {
    for setup in [
        Setup {
            workspaces: 0,
            ..SMALL
        },
        Setup {
            domains: 0,
            ..SMALL
        },
        Setup { paths: 0, ..SMALL },
    ] {
        assert!(setup.make().is_err(), "{setup:?}");
    }
}
