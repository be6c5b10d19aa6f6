//! Access by the client's address, and headers that are put on answers.

use super::Pair;

/// Addresses that clients come from; all of them are this machine's.
pub(super) const CLIENTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.1.1"];

/// The pairs.
pub(super) fn pairs() -> Vec<Pair> {
    let fields = [("X-Frame-Options", "DENY"), ("X-Two", "a, b; c=\"d\"")];
    vec![
        pair("plain.test", &[], ""),
        pair(
            "denied.test",
            &[("denylist-source-range", "127.0.0.2")],
            "deny 127.0.0.2;",
        ),
        pair(
            "allowed.test",
            &[("whitelist-source-range", "127.0.0.0/24")],
            "allow 127.0.0.0/24; deny all;",
        ),
        // What is denied stays so where a wider network is admitted.
        pair(
            "both.test",
            &[
                ("whitelist-source-range", "127.0.0.0/24"),
                ("denylist-source-range", "10.0.0.0/8, 127.0.0.2/32"),
            ],
            "deny 10.0.0.0/8; deny 127.0.0.2/32; allow 127.0.0.0/24; deny all;",
        ),
        // Nobody is authenticated here, so that the address has to suffice.
        pair(
            "any.test",
            &[
                ("whitelist-source-range", "127.0.0.0/24"),
                ("denylist-source-range", "127.0.0.2"),
                ("satisfy", "any"),
            ],
            "satisfy any; deny 127.0.0.2; allow 127.0.0.0/24; deny all;",
        ),
        pair(
            "nobody.test",
            &[("denylist-source-range", "0.0.0.0/0")],
            "deny 0.0.0.0/0;",
        ),
        Pair {
            objects: fields_map("fields", &fields),
            fields: vec!["x-frame-options", "x-two"],
            ..pair(
                "fields.test",
                &[("custom-headers", "default/fields")],
                "add_header X-Frame-Options DENY; add_header X-Two 'a, b; c=\"d\"';",
            )
        },
    ]
}

/// A pair that is asked from each of the addresses.
fn pair(
    host: &'static str,
    annotations: &[(&'static str, &'static str)],
    directives: &'static str,
) -> Pair {
    let clients = CLIENTS.into_iter();
    Pair {
        host,
        annotations: annotations.to_vec(),
        objects: String::new(),
        directives,
        files: Vec::new(),
        requests: clients.map(|it| vec!["--interface", it]).collect(),
        fields: Vec::new(),
    }
}

/// A ConfigMap of fields.
fn fields_map(name: &str, fields: &[(&str, &str)]) -> String {
    let entries = fields.iter().map(|(name, value)| {
        // A JSON string is a YAML string.
        format!("  {name}: {}\n", serde_json::Value::from(*value))
    });
    let entries: String = entries.collect();
    let metadata = format!("metadata: {{namespace: default, name: {name}}}");
    format!("---\napiVersion: v1\nkind: ConfigMap\n{metadata}\ndata:\n{entries}")
}
