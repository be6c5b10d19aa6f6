//! The Secret of a certificate: as it is written, and the facts that one tells.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::Secret;
use myriad_model::{is_demandable, on_demand_host};
use myriad_pki::acme::{HeldCertificate, IssuedChain, Order};
use serde_json::{Value, json};

/// The annotations of a Secret that say where it came from.
pub(super) const ISSUER: &str = "myriad.dev/issuer";
const DIRECTORY: &str = "myriad.dev/acme-directory";
const PLACED_AT: &str = "myriad.dev/acme-placed-at";

/// The most bytes of a directory that a Secret may name: of a URL, and of the name of its issuer.
const DIRECTORY_BYTES_MAX: usize = 4 << 10;

/// The annotation with the host of a certificate that was obtained on demand.
const ON_DEMAND: &str = "myriad.dev/on-demand";

/// The facts about the certificate that an issuer has provided in a Secret of a cluster; none where
/// somebody else has written it, or where there is none. Whoever may write there can say that
/// anything was ordered at any time, so that nobody is believed that.
pub(super) fn held_in(secret: &Secret) -> Option<HeldCertificate> {
    secret.meta.annotation(ISSUER)?;
    Some(HeldCertificate {
        placed_at: None,
        ..facts_of(secret)?
    })
}

/// The facts about the certificate in a Secret, if there is one; all are to be believed where this
/// process alone has written it.
pub(super) fn facts_of(secret: &Secret) -> Option<HeldCertificate> {
    let leaf = secret.tls.as_ref().ok()?.chain.first()?;
    let meta = &secret.meta;
    Some(HeldCertificate {
        directory: meta
            .annotation(DIRECTORY)
            .filter(|url| url.len() <= DIRECTORY_BYTES_MAX)
            .map(Box::from),
        placed_at: meta.annotation(PLACED_AT).and_then(|it| it.parse().ok()),
        ..HeldCertificate::of(leaf)?
    })
}

/// The host of a certificate that was obtained on demand, where a Secret says that it is one. It is
/// to be believed of this process alone.
pub(super) fn on_demand_in(secret: &Secret) -> Option<&str> {
    let host = secret.meta.annotation(ON_DEMAND)?;
    is_demandable(host).then_some(host)
}

/// The Secret of the certificate of an order, whole. One on demand bears the name of its host.
pub(super) fn written(order: &Order, issued: &IssuedChain) -> Value {
    let host = on_demand_host(&order.id);
    let named = order.id.split_once('/').unwrap_or(("", &order.id));
    let (namespace, name) = host.map_or(named, |host| ("", host));
    let mut written = json!({
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
    });
    if let Some(host) = host {
        written["metadata"]["annotations"][ON_DEMAND] = host.into();
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{Object, ObjectKind, Secret};
    use myriad_pki::acme::OrderStage;

    use super::{DIRECTORY, facts_of, held_in, written};
    use crate::acme::testing;

    fn secret(directory: &str) -> Arc<Secret> {
        let order = testing::order("shop/web", OrderStage::Placing);
        let mut value = written(&order, &testing::issued(&["a.example"]));
        value["metadata"]["annotations"][DIRECTORY] = directory.into();
        match Object::from_json(ObjectKind::Secret, &value.to_string()) {
            Ok(Object::Secret(secret)) => secret,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tenant_is_believed_neither_when_it_was_ordered_nor_a_directory_without_end() {
        let url = "https://ca.example/dir";
        let secret_of = secret(url);
        let (held, own) = (held_in(&secret_of), facts_of(&secret_of));
        assert_eq!(own.unwrap().placed_at, Some(5), "by whoever wrote it alone");
        let held = held.unwrap();
        assert_eq!(
            (held.placed_at, held.directory.as_deref()),
            (None, Some(url))
        );
        let long = secret(&format!("https://ca.example/{}", "x".repeat(200_000)));
        assert_eq!(held_in(&long).unwrap().directory, None);
    }
}
