//! Services that an Ingress has asked about requests. Both sides ask the same one, which nginx
//! plays.

use super::Pair;

/// The service: it answers by what the request wants of it.
pub(super) const SERVER: &str = "server { listen LISTEN; \
    server_name auth.default.svc.cluster.local; \
    location / { \
    add_header Set-Cookie \"s=1\" always; add_header WWW-Authenticate Bearer always; \
    if ($http_x_wanted = 202) { return 202; } if ($http_x_wanted = 302) { return 302 /x; } \
    if ($http_x_wanted = 401) { return 401; } if ($http_x_wanted = 403) { return 403; } \
    if ($http_x_wanted = 404) { return 404; } if ($http_x_wanted = 500) { return 500; } \
    if ($request_method != GET) { return 403; } if ($http_x_original_url) { return 204; } \
    return 403; } }\n";

/// The annotation that says where it is.
const URL: (&str, &str) = ("auth-url", "http://auth.default.svc.cluster.local/check");

/// The location of nginx that asks it, as ingress-nginx writes it.
macro_rules! asks {
    ($further:literal) => {
        concat!(
            "auth_request /_asked; auth_request_set $auth_cookie $upstream_http_set_cookie; ",
            $further,
            " location = /_asked { internal; auth_request off; proxy_pass http://LISTEN/check; \
             proxy_pass_request_body off; proxy_set_header Content-Length \"\"; \
             proxy_set_header X-Original-URL $scheme://$http_host$request_uri; \
             proxy_set_header Host auth.default.svc.cluster.local; proxy_method GET; }"
        )
    };
}

/// The pairs.
pub(super) fn pairs() -> Vec<Pair> {
    let plain = Pair {
        host: "plain.asked.test",
        annotations: vec![URL],
        objects: OBJECTS.to_owned(),
        directives: asks!("add_header Set-Cookie $auth_cookie;"),
        files: Vec::new(),
        requests: requests(),
        fields: vec!["www-authenticate", "set-cookie", "location"],
    };
    let always = Pair {
        host: "always.asked.test",
        annotations: vec![URL, ("auth-always-set-cookie", "true")],
        objects: String::new(),
        directives: asks!("add_header Set-Cookie $auth_cookie always;"),
        ..plain.clone()
    };
    let signin = Pair {
        host: "signin.asked.test",
        annotations: vec![URL, ("auth-signin", "http://sso.test/start?rd=x")],
        objects: String::new(),
        directives: asks!(
            "add_header Set-Cookie $auth_cookie; error_page 401 http://sso.test/start?rd=x;"
        ),
        fields: vec!["set-cookie", "location"],
        ..plain.clone()
    };
    let either = Pair {
        host: "either.asked.test",
        annotations: vec![
            URL,
            ("satisfy", "any"),
            ("whitelist-source-range", "127.0.0.2"),
        ],
        objects: String::new(),
        directives: asks!("satisfy any; allow 127.0.0.2; deny all;"),
        requests: ["127.0.0.1", "127.0.0.2"]
            .into_iter()
            .flat_map(|client| {
                let from = ["--interface", client];
                let [known, unknown] = ["X-Wanted: 202", "X-Wanted: 401"];
                [known, unknown].map(|field| [&from[..], &["-H", field]].concat())
            })
            .collect(),
        fields: vec!["www-authenticate"],
        ..plain.clone()
    };
    vec![plain, always, signin, either]
}

fn requests() -> Vec<Vec<&'static str>> {
    vec![
        vec![],
        vec!["-X", "POST", "-d", "a=b"],
        vec!["--head"],
        vec!["-H", "X-Wanted: 202"],
        vec!["-H", "X-Wanted: 302"],
        vec!["-H", "X-Wanted: 401"],
        vec!["-H", "X-Wanted: 403"],
        vec!["-H", "X-Wanted: 404"],
        vec!["-H", "X-Wanted: 500"],
        vec!["-H", "X-Wanted: 401", "-X", "POST", "-d", "a=b"],
    ]
}

const OBJECTS: &str = "---
apiVersion: v1
kind: Service
metadata: {namespace: default, name: auth}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: auth-0, labels: {kubernetes.io/service-name: auth}}
addressType: IPv4
endpoints: [{addresses: ['NGINX_IP']}]
ports: [{port: NGINX_PORT}]
";
