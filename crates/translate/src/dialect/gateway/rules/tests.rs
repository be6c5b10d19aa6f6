//! Rules as a whole: what becomes of requests, and what is said of faults.

mod rows;

use myriad_api::gateway::{BackendRef, GrpcRoute, GrpcRouteRule, HttpRoute, HttpRouteRule};
use myriad_api::{ObjectKey, ObjectKind, Severity};
use myriad_model::{
    Action, PathMatch, PathReading, Policy, ShareAnswer, Underscores, WeightedUpstream,
};
use serde::de::DeserializeOwned;

use super::judging;
use super::kit::RuleKit;
use super::plan::{self, PlannedRule};
use super::written::WrittenRule;
use crate::dialect::gateway::backend::Backend;
use crate::dialect::gateway::backend_problem::{BackendProblem, BackendUse};
use crate::dialect::gateway::judgement::Judgement;
use crate::engine::Unit;
use crate::regex::Regexes;

/// An object with a spec.
pub(super) fn object<T: DeserializeOwned>(spec: &str) -> T {
    let text = format!("metadata: {{name: route, namespace: shop}}\nspec: {spec}\n");
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

/// The first rule of an HTTPRoute, whose fields are given.
pub(super) fn http_rule(fields: &str) -> HttpRouteRule {
    let route: HttpRoute = object(&format!("{{rules: [{{{fields}}}]}}"));
    route.spec.rules[0].clone()
}

/// The first rule of a GRPCRoute, whose fields are given.
pub(super) fn grpc_rule(fields: &str) -> GrpcRouteRule {
    let route: GrpcRoute = object(&format!("{{rules: [{{{fields}}}]}}"));
    route.spec.rules[0].clone()
}

/// Surroundings in which every Service is there but `missing`, and those of other namespaces are
/// granted to nobody.
pub(super) struct TestKit {
    regexes_max: usize,
}

impl Default for TestKit {
    fn default() -> Self {
        TestKit { regexes_max: 8 }
    }
}

impl TestKit {
    /// Does something in these surroundings.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut RuleKit<'_>) -> T) -> T {
        let mut find = find;
        act(&mut RuleKit {
            find: &mut find,
            namespace: "shop",
            cluster_domain: "cluster.local",
            underscores: Underscores::Dropped,
            regexes: Regexes::new(self.regexes_max),
        })
    }
}

fn find(reference: &BackendRef, used: BackendUse) -> Result<Backend, BackendProblem> {
    let namespace = reference.namespace.as_deref().unwrap_or("shop");
    let name = &*reference.name;
    match (reference.kind(), namespace, name, reference.port) {
        ("Service", "shop", "missing", _) => Err(BackendProblem::BackendNotFound),
        ("Service", "shop", "untrusted", _) => Err(BackendProblem::PolicyInvalid),
        ("Service", "shop", name, Some(port)) => {
            let suffix = match used {
                BackendUse::Grpc => "+h2c",
                _ => "",
            };
            Ok(Backend {
                upstream: format!("shop/{name}:{port}{suffix}").into(),
                service: format!("shop/{name}").into(),
                port,
            })
        }
        ("Service", "shop", _, None) => Err(BackendProblem::NoPort),
        ("Service", _, _, _) => Err(BackendProblem::RefNotPermitted),
        _ => Err(BackendProblem::InvalidKind),
    }
}

fn plan_all(rules: &[WrittenRule<'_>], kit: &mut TestKit) -> Vec<PlannedRule> {
    kit.with(|kit| {
        let rules = rules.iter();
        rules.map(|rule| plan::read(rule, "seed", kit)).collect()
    })
}

fn http(rules: &str) -> Vec<PlannedRule> {
    http_within(rules, &mut TestKit::default())
}

fn http_within(rules: &str, kit: &mut TestKit) -> Vec<PlannedRule> {
    let route: HttpRoute = object(&format!("{{rules: [{rules}]}}"));
    let rules: Vec<_> = route.spec.rules.iter().map(WrittenRule::of_http).collect();
    plan_all(&rules, kit)
}

fn grpc(rules: &str) -> Vec<PlannedRule> {
    let route: GrpcRoute = object(&format!("{{rules: [{rules}]}}"));
    let rules: Vec<_> = route.spec.rules.iter().map(WrittenRule::of_grpc).collect();
    plan_all(&rules, &mut TestKit::default())
}

fn one(mut rules: Vec<PlannedRule>) -> PlannedRule {
    assert_eq!(rules.len(), 1);
    rules.pop().expect("a rule")
}

/// The shares of a rule at a listener with port 80.
fn shares(rule: &PlannedRule) -> Vec<WeightedUpstream> {
    match rule.action.at(Some(80)) {
        Action::Forward(shares) => shares.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Each share of a rule: where it goes, or the status that it gets, and its weight.
fn shown(rule: &PlannedRule) -> Vec<(String, u32)> {
    let show = |share: &WeightedUpstream| {
        let filters = share.filters.as_deref();
        let place = match filters.and_then(|filters| filters.answer.as_ref()) {
            None => share.upstream.to_string(),
            Some(ShareAnswer::Refuse(status)) => status.to_string(),
            Some(ShareAnswer::Redirect(redirect)) => format!("led by {}", redirect.status),
        };
        (place, share.weight)
    };
    shares(rule).iter().map(show).collect()
}

fn judged(rules: &[PlannedRule]) -> Judgement {
    let key = ObjectKey::new(ObjectKind::HttpRoute, "shop", "route");
    judging::judge(&key, rules)
}

fn told(judgement: &Judgement) -> Vec<(Severity, &str)> {
    let findings = judgement.findings.iter();
    findings.map(|it| (it.severity, &*it.field)).collect()
}

fn weights(pairs: &[(&str, u32)]) -> Vec<(String, u32)> {
    let pair = |(place, weight): &(&str, u32)| ((*place).to_owned(), *weight);
    pairs.iter().map(pair).collect()
}

#[test]
fn requests_are_shared_by_weight_and_what_is_invalid_refuses_its_share() {
    let backends = "backendRefs: [{name: a, port: 80, weight: 3}, {name: b, port: 81}, \
                    {name: c, port: 80, weight: 0}, {name: missing, port: 80, weight: 2}, \
                    {name: a, port: 80, namespace: blog}, \
                    {name: a, port: 80, group: x.example, kind: Thing}]";
    let rule = one(http(&format!("{{{backends}}}")));
    let of_http = weights(&[
        ("shop/a:80", 3),
        ("shop/b:81", 1),
        ("500", 2),
        ("500", 1),
        ("500", 1),
    ]);
    assert_eq!(shown(&rule), of_http);
    let needs = ["shop/a:80", "shop/b:81"].map(|name| Unit::upstream(name.into()));
    assert_eq!(rule.needs, needs);
    let judgement = judged(&[rule]);
    let fields = ["3", "4", "5"].map(|at| format!("spec.rules[0].backendRefs[{at}]"));
    let found: Vec<&str> = told(&judgement).iter().map(|it| it.1).collect();
    assert_eq!(found, fields);
    let (problem, message) = judgement.unresolved.expect("a problem");
    assert_eq!(problem, BackendProblem::BackendNotFound);
    assert_eq!(
        message,
        "spec.rules[0].backendRefs[3] names port 80 of Service shop/missing, which is not there, \
         or has no such port: its share of requests gets 500"
    );
    assert!(judgement.refused.is_none() && judgement.dropped.is_empty());
    // Clients of gRPC take this status for UNAVAILABLE.
    let of_grpc = weights(&[
        ("shop/a:80+h2c", 3),
        ("shop/b:81+h2c", 1),
        ("503", 2),
        ("503", 1),
        ("503", 1),
    ]);
    assert_eq!(shown(&one(grpc(&format!("{{{backends}}}")))), of_grpc);
}

#[test]
fn a_rule_that_leads_nowhere_refuses_everything() {
    for fields in [
        "{}",
        "{backendRefs: []}",
        "{backendRefs: [{name: a, port: 80, weight: 0}]}",
    ] {
        let rule = one(http(fields));
        assert_eq!(shown(&rule), weights(&[("500", 1)]), "{fields}");
        assert!(rule.needs.is_empty() && rule.faults.told().is_empty());
        assert_eq!(
            shown(&one(grpc(fields))),
            weights(&[("503", 1)]),
            "{fields}"
        );
    }
    // One without a share is judged all the same.
    let rules = http("{backendRefs: [{name: missing, port: 80, weight: 0}]}");
    assert!(judged(&rules).unresolved.is_some());
}

#[test]
fn a_rule_sets_a_policy() {
    let rule = one(http(
        "{name: main, \
          filters: [{type: RequestHeaderModifier, \
                     requestHeaderModifier: {set: [{name: A, value: '1'}]}}, \
                    {type: ResponseHeaderModifier, responseHeaderModifier: {remove: [B]}}, \
                    {type: RequestMirror, requestMirror: {backendRef: {name: c, port: 80}}}, \
                    {type: RequestMirror, \
                     requestMirror: {backendRef: {name: d, port: 80}, percent: 5}}, \
                    {type: URLRewrite, urlRewrite: {hostname: b.example}}, \
                    {type: CORS, cors: {allowOrigins: ['*']}}, \
                    {type: ExternalAuth, \
                     externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}}}], \
          timeouts: {request: 2s}, retry: {attempts: 1}, sessionPersistence: {}, \
          backendRefs: [{name: a, port: 80}]}",
    ));
    assert!(rule.faults.told().is_empty(), "{:?}", rule.faults);
    let policy = &rule.policy;
    let edits = policy.headers.as_deref().expect("changes of headers");
    assert_eq!(
        (edits.request.set.len(), edits.response.remove.len()),
        (1, 1)
    );
    let mirrors = policy.mirrors.iter();
    let mirrors: Vec<(&str, u32)> = mirrors
        .map(|it| (it.upstream.as_str(), it.share.ppm()))
        .collect();
    assert_eq!(mirrors, [("shop/c:80", 1_000_000), ("shop/d:80", 50_000)]);
    let rewrite = policy.rewrite.as_deref().expect("a rewrite");
    assert_eq!(&*rewrite.authority, "b.example");
    assert!(policy.cors.is_some() && policy.authorizer.is_some() && policy.affinity.is_some());
    assert_eq!(policy.request_timeout.as_secs(), 2);
    assert_eq!(policy.retry.as_deref().map(|retry| retry.attempts), Some(1));
    assert_eq!(policy.underscores, Underscores::Dropped);
    assert_eq!(policy.path_reading, PathReading::Base);
    let needs = ["c", "d", "auth", "a"].map(|it| Unit::upstream(format!("shop/{it}:80").into()));
    assert_eq!(rule.needs, needs);
    assert_eq!(rule.name.as_deref(), Some("main"));
}

#[test]
fn a_backend_has_filters_of_its_own() {
    let rule = one(http(
        "{matches: [{path: {value: /a}}], \
          filters: [{type: RequestMirror, requestMirror: {backendRef: {name: c, port: 80}}}], \
          backendRefs: [{name: a, port: 80, \
            filters: [{type: RequestHeaderModifier, \
                       requestHeaderModifier: {add: [{name: x, value: a}]}}, \
                      {type: URLRewrite, \
                       urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}, \
                      {type: RequestMirror, requestMirror: {backendRef: {name: d, port: 80}}}, \
                      {type: CORS, cors: {}}]}, \
            {name: b, port: 80, filters: [{type: RequestRedirect, requestRedirect: {}}]}, \
            {name: e, port: 80, filters: [{type: ExtensionRef, \
                                           extensionRef: {group: x, kind: Thing, name: z}}]}]}",
    ));
    let found = weights(&[("shop/a:80", 1), ("led by 302", 1), ("500", 1)]);
    assert_eq!(shown(&rule), found);
    let shares = shares(&rule);
    let filters = shares[0].filters.as_deref().expect("filters");
    assert!(filters.rewrite.is_some() && filters.cors.is_some());
    assert_eq!(filters.mirrors[0].upstream.as_str(), "shop/d:80");
    assert_eq!(
        shares[0].headers.as_deref().map(|it| it.request.add.len()),
        Some(1)
    );
    assert_eq!(
        (rule.policy.mirrors.len(), rule.policy.rewrite.is_none()),
        (1, true)
    );
    // Neither what leads clients elsewhere nor what refuses them needs an upstream.
    let needs = ["c", "a", "d"].map(|it| Unit::upstream(format!("shop/{it}:80").into()));
    assert_eq!(rule.needs, needs);
    let judgement = judged(&[rule]);
    let (problem, _) = judgement.unresolved.expect("a problem");
    assert_eq!(problem, BackendProblem::InvalidKind);
}

#[test]
fn what_filters_of_a_rule_and_of_a_backend_do_is_bounded_together() {
    let mirror = |name: &str| {
        format!(
            "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 80}}}}}}"
        )
    };
    let many = |count: usize| vec![mirror("c"); count].join(", ");
    let rule = one(http(&format!(
        "{{filters: [{}], backendRefs: [{{name: a, port: 80, filters: [{}]}}, \
           {{name: b, port: 80, filters: [{}]}}]}}",
        many(5),
        many(4),
        many(3)
    )));
    let shares = shares(&rule);
    let count = |at: usize| shares[at].filters.as_deref().map(|it| it.mirrors.len());
    assert_eq!(
        (rule.policy.mirrors.len(), count(0), count(1)),
        (5, Some(3), Some(3))
    );
    let judgement = judged(&[rule]);
    let field = "spec.rules[0].backendRefs[0].filters[3].requestMirror";
    assert_eq!(told(&judgement), [(Severity::Error, field)]);
    let value = "x".repeat(4_000);
    let modifier = |count: usize| {
        let set: Vec<String> = (0..count)
            .map(|at| format!("{{name: n{at}, value: {value}}}"))
            .collect();
        let set = set.join(", ");
        format!("{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{set}]}}}}")
    };
    let with = |own: usize, of_share: usize| {
        let (own, of_share) = (modifier(own), modifier(of_share));
        let rule = one(http(&format!(
            "{{filters: [{own}], backendRefs: [{{name: a, port: 80, filters: [{of_share}]}}]}}"
        )));
        rule.faults.dropping().map(|fault| fault.field.clone())
    };
    assert_eq!(with(4, 4), None);
    let field = "backendRefs[0].filters[0].requestHeaderModifier.set[3]";
    assert_eq!(with(5, 4), Some(field.to_owned()));
}

#[test]
fn a_filter_that_is_not_known_refuses_what_its_rule_takes() {
    for (fields, unresolved) in [
        (
            "filters: [{type: ExtensionRef, extensionRef: {group: x, kind: Thing, name: z}}]",
            Some(BackendProblem::InvalidKind),
        ),
        (
            "filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, \
             backendRef: {name: missing, port: 80}}}]",
            Some(BackendProblem::BackendNotFound),
        ),
        ("filters: [{type: Later}]", None),
    ] {
        let backends = "backendRefs: [{name: a, port: 80}]";
        let rules = http(&format!("{{{fields}, {backends}}}, {{{backends}}}"));
        assert_eq!(shown(&rules[0]), weights(&[("500", 1)]), "{fields}");
        assert_eq!(shown(&rules[1]), weights(&[("shop/a:80", 1)]), "{fields}");
        assert!(rules[0].needs.is_empty() && rules[0].policy.authorizer.is_none());
        let judgement = judged(&rules);
        assert_eq!(judgement.unresolved.map(|it| it.0), unresolved, "{fields}");
        assert_eq!(
            judgement.dropped.is_empty(),
            unresolved.is_some(),
            "{fields}"
        );
        assert!(judgement.refused.is_none());
    }
}

#[test]
fn filters_that_do_not_go_together_drop_their_rule() {
    let redirect = "{type: RequestRedirect, requestRedirect: {}}";
    let rewrite = "{type: URLRewrite, urlRewrite: {hostname: b.example}}";
    let cors = "{type: CORS, cors: {}}";
    for (fields, field) in [
        (format!("filters: [{redirect}, {rewrite}]"), "filters"),
        (format!("filters: [{cors}, {cors}]"), "filters[1]"),
        (format!("filters: [{redirect}, {redirect}]"), "filters[1]"),
        (
            format!("filters: [{redirect}], backendRefs: [{{name: a, port: 80}}]"),
            "backendRefs",
        ),
        (
            format!("backendRefs: [{{name: a, port: 80, filters: [{redirect}, {rewrite}]}}]"),
            "backendRefs[0].filters",
        ),
    ] {
        let rules = http(&format!("{{{fields}}}"));
        assert_eq!(shown(&rules[0]), weights(&[("500", 1)]), "{fields}");
        let judgement = judged(&rules);
        let (reason, message) = judgement.refused.expect("a reason");
        assert_eq!(reason, "IncompatibleFilters");
        assert!(
            message.starts_with(&format!("spec.rules[0].{field} ")),
            "{message}"
        );
    }
}

#[test]
fn a_prefix_is_replaced_only_where_every_match_has_one() {
    let rewrite = "filters: [{type: URLRewrite, urlRewrite: \
                   {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}]";
    for (matches, is_fit) in [
        ("", true),
        ("matches: [{}], ", true),
        (
            "matches: [{path: {value: /a}}, {path: {value: /c}}], ",
            true,
        ),
        ("matches: [{path: {type: Exact, value: /a}}], ", false),
        (
            "matches: [{path: {value: /a}}, {path: {type: Exact, value: /c}}], ",
            false,
        ),
    ] {
        let rule = one(http(&format!("{{{matches}{rewrite}}}")));
        assert_eq!(rule.faults.dropping().is_none(), is_fit, "{matches}");
    }
}

#[test]
fn a_route_of_grpc_has_none_of_the_filters_of_http() {
    for filter in [
        "{type: RequestRedirect, requestRedirect: {}}",
        "{type: URLRewrite, urlRewrite: {}}",
        "{type: CORS, cors: {}}",
    ] {
        let rule = one(grpc(&format!("{{filters: [{filter}]}}")));
        let fault = rule.faults.dropping().expect("a fault");
        assert_eq!(fault.field, "filters[0].type", "{filter}");
    }
    let rule = one(grpc(
        "{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: c, port: 80}}}], \
          sessionPersistence: {type: Header, sessionName: S}, \
          backendRefs: [{name: a, port: 80}]}",
    ));
    assert_eq!(rule.policy.mirrors[0].upstream.as_str(), "shop/c:80+h2c");
    let affinity = rule.policy.affinity.as_deref().expect("a session");
    assert_eq!((&*affinity.cookie, affinity.in_header), ("s", true));
}

#[test]
fn a_route_is_refused_only_where_all_of_its_rules_are_dropped() {
    let bad = "{name: x, matches: [{method: get}, {path: {value: /a}}], \
                backendRefs: [{name: a, port: 80}]}";
    let good = "{backendRefs: [{name: a, port: 80}]}";
    let rules = http(&format!("{good}, {bad}"));
    // What can be read of it is refused, so that no other rule takes it.
    assert_eq!(rules[1].matches.len(), 1);
    assert_eq!(rules[1].matches[0].number, 1);
    assert_eq!(shown(&rules[1]), weights(&[("500", 1)]));
    let judgement = judged(&rules);
    assert!(judgement.refused.is_none());
    assert_eq!(
        judgement.dropped,
        [
            "Dropped Rule 1: spec.rules[1].matches[0].method is get, which is no method that a \
          match may name"
        ]
    );
    let finding = &judgement.findings[0];
    assert!(
        finding
            .message
            .ends_with("so the rule is dropped, and what it takes gets 500")
    );
    let judgement = judged(&http(bad));
    let (reason, message) = judgement.refused.as_ref().expect("a reason");
    assert_eq!(*reason, "UnsupportedValue");
    assert!(message.starts_with("spec.rules[0].matches[0].method is get"));
    assert!(judgement.dropped.is_empty());
    let finding = &judgement.findings[0];
    assert!(finding.message.ends_with("so the route is not accepted"));
}

#[test]
fn a_match_of_grpc_that_cannot_be_read_drops_its_rule_and_no_other() {
    let backend = "backendRefs: [{name: a, port: 80}]";
    let bad = "{method: {service: a/b, method: C}}, {method: {service: a.B}}";
    let rules = grpc(&format!("{{{backend}}}, {{matches: [{bad}], {backend}}}"));
    assert!(rules[0].faults.dropping().is_none());
    let numbers: Vec<u16> = rules[1].matches.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [1], "what can be read of it is refused");
    assert_ne!(shown(&rules[1]), shown(&rules[0]));
    let judgement = judged(&rules);
    assert!(judgement.refused.is_none());
    let text = "Dropped Rule 1: spec.rules[1].matches[0].method names a service that is none";
    assert!(judgement.dropped[0].starts_with(text), "{judgement:?}");
    // Where all that a rule takes is refused, so is that of a match that cannot be read.
    let refused = "filters: [{type: ExtensionRef, extensionRef: \
                   {group: example.com, kind: Filter, name: f}}]";
    for (matched, expected) in [
        ("{method: {service: a/b}}", "/"),
        (
            "{method: {service: a.B}, headers: [{name: x, type: RegularExpression, value: '('}]}",
            "/a.B",
        ),
    ] {
        let text = format!("{{matches: [{matched}], {refused}, {backend}}}");
        let rule = one(grpc(&text));
        let paths: Vec<&PathMatch> = rule.matches.iter().map(|it| &it.taken.path).collect();
        assert_eq!(paths, [&PathMatch::Prefix(expected.into())], "{matched}");
    }
}

#[test]
fn a_match_that_cannot_be_read_lets_nothing_on_that_a_server_was_to_be_asked_about() {
    let asked = "filters: [{type: ExternalAuth, externalAuth: \
                  {protocol: HTTP, backendRef: {name: auth, port: 80}}}], ";
    let prefix = |path: &str| PathMatch::Prefix(path.into());
    for (filters, matched, expected) in [
        (
            asked,
            "{path: {value: /a}, method: get}",
            Some(prefix("/a")),
        ),
        (
            asked,
            "{path: {value: /a}, headers: [{name: x, type: RegularExpression, value: '('}]}",
            Some(prefix("/a")),
        ),
        (
            asked,
            "{path: {type: RegularExpression, value: '/a.*'}, method: get}",
            Some(PathMatch::Start("/a".into())),
        ),
        (
            asked,
            "{path: {type: RegularExpression, value: '/a('}}",
            Some(prefix("/")),
        ),
        ("", "{path: {value: /a}, method: get}", None),
    ] {
        let backend = "backendRefs: [{name: a, port: 80}]";
        let rules = http(&format!(
            "{{{backend}}}, {{matches: [{matched}], {filters}{backend}}}"
        ));
        let taken = rules[1].matches.iter().map(|it| &it.taken);
        assert!(taken.clone().all(|it| it.conditions.is_empty()));
        let paths: Vec<&PathMatch> = taken.map(|it| &it.path).collect();
        assert_eq!(paths, expected.iter().collect::<Vec<_>>(), "{matched}");
        assert_eq!(shown(&rules[1]), weights(&[("500", 1)]));
        let finding = &judged(&rules).findings[0];
        let end = match expected {
            Some(_) => "so the rule is dropped, and what it takes gets 500",
            None => "so the rule is dropped",
        };
        assert!(finding.message.ends_with(end), "{matched}");
    }
}

#[test]
fn a_reference_that_is_wrong_itself_goes_before_a_policy_that_is() {
    let rules = http(
        "{backendRefs: [{name: untrusted, port: 80}]}, \
                      {backendRefs: [{name: untrusted, port: 80}, {name: missing, port: 80}]}",
    );
    let problem = |rules: &[PlannedRule]| judged(rules).unresolved.map(|it| it.0);
    assert_eq!(problem(&rules[..1]), Some(BackendProblem::PolicyInvalid));
    assert_eq!(problem(&rules), Some(BackendProblem::BackendNotFound));
    assert_eq!(judged(&rules).findings.len(), 3);
}

#[test]
fn names_of_rules_tell_them_apart() {
    let judgement = judged(&http("{name: a}, {}, {}, {name: b}, {name: a}"));
    assert_eq!(
        told(&judgement),
        [(Severity::Warning, "spec.rules[4].name")]
    );
    assert!(judgement.findings[0].message.contains("rule 0"));
}

#[test]
fn regexes_are_bounded_and_what_restricts_stays_closed_beyond() {
    let like = |regex: &str| {
        format!("{{path: {{type: RegularExpression, value: '{regex}'}}, method: GET}}")
    };
    let matches = |names: &[&str]| {
        let matches: Vec<String> = names.iter().map(|name| like(name)).collect();
        format!("matches: [{}]", matches.join(", "))
    };
    let backends = "backendRefs: [{name: a, port: 80}]";
    let auth = "filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, \
                backendRef: {name: auth, port: 80}}}]";
    let kit = || TestKit { regexes_max: 2 };
    let within = matches(&["/a/.*", "/b/.*"]);
    let rules = format!("{{{within}, {backends}}}, {{{within}, {backends}}}");
    let rules = http_within(&rules, &mut kit());
    assert!(rules.iter().all(|rule| rule.faults.told().is_empty()));
    let beyond = matches(&["/a/.*", "/c/.*"]);
    let rules = format!("{{{within}, {backends}}}, {{{beyond}, {backends}}}");
    let rules = http_within(&rules, &mut kit());
    // The rule refuses the match that can be asked.
    assert_eq!(rules[1].matches.len(), 1);
    assert_eq!(shown(&rules[1]), weights(&[("500", 1)]));
    let judgement = judged(&rules);
    assert!(judgement.dropped[0].contains("matches[1] has a regex beyond the 2 that a route may"));
    // One that restricts refuses all that it may have taken.
    let rules = format!("{{{within}, {backends}}}, {{{beyond}, {auth}, {backends}}}");
    let rules = http_within(&rules, &mut kit());
    let taken = &rules[1].matches[1].taken;
    assert_eq!(taken.path, PathMatch::Start("/c/".into()));
    assert_eq!(taken.conditions.len(), 1);
    assert!(rules[1].policy.authorizer.is_none());
}

#[test]
fn a_closed_rule_keeps_none_of_its_policy() {
    let rule = one(http(
        "{filters: [{type: CORS, cors: {}}, {type: Later}], timeouts: {request: 1s}, \
          backendRefs: [{name: a, port: 80}]}",
    ));
    let usual = Policy {
        underscores: Underscores::Dropped,
        path_reading: PathReading::Base,
        ..super::timing::usual()
    };
    assert_eq!(rule.policy, usual);
    assert!(rule.needs.is_empty());
}
