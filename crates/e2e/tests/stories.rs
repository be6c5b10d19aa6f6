//! The stories: who serves, what is announced, who asks, what comes back.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may read a clock and start tasks"
)]

mod stories {
    mod acme;
    mod acme_addresses;
    mod acme_dns;
    mod acme_faults;
    mod acme_on_demand;
    mod annotations;
    mod authorizer;
    mod bad_input;
    mod certificates_document;
    mod changes;
    mod client_certificates;
    mod commands;
    mod console;
    mod dashboards;
    mod descriptors;
    mod differential;
    mod drain;
    mod first_use;
    mod framing;
    mod gateway_api;
    mod hello;
    mod history;
    mod holdings;
    mod host_proof;
    mod http;
    mod ingress_hosts;
    mod ingress_pairs;
    mod istio;
    mod istio_balance;
    mod istio_commands;
    mod istio_export;
    mod istio_ext;
    mod istio_limits;
    mod istio_names;
    mod istio_policy;
    mod istio_policy_more;
    mod istio_refused;
    mod istio_rules;
    mod istio_services;
    mod istio_tcp;
    mod istio_telemetry;
    mod istio_tls;
    mod istio_tokens;
    mod istio_tunnel;
    mod istio_upstream;
    mod istio_workloads;
    mod memory;
    mod mesh_capture;
    mod metrics;
    mod nginx_configmap;
    mod operators;
    mod overload;
    mod own_sockets;
    mod ownership;
    mod paths;
    mod peers;
    mod protocols;
    mod regexes;
    mod restart;
    mod restart_proxy;
    mod sign_in;
    mod tickets;
    mod tls;
    mod tls_scan;
    mod trace;
    mod trust;
    mod two_certificates;
}
