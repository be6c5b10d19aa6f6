//! Orders and certificates for tests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_base::clock;
use myriad_pki::Authority;
use myriad_pki::acme::{IssuedChain, Order, OrderKey, OrderStage, check_chain};
use serde_json::json;

/// An order for `a.example`, which was placed long ago.
pub(super) fn order(id: &str, stage: OrderStage) -> Order {
    let text = json!({
        "id": id,
        "names": ["a.example"],
        "issuer": "default",
        "directory": "https://ca.example/dir",
        "stage": "proving",
        "failures": 0,
        "tried": 0,
        "not_before": 0,
        "placed_at": 5,
    });
    let order = Order::from_text(&text.to_string()).unwrap();
    Order { stage, ..order }
}

/// A certificate of these names that an authority has just issued; another one each time.
pub(super) fn issued(names: &[&str]) -> IssuedChain {
    let now = clock::unix_seconds();
    let authority = Authority::new("ca", now).unwrap();
    let wanted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = authority.issue(&wanted, now, Duration::from_secs(90 * 86_400));
    let leaf = leaf.unwrap();
    let der = STANDARD.encode(&leaf.chain[0]);
    let chain = format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
    let key = OrderKey::new(leaf.key.secret_der().to_vec());
    let names: Vec<Box<str>> = names.iter().map(|name| Box::from(*name)).collect();
    check_chain(&chain, &key, &names, now * 1_000).unwrap()
}
