use clap::Parser;
use myriad_translate::GatewayCredentials;

use super::{AccessLog, Controller, Meaning, Serve};
use crate::cli::{Cli, Command};

fn raw(arguments: &[&str]) -> crate::cli::RawServe {
    let line = ["myriad", "serve", "dir"].iter().chain(arguments);
    match Cli::parse_from(line).command {
        Command::Serve(raw) => *raw,
        _ => panic!("another command"),
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let serve = Serve::check(&raw(&[])).unwrap();
    assert_eq!(serve.listeners.http.to_string(), "0.0.0.0:8080");
    assert_eq!(serve.listeners.https.to_string(), "0.0.0.0:8443");
    assert_eq!(serve.admin.to_string(), "127.0.0.1:9901");
    assert_eq!(serve.meaning.catch_all_namespaces, None);
    let listed = serve.meaning.translate().default_gateway_namespaces;
    assert!(listed.is_empty());
    assert_eq!(
        serve.meaning.translate().gateway_credentials,
        GatewayCredentials::Any
    );
    assert!(serve.traffic.workers >= 1 && matches!(serve.traffic.access_log, AccessLog::Off));
}

#[test]
fn in_front_of_a_controller_owners_say_who_uses_secrets_unless_the_operator_does() {
    let read = |arguments: &[&str]| {
        let own = ["myriad", "controller", "--proxy-accounts=myriad/proxy"];
        let line = own.iter().chain(arguments);
        let Command::Controller(raw) = Cli::parse_from(line).command else {
            panic!("another command")
        };
        let controller = Controller::check(&raw).unwrap();
        controller.translate().gateway_credentials
    };
    assert_eq!(read(&[]), GatewayCredentials::Named);
    let flags = [
        ("--gateway-credentials=named", GatewayCredentials::Named),
        ("--gateway-credentials=any", GatewayCredentials::Any),
    ];
    for (flag, expected) in flags {
        assert_eq!(read(&[flag]), expected);
        let serve = Serve::check(&raw(&[flag])).unwrap();
        assert_eq!(serve.meaning.translate().gateway_credentials, expected);
    }
}

#[test]
fn the_operator_lists_the_namespaces_of_default_gateways() {
    let serve = Serve::check(&raw(&["--default-gateway-namespaces=infra,,edge"])).unwrap();
    let listed = serve.meaning.translate().default_gateway_namespaces;
    assert!(listed.iter().eq(["edge", "infra"]));
}

#[test]
fn all_problems_are_reported_at_once() {
    let raw = raw(&[
        "--http=nowhere",
        "--workers=0",
        "--drain-delay=99999",
        "--default-certificate=a",
        "--nginx-configmap=controller",
        "--host-sharing=all",
        "--gateway-credentials=own",
        "--gateways=nowhere",
        "--capture-inbound=nowhere",
        "--detection-timeout=0",
        "--limit=head_byte=1KiB",
        "--path-normalization=base",
        "--limit=streams=8,pings=1",
        "--ticket-keys=/dev/null",
    ]);
    let text = Serve::check(&raw).unwrap_err().to_string();
    for name in [
        "--http",
        "--workers",
        "--drain-delay",
        "--default-certificate",
        "--nginx-configmap is \"controller\", not NAMESPACE/NAME",
        "--host-sharing",
        "--gateway-credentials is \"own\", not any or named",
        "--gateways nowhere",
        "--capture-inbound",
        "--detection-timeout",
        "--path-normalization",
        "no limit \"head_byte\"; the nearest is head_bytes",
        "pings is \"1\", not 8 to 1048576",
        "--gateways is for a controller",
        "--ticket-keys /dev/null: it is no file",
    ] {
        assert!(text.contains(name), "{name} is not in: {text}");
    }
}

#[test]
fn the_meshs_settings_hold_where_no_flag_says_more() {
    use myriad_proxy::PathRule;
    let file = std::env::temp_dir().join(format!("mesh-config-{}", std::process::id()));
    let text = "pathNormalization: {normalization: DEFAULT}\n\
                defaultConfig: {gatewayTopology: {numTrustedProxies: 2}}\n";
    std::fs::write(&file, text).unwrap();
    let path = file.clone();
    let file = format!("--mesh-config={}", file.display());
    let read = |arguments: &[&str]| {
        let Serve { traffic, .. } = Serve::check(&raw(arguments)).unwrap();
        (traffic.limits.paths, traffic.trusted_hops)
    };
    assert_eq!(read(&[]), (PathRule::Dialect, 0));
    assert_eq!(read(&[&file]), (PathRule::Base, 2));
    let flags = [&*file, "--path-normalization=NONE", "--trusted-hops=0"];
    assert_eq!(read(&flags), (PathRule::AsIs, 0));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn files_are_checked_and_explained_by_the_blocks_of_endpoints_that_are_given() {
    let denied = [
        "--endpoint-deny=127.0.0.0/8",
        "--endpoint-allow=127.0.0.1/32",
    ];
    let check = ["myriad", "check", "dir"].iter().chain(&denied);
    let Command::Check(check) = Cli::parse_from(check).command else {
        panic!("another command")
    };
    let explain = ["myriad", "explain", "http://a.test/", "dir"].iter();
    let Command::Explain(explain) = Cli::parse_from(explain.chain(&denied)).command else {
        panic!("another command")
    };
    for meaning in [
        Meaning::check(&check.meaning, &check.endpoints),
        Meaning::check(&explain.meaning, &explain.endpoints),
    ] {
        let endpoints = meaning.unwrap().endpoints;
        assert!(!endpoints.admits([127, 0, 0, 1].into()));
        assert!(endpoints.admits([169, 254, 169, 254].into()));
    }
    let wrong = ["myriad", "check", "dir", "--endpoint-deny=localhost"];
    let Command::Check(wrong) = Cli::parse_from(wrong).command else {
        panic!("another command")
    };
    let problem = Meaning::check(&wrong.meaning, &wrong.endpoints).unwrap_err();
    assert!(problem.to_string().contains("--endpoint-deny"), "{problem}");
}

#[test]
fn records_go_to_one_place_in_a_format_that_is_known() {
    let problem = |arguments: &[&str]| {
        let checked = Serve::check(&raw(arguments));
        checked
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let collector = "--otlp=http://127.0.0.1:4318";
    assert_eq!(problem(&[collector, "--access-log-otlp"]), "");
    assert!(problem(&["--access-log-otlp"]).contains("needs --otlp"));
    assert!(problem(&["--otlp=https://a"]).contains("--otlp"));
    assert!(problem(&["--top-series=101"]).contains("--top-series is 101, over 100"));
    assert!(problem(&["--access-log-format=%FOO%"]).contains("%FOO%"));
    let settings = Serve::check(&raw(&[collector, "--access-log-otlp"])).expect("settings");
    assert!(matches!(
        settings.traffic.access_log,
        AccessLog::Collector(_)
    ));
    assert!(settings.otlp.is_some_and(|otlp| otlp.lines.is_some()));
}
