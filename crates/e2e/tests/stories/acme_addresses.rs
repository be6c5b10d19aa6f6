//! Certificates whose names are addresses, of a real authority.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::eventually_within;
use myriad_e2e::{Answer, CertificateAuthority, Curl, World};

/// How long a certificate may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway for an address, which says hello.
const GATEWAY: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata:
  name: web
  namespace: shop
  annotations: {myriad.dev/issuer: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: PORT, name: https, protocol: HTTPS}
    tls: {mode: SIMPLE, credentialName: web-tls}
    hosts: ['ADDRESS']
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: ['ADDRESS']
  gateways: [web]
  http:
  - directResponse: {status: 200, body: {string: hello}}
";

/// Serves an address of this machine, written as somebody may write it.
async fn serve(
    ca: &CertificateAuthority,
    state: &Path,
    address: IpAddr,
    (written, challenge): (&str, &str),
) -> World {
    let at = |port| std::net::SocketAddr::new(address, port);
    let mut arguments = ca.arguments(state);
    arguments.retain(|it| !it.starts_with("--http"));
    arguments.extend([
        format!("--http={}", at(ca.http)),
        format!("--https={}", at(ca.https)),
        format!("--acme-challenge={challenge}"),
        // Who asks for an address names no host in the handshake.
        "--default-certificate=shop/web-tls".to_owned(),
    ]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let gateway = GATEWAY.replace("PORT", &ca.https.to_string());
    let gateway = gateway.replace("ADDRESS", written);
    World::serve_with(Authority::new(), &[("g.yaml", gateway)], &arguments).await
}

/// Asks an address over HTTPS, trusting what the authority issues, until it answers.
async fn answers(ca: &CertificateAuthority, address: IpAddr) -> Option<Answer> {
    let (root, place) = (
        ca.root().await,
        std::net::SocketAddr::new(address, ca.https),
    );
    let url = format!("https://{place}/");
    eventually_within(PATIENCE, async || {
        let answer = Curl::new(&url, &[], &root).ask().await;
        (answer.status == 200).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn an_address_of_either_version_is_proven_and_served_as_a_name_is() {
    let ca = CertificateAuthority::start();
    let mut issued = 0;
    for (address, written) in [("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1")] {
        let address: IpAddr = address.parse().expect("an address");
        for challenge in ["http-01", "tls-alpn-01"] {
            let state = ca.state().join(issued.to_string());
            let world = serve(&ca, &state, address, (written, challenge)).await;
            let answer = answers(&ca, address).await;
            let Some(answer) = answer else {
                panic!(
                    "{address} by {challenge}: {:?}\n{}",
                    world.findings().await,
                    ca.log()
                );
            };
            assert_eq!(answer.body, "hello", "{address} by {challenge}");
            issued += 1;
            assert_eq!(ca.issued(), issued, "{address} by {challenge}");
            world.stop().await;
        }
    }
}
