//! The Secret of a certificate: as it is written, and the facts that one tells.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::Secret;
use myriad_pki::acme::{HeldCertificate, IssuedChain, Order};
use serde_json::{Value, json};

/// The annotations of a Secret that say where it came from.
pub(super) const ISSUER: &str = "myriad.dev/issuer";
const DIRECTORY: &str = "myriad.dev/acme-directory";
const PLACED_AT: &str = "myriad.dev/acme-placed-at";

/// The facts about the certificate that an issuer has provided in a Secret; none where somebody
/// else has written it, or where there is none.
pub(super) fn held_in(secret: &Secret) -> Option<HeldCertificate> {
    secret.meta.annotation(ISSUER)?;
    facts_of(secret)
}

/// The facts about the certificate in a Secret, if there is one.
pub(super) fn facts_of(secret: &Secret) -> Option<HeldCertificate> {
    let leaf = secret.tls.as_ref().ok()?.chain.first()?;
    let meta = &secret.meta;
    Some(HeldCertificate {
        directory: meta.annotation(DIRECTORY).map(Box::from),
        placed_at: meta.annotation(PLACED_AT).and_then(|it| it.parse().ok()),
        ..HeldCertificate::of(leaf)?
    })
}

/// The Secret of the certificate of an order, whole.
pub(super) fn written(order: &Order, issued: &IssuedChain) -> Value {
    let (namespace, name) = order.id.split_once('/').unwrap_or(("", &order.id));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": {
                ISSUER: order.issuer,
                DIRECTORY: order.directory,
                PLACED_AT: order.placed_at.to_string(),
            },
        },
        "data": {
            "tls.crt": STANDARD.encode(&issued.chain_pem),
            "tls.key": STANDARD.encode(issued.expose_key_pem()),
        },
    })
}
