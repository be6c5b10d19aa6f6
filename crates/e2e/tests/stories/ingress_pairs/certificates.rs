//! Certificates that clients are asked for, beside an nginx that asks as ingress-nginx has it ask:
//! both admit the same, and tell the endpoint the same.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::istio::free_port;
use myriad_e2e::{Answer, Backend, Site, World};

use super::{NGINX, Nginx};

/// A host, the annotations of its Ingress behind `auth-tls-`, and the directives of its server and
/// of its location that ingress-nginx writes for them.
struct Case(
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

const SECRET: (&str, &str) = ("secret", "default/ca");

const CASES: [Case; 7] = [
    Case("open.test", &[], "", ""),
    Case("on.test", &[SECRET], "ssl_verify_client on;", ""),
    Case(
        "optional.test",
        &[SECRET, ("verify-client", "optional")],
        "ssl_verify_client optional;",
        "",
    ),
    Case(
        "any.test",
        &[SECRET, ("verify-client", "optional_no_ca")],
        "ssl_verify_client optional_no_ca;",
        "",
    ),
    Case(
        "told.test",
        &[SECRET, ("pass-certificate-to-upstream", "true")],
        "ssl_verify_client on;",
        "proxy_set_header ssl-client-cert $ssl_client_escaped_cert;",
    ),
    Case(
        "named.test",
        &[SECRET, ("match-cn", "CN=(story client|x)")],
        "ssl_verify_client on;",
        "if ($ssl_client_s_dn !~ \"CN=(story client|x)\") { return 403; }",
    ),
    Case(
        "page.test",
        &[
            SECRET,
            ("match-cn", "CN=nobody"),
            ("error-page", "https://help.test/page"),
        ],
        "ssl_verify_client on; error_page 495 496 = https://help.test/page;",
        "if ($ssl_client_s_dn !~ \"CN=nobody\") { return 403; }",
    ),
];

/// The fields that an endpoint is told.
const FIELDS: [&str; 4] = [
    "ssl-client-verify",
    "ssl-client-subject-dn",
    "ssl-client-issuer-dn",
    "ssl-client-cert",
];

fn server(Case(host, _, of_server, of_location): &Case, address: SocketAddr) -> String {
    let (asks, tells) = match *of_server {
        "" => ("", ""),
        _ => (
            "ssl_client_certificate FOLDER/ca.crt; ssl_verify_depth 1;",
            "proxy_set_header ssl-client-verify $ssl_client_verify; \
             proxy_set_header ssl-client-subject-dn $ssl_client_s_dn; \
             proxy_set_header ssl-client-issuer-dn $ssl_client_i_dn;",
        ),
    };
    format!(
        "server {{ listen {address} ssl; server_name {host}; \
         ssl_certificate FOLDER/own.crt; ssl_certificate_key FOLDER/own.key; \
         {asks} {of_server} location / {{ {of_location} {tells} proxy_set_header Host $host; \
         proxy_pass http://BACKEND; }} }}\n"
    )
}

/// Status, place and what the endpoint was told, without the reason for which a certificate was not
/// verified: each has its own words for that.
fn told(answer: &Answer) -> (u16, Option<&str>, Vec<String>) {
    let fields = match answer.status {
        200 => {
            let told = answer.told();
            let of = |name: &&str| told["headers"][*name].as_str().unwrap_or("-").to_owned();
            let mut fields: Vec<String> = FIELDS.iter().map(of).collect();
            let word = fields[0].split(':').next().unwrap_or_default().to_owned();
            fields[0] = word;
            fields
        }
        _ => Vec::new(),
    };
    (answer.status, answer.header("location"), fields)
}

/// The Secret that hosts verify clients by.
fn secret(root: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: default}}\ntype: Opaque\n\
         data: {{ca.crt: {}}}\n",
        STANDARD.encode(root)
    )
}

/// A client's certificate that no authority has signed.
fn self_signed() -> Pair {
    let made = rcgen::generate_simple_self_signed(["client".to_owned()]).expect("a pair");
    Pair {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}

#[tokio::test]
async fn clients_are_admitted_by_their_certificates_as_with_nginx() {
    let (backend, authority, clients) = (
        Backend::start("a").await,
        Authority::new(),
        Authority::new(),
    );
    let hosts = CASES.each_ref().map(|Case(host, ..)| *host);
    let own = authority.issue(&hosts);
    let sites = CASES.iter().map(|Case(host, annotations, ..)| {
        let mut site = Site::new(host).to(backend.address()).tls(&own);
        for (name, value) in *annotations {
            site = site.annotation(&format!("{NGINX}/auth-tls-{name}"), value);
        }
        (*host, site.yaml())
    });
    let secret = secret(clients.root());
    let names = sites.map(|(host, yaml)| (format!("{host}.yaml"), yaml));
    let files: Vec<(String, String)> = names.chain([("ca.yaml".to_owned(), secret)]).collect();
    let files: Vec<(&str, String)> = files
        .iter()
        .map(|(name, yaml)| (&**name, yaml.clone()))
        .collect();
    let world = World::serve_with(authority, &files, &[]).await;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let servers: String = CASES.iter().map(|case| server(case, address)).collect();
    let kept = [
        ("own.crt", &*own.certificate),
        ("own.key", &*own.key),
        ("ca.crt", clients.root()),
    ];
    let _nginx = Nginx::start(&servers, &kept, backend.address()).await;

    let unsigned = self_signed();
    let known = clients.issue_client("spiffe://mesh/ns/a/sa/b");
    let shown = [
        ("none", None),
        ("known", Some(&known)),
        ("unsigned", Some(&unsigned)),
    ];
    let mut differing = Vec::new();
    for (word, pair) in shown {
        let mut more = Vec::new();
        if let Some(pair) = pair {
            let certificate = world.keep(&format!("{word}.crt"), &pair.certificate);
            let key = world.keep(&format!("{word}.key"), &pair.key);
            more.extend(["--cert".to_owned(), certificate, "--key".to_owned(), key]);
        }
        // The last comes by a handshake that asked for nothing.
        let asked = hosts.map(|host| (host, Vec::new()));
        let beside = ("open.test", vec!["--header", "Host: on.test"]);
        for (host, args) in asked.into_iter().chain([beside]) {
            let more = more.iter().map(|it| &**it);
            let args: Vec<&str> = more.chain(args).collect();
            let url = format!("https://{host}/");
            let ours = world.curl(&url).args(&args).ask().await;
            let theirs = world.curl_at(address, &url).args(&args).ask().await;
            if told(&ours) != told(&theirs) || ours.status == 0 {
                differing.push(format!(
                    "{host} {word} {args:?}: {:?} {}, nginx {:?} {}",
                    told(&ours),
                    ours.error,
                    told(&theirs),
                    theirs.error
                ));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    world.stop().await;
}
