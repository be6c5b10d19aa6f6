//! Passwords that an Ingress asks for, alone and beside addresses.

use super::Pair;
use super::access::CLIENTS;

/// Users with the password `secret`, by hashes of every kind that both sides know.
const USERS: [(&str, &str); 9] = [
    (
        "a2y",
        "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
    ),
    (
        "a2b",
        "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
    ),
    ("apr", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
    ("md5", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
    (
        "s25",
        "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
    ),
    (
        "s51",
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZ\
         N.Pq.H91p5hVO1",
    ),
    ("sha", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
    ("pln", "{PLAIN}secret"),
    // The first line of a name counts.
    ("pln", "{PLAIN}other"),
];

/// The pairs, all of which have the same users.
pub(super) fn pairs() -> Vec<Pair> {
    let lines: String = USERS
        .iter()
        .map(|(name, hash)| format!("{name}:{hash}\n"))
        .collect();
    let (allow, deny) = (
        ("whitelist-source-range", "127.0.0.0/24"),
        ("denylist-source-range", "127.0.0.2"),
    );
    let any = ("satisfy", "any");
    let both = "deny 127.0.0.2; allow 127.0.0.0/24; deny all; \
                auth_basic \"\"; auth_basic_user_file FOLDER/users;";
    let either = "satisfy any; deny 127.0.0.2; allow 127.0.0.0/24; deny all; \
                  auth_basic \"\"; auth_basic_user_file FOLDER/users;";
    let unlisted = "satisfy any; deny 127.0.0.2; \
                    auth_basic \"\"; auth_basic_user_file FOLDER/users;";
    vec![
        passwords("file.test", &lines),
        realm("realm.test", &lines),
        beside("both.users.test", &[allow, deny], both, &lines),
        beside("either.users.test", &[allow, deny, any], either, &lines),
        beside("unlisted.users.test", &[deny, any], unlisted, &lines),
    ]
}

/// `auth-type: basic`.
fn passwords(host: &'static str, lines: &str) -> Pair {
    let asked = [
        "a2y", "a2b", "apr", "md5", "s25", "s51", "sha", "pln", "nobody", "",
    ];
    let asked = asked.into_iter().flat_map(|name| match name {
        "a2y" => ["a2y:secret", "a2y:Secret"],
        "a2b" => ["a2b:secret", "a2b:secret "],
        "apr" => ["apr:secret", "apr:"],
        "md5" => ["md5:secret", "md5:other"],
        "s25" => ["s25:secret", "s25:other"],
        "s51" => ["s51:secret", "s51:other"],
        "sha" => ["sha:secret", "sha:other"],
        "pln" => ["pln:secret", "pln:other"],
        "nobody" => ["nobody:secret", "nobody:"],
        _ => [":secret", ":"],
    });
    let mut requests: Vec<Vec<&str>> = asked.map(|given| vec!["--user", given]).collect();
    requests.push(vec![]);
    for field in [
        "Authorization: Bearer abc",
        "Authorization: Basic",
        "Authorization: Basic !!!!",
        "Authorization: Basic c2hh",
        // Without padding, and in another case.
        "Authorization: basic c2hhOnNlY3JldA",
        "Authorization: Basic c2hhOnNlY3JldA==",
    ] {
        requests.push(vec!["-H", field]);
    }
    Pair {
        host,
        annotations: vec![("auth-type", "basic"), ("auth-secret", "users")],
        objects: secret("users", lines),
        directives: "auth_basic \"\"; auth_basic_user_file FOLDER/users;",
        files: vec![("users", lines.to_owned())],
        requests,
        fields: vec!["www-authenticate"],
    }
}

/// The realm, and who has a password but may ask for nothing else.
fn realm(host: &'static str, lines: &str) -> Pair {
    Pair {
        annotations: vec![
            ("auth-type", "basic"),
            ("auth-secret", "default/users"),
            ("auth-secret-type", "auth-file"),
            ("auth-realm", "Authentication Required - foo"),
        ],
        directives: "auth_basic \"Authentication Required - foo\"; \
                     auth_basic_user_file FOLDER/users;",
        requests: vec![
            vec![],
            vec!["--user", "sha:secret", "-X", "POST", "-d", "a=b"],
            vec!["--user", "sha:wrong", "-X", "POST", "-d", "a=b"],
            vec!["--head"],
        ],
        objects: String::new(),
        ..passwords(host, lines)
    }
}

/// Passwords beside addresses.
fn beside(
    host: &'static str,
    annotations: &[(&'static str, &'static str)],
    directives: &'static str,
    lines: &str,
) -> Pair {
    let asked = passwords(host, lines);
    let given: [&[&str]; 3] = [&[], &["--user", "sha:secret"], &["--user", "sha:wrong"]];
    let requests = CLIENTS.into_iter().flat_map(|client| {
        let from = ["--interface", client];
        given.map(|given| [&from[..], given].concat())
    });
    Pair {
        annotations: [&asked.annotations[..], annotations].concat(),
        directives,
        requests: requests.collect(),
        objects: String::new(),
        ..asked
    }
}

fn secret(name: &str, lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{namespace: default, name: {name}}}\n\
         type: Opaque\nstringData:\n  auth: |\n{lines}"
    )
}
