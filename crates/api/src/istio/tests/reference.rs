//! The fields of every message against Istio's reference.

use std::collections::BTreeMap;

use super::super::*;
use super::{Message, USED, all_examples, read};
use authorization_policy as policy;
use destination_rule::{balancer, connection};
use request_authentication as jwt;
use virtual_service as route;

/// The messages and their fields, in protobuf's names, from Istio's 1.31.1.
pub(super) const REFERENCE: &str = include_str!("reference.txt");

/// The fields that a message of ours reads.
pub(super) struct Ours {
    type_name: &'static str,
    pub(super) refused: &'static [&'static str],
    fields: &'static [&'static str],
    find: fn(&str) -> Option<&'static str>,
}

fn ours<M: Message>() -> Ours {
    Ours {
        type_name: std::any::type_name::<M>(),
        refused: M::REFUSED,
        fields: M::FIELDS,
        find: |name| {
            M::field(name).map(|(_, number, name)| {
                assert!(number < 64);
                name
            })
        },
    }
}

pub(super) type Pair = (&'static str, Ours);

pub(super) fn all_messages() -> Vec<Pair> {
    [
        gateways(),
        routes(),
        rules(),
        connections(),
        entries(),
        policies(),
        measures(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn gateways() -> Vec<Pair> {
    vec![
        ("networking.Gateway", ours::<GatewaySpec>()),
        ("networking.Server", ours::<gateway::Server>()),
        ("networking.Port", ours::<gateway::Port>()),
        ("networking.ServerTLSSettings", ours::<gateway::ServerTls>()),
        (
            "networking.ServerTLSSettings.TLSCertificate",
            ours::<gateway::CertificateFiles>(),
        ),
    ]
}

fn routes() -> Vec<Pair> {
    vec![
        ("networking.VirtualService", ours::<VirtualServiceSpec>()),
        ("networking.Destination", ours::<route::Destination>()),
        ("networking.HTTPRoute", ours::<route::HttpRoute>()),
        ("networking.Delegate", ours::<route::Delegate>()),
        ("networking.Headers", ours::<header::Headers>()),
        (
            "networking.Headers.HeaderOperations",
            ours::<header::HeaderOperations>(),
        ),
        ("networking.TLSRoute", ours::<route::TlsRoute>()),
        ("networking.TCPRoute", ours::<route::TcpRoute>()),
        ("networking.HTTPMatchRequest", ours::<route::HttpMatch>()),
        (
            "networking.HTTPRouteDestination",
            ours::<route::HttpDestination>(),
        ),
        (
            "networking.RouteDestination",
            ours::<route::RouteDestination>(),
        ),
        ("networking.L4MatchAttributes", ours::<route::TcpMatch>()),
        ("networking.TLSMatchAttributes", ours::<route::TlsMatch>()),
        ("networking.HTTPRedirect", ours::<route::HttpRedirect>()),
        (
            "networking.HTTPDirectResponse",
            ours::<route::DirectResponse>(),
        ),
        ("networking.HTTPBody", ours::<route::Body>()),
        ("networking.HTTPRewrite", ours::<route::HttpRewrite>()),
        ("networking.RegexRewrite", ours::<route::RegexRewrite>()),
        (
            "networking.StringMatch",
            ours::<string_match::RawStringMatch>(),
        ),
        ("networking.HTTPRetry", ours::<route::HttpRetry>()),
        ("networking.CorsPolicy", ours::<route::CorsPolicy>()),
        ("networking.HTTPFaultInjection", ours::<route::HttpFault>()),
        (
            "networking.HTTPFaultInjection.Delay",
            ours::<route::FaultDelay>(),
        ),
        (
            "networking.HTTPFaultInjection.Abort",
            ours::<route::FaultAbort>(),
        ),
        ("networking.HTTPMirrorPolicy", ours::<route::HttpMirror>()),
        ("networking.PortSelector", ours::<selector::PortSelector>()),
        ("networking.Percent", ours::<route::Percent>()),
    ]
}

fn rules() -> Vec<Pair> {
    vec![
        ("networking.DestinationRule", ours::<DestinationRuleSpec>()),
        (
            "networking.TrafficPolicy",
            ours::<destination_rule::TrafficPolicy>(),
        ),
        (
            "networking.TrafficPolicy.PortTrafficPolicy",
            ours::<destination_rule::PortPolicy>(),
        ),
        (
            "networking.TrafficPolicy.TunnelSettings",
            ours::<connection::Tunnel>(),
        ),
        (
            "networking.TrafficPolicy.ProxyProtocol",
            ours::<connection::ProxyProtocol>(),
        ),
        (
            "networking.TrafficPolicy.RetryBudget",
            ours::<connection::RetryBudget>(),
        ),
        ("networking.Subset", ours::<destination_rule::Subset>()),
        (
            "networking.LoadBalancerSettings",
            ours::<balancer::LoadBalancer>(),
        ),
        (
            "networking.LoadBalancerSettings.ConsistentHashLB",
            ours::<balancer::ConsistentHash>(),
        ),
        (
            "networking.LoadBalancerSettings.ConsistentHashLB.RingHash",
            ours::<balancer::RingHash>(),
        ),
        (
            "networking.LoadBalancerSettings.ConsistentHashLB.MagLev",
            ours::<balancer::Maglev>(),
        ),
        (
            "networking.LoadBalancerSettings.ConsistentHashLB.HTTPCookie",
            ours::<balancer::HttpCookie>(),
        ),
        (
            "networking.LoadBalancerSettings.ConsistentHashLB.HTTPCookie.Attribute",
            ours::<balancer::CookieAttribute>(),
        ),
        ("networking.WarmupConfiguration", ours::<balancer::Warmup>()),
    ]
}

fn connections() -> Vec<Pair> {
    vec![
        (
            "networking.ConnectionPoolSettings",
            ours::<connection::ConnectionPool>(),
        ),
        (
            "networking.ConnectionPoolSettings.TCPSettings",
            ours::<connection::TcpPool>(),
        ),
        (
            "networking.ConnectionPoolSettings.TCPSettings.TcpKeepalive",
            ours::<connection::TcpKeepalive>(),
        ),
        (
            "networking.ConnectionPoolSettings.HTTPSettings",
            ours::<connection::HttpPool>(),
        ),
        (
            "networking.ConnectionPoolSettings.HTTPSettings.ConnectionKeepalive",
            ours::<connection::Http2KeepAlive>(),
        ),
        (
            "networking.OutlierDetection",
            ours::<connection::OutlierDetection>(),
        ),
        (
            "networking.ClientTLSSettings",
            ours::<connection::ClientTls>(),
        ),
        (
            "networking.LocalityLoadBalancerSetting",
            ours::<balancer::LocalityBalancer>(),
        ),
        (
            "networking.LocalityLoadBalancerSetting.Distribute",
            ours::<balancer::Distribute>(),
        ),
        (
            "networking.LocalityLoadBalancerSetting.Failover",
            ours::<balancer::Failover>(),
        ),
        (
            "networking.ZoneAwareLoadBalancerSetting",
            ours::<balancer::ZoneAwareBalancer>(),
        ),
        (
            "networking.ZoneAwareLoadBalancerSetting.Failover",
            ours::<balancer::Failover>(),
        ),
    ]
}

fn entries() -> Vec<Pair> {
    vec![
        ("networking.ServiceEntry", ours::<ServiceEntrySpec>()),
        ("networking.ServicePort", ours::<service_entry::EntryPort>()),
        ("networking.WorkloadEntry", ours::<WorkloadEntrySpec>()),
        ("networking.Sidecar", ours::<SidecarSpec>()),
        (
            "networking.IstioIngressListener",
            ours::<sidecar::IngressListener>(),
        ),
        (
            "networking.IstioEgressListener",
            ours::<sidecar::EgressListener>(),
        ),
        (
            "networking.WorkloadSelector",
            ours::<sidecar::LabelSelector>(),
        ),
        (
            "networking.OutboundTrafficPolicy",
            ours::<sidecar::OutboundTrafficPolicy>(),
        ),
        ("networking.SidecarPort", ours::<sidecar::SidecarPort>()),
        ("networking.ProxyConfig", ours::<ProxyConfigSpec>()),
    ]
}

fn policies() -> Vec<Pair> {
    vec![
        (
            "security.RequestAuthentication",
            ours::<RequestAuthenticationSpec>(),
        ),
        ("security.JWTRule", ours::<jwt::JwtRule>()),
        ("security.JWTHeader", ours::<jwt::JwtHeader>()),
        ("security.ClaimToHeader", ours::<jwt::ClaimToHeader>()),
        (
            "security.PeerAuthentication",
            ours::<PeerAuthenticationSpec>(),
        ),
        (
            "security.PeerAuthentication.MutualTLS",
            ours::<peer_authentication::MutualTls>(),
        ),
        (
            "security.AuthorizationPolicy",
            ours::<AuthorizationPolicySpec>(),
        ),
        (
            "security.AuthorizationPolicy.ExtensionProvider",
            ours::<policy::Provider>(),
        ),
        ("security.Rule", ours::<policy::Rule>()),
        ("security.Rule.From", ours::<policy::From>()),
        ("security.Rule.To", ours::<policy::To>()),
        ("security.Source", ours::<policy::Source>()),
        ("security.Operation", ours::<policy::Operation>()),
        ("security.Condition", ours::<policy::Condition>()),
        (
            "type.WorkloadSelector",
            ours::<selector::WorkloadSelector>(),
        ),
        ("type.PolicyTargetReference", ours::<selector::TargetRef>()),
    ]
}

fn measures() -> Vec<Pair> {
    vec![
        ("telemetry.Telemetry", ours::<TelemetrySpec>()),
        ("telemetry.Tracing", ours::<telemetry::Tracing>()),
        (
            "telemetry.Tracing.TracingSelector",
            ours::<telemetry::ModeSelector>(),
        ),
        (
            "telemetry.Tracing.CustomTag",
            ours::<telemetry::CustomTag>(),
        ),
        ("telemetry.Tracing.Literal", ours::<telemetry::TagText>()),
        (
            "telemetry.Tracing.Environment",
            ours::<telemetry::TagSource>(),
        ),
        (
            "telemetry.Tracing.RequestHeader",
            ours::<telemetry::TagSource>(),
        ),
        ("telemetry.Tracing.Formatter", ours::<telemetry::TagText>()),
        ("telemetry.ProviderRef", ours::<telemetry::ProviderRef>()),
        ("telemetry.Metrics", ours::<telemetry::Metrics>()),
        (
            "telemetry.MetricSelector",
            ours::<telemetry::MetricSelector>(),
        ),
        (
            "telemetry.MetricsOverrides",
            ours::<telemetry::MetricsOverride>(),
        ),
        (
            "telemetry.MetricsOverrides.TagOverride",
            ours::<telemetry::TagOverride>(),
        ),
        (
            "telemetry.AccessLogging",
            ours::<telemetry::AccessLogging>(),
        ),
        (
            "telemetry.AccessLogging.LogSelector",
            ours::<telemetry::ModeSelector>(),
        ),
        (
            "telemetry.AccessLogging.Filter",
            ours::<telemetry::LogFilter>(),
        ),
    ]
}

/// The name of a field in JSON, as protobuf forms it.
pub(super) fn json_name(name: &str) -> String {
    let mut json = String::new();
    let mut is_start = false;
    for letter in name.chars() {
        match letter {
            '_' => is_start = true,
            letter if is_start => {
                json.push(letter.to_ascii_uppercase());
                is_start = false;
            }
            letter => json.push(letter),
        }
    }
    json
}

#[test]
fn each_field_of_istio_is_read_or_refused_under_both_of_its_names() {
    let reference: BTreeMap<&str, &str> = REFERENCE
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    let messages = all_messages();
    for (message, ours) in &messages {
        let fields = reference
            .get(message)
            .unwrap_or_else(|| panic!("no {message}"));
        let mut read = 0;
        for name in fields.split(' ') {
            let json = json_name(name);
            let found = (ours.find)(&json);
            assert_eq!(found, (ours.find)(name), "{message}: {name} and {json}");
            let refused = [name, &json].map(|name| ours.refused.contains(&name));
            assert_eq!(refused, [found.is_none(); 2], "{message}: {name}");
            assert!(found.is_none_or(|found| found == json), "{message}: {name}");
            read += usize::from(found.is_some());
        }
        assert_eq!(
            read,
            ours.fields.len(),
            "{message} has fields that Istio has not"
        );
    }
    // Refused as a whole, and a type that nothing uses.
    let exempt = ["networking.ProxyImage", "type.PortSelector"];
    let is_known = |name: &str| messages.iter().any(|(message, _)| *message == name);
    for message in reference.keys().filter(|message| !exempt.contains(message)) {
        assert!(is_known(message), "{message} is not read");
    }
}

#[test]
fn each_field_of_each_message_stands_in_an_example() {
    for value in all_examples() {
        read(&value).unwrap_or_else(|error| panic!("{error:?} in {value}"));
    }
    let used = USED.take();
    for (message, ours) in all_messages() {
        for field in ours.fields {
            assert!(
                used.contains(&(ours.type_name, field)),
                "{message}: {field}"
            );
        }
    }
}
