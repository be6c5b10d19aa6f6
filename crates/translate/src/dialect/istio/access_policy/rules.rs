//! AuthorizationPolicy: which requests are admitted.

use std::net::IpAddr;

use ipnet::IpNet;
use myriad_api::istio::AuthorizationPolicySpec;
use myriad_api::istio::authorization_policy::{Action, Condition, Operation, Rule, Source};
use myriad_model::{
    AccessAction, AccessMatcher, AccessRule, AccessSubject, AccessTest, Authorize, Name, is_token,
};

use super::Report;
use crate::dialect::istio::processor;
use crate::settings::Settings;

/// A reader of the forms that the values of one field may have.
type Read = fn(&str, &Scene<'_>) -> Result<AccessMatcher, &'static str>;

/// The setting in which the values of a policy are read.
struct Scene<'a> {
    namespace: &'a str,
    settings: &'a Settings,
    /// Whether requests that fit are refused, or their fate is asked for elsewhere.
    closes: bool,
}

/// The name by which policies call the trust domain of the mesh, whatever its name.
const LOCAL: &str = "cluster.local";

/// Reads the spec of a policy.
pub(super) fn authorize(
    spec: &AuthorizationPolicySpec,
    is_dry_run: bool,
    settings: &Settings,
    report: &mut Report<'_>,
) -> Authorize {
    let provider = spec.provider.as_ref().map(|provider| &*provider.name);
    let action = match (spec.action, provider) {
        (Action::Allow, _) => AccessAction::Allow,
        (Action::Deny, _) => AccessAction::Deny,
        (Action::Audit, _) => AccessAction::Audit,
        (Action::Custom, Some(name)) if !name.is_empty() => {
            let is_other = processor::is_processor(settings, name);
            if is_other || !settings.providers.iter().any(|it| *it.name == *name) {
                let what = match is_other {
                    true => "processes requests and authorizes none",
                    false => "is not known",
                };
                let problem = format!("{name} {what}, so requests that fit are refused");
                let remedy = "define it in extensionProviders of the file of --mesh-config";
                report.error("spec.provider.name", problem, remedy);
            }
            AccessAction::Custom(Name::from(name))
        }
        (Action::Custom, _) => {
            let problem = "names no provider, so requests that fit are refused";
            report.error("spec.provider", problem, "name a provider");
            AccessAction::Deny
        }
    };
    let scene = Scene {
        namespace: report.key.namespace(),
        settings,
        closes: matches!(action, AccessAction::Deny | AccessAction::Custom(_)),
    };
    let rules = spec.rules.iter().enumerate();
    let rules = rules.filter_map(|(at, rule)| scene.rule(at, rule, report));
    Authorize {
        rules: rules.collect(),
        action,
        is_dry_run,
    }
}

impl Scene<'_> {
    /// A rule; `None` where it must not admit anybody.
    fn rule(&self, at: usize, rule: &Rule, report: &mut Report<'_>) -> Option<AccessRule> {
        let field = format!("spec.rules[{at}]");
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for (source_at, source) in rule.from.iter().enumerate() {
            let field = format!("{field}.from[{source_at}].source");
            let tests = source.source.as_deref().map(source_tests);
            from.extend(self.group(&field, tests.unwrap_or_default(), report));
        }
        for (operation_at, operation) in rule.to.iter().enumerate() {
            let field = format!("{field}.to[{operation_at}].operation");
            let tests = operation.operation.as_deref().map(operation_tests);
            to.extend(self.group(&field, tests.unwrap_or_default(), report));
        }
        // Where none of several sources can be told, it is not as if there were none.
        if from.is_empty() != rule.from.is_empty() || to.is_empty() != rule.to.is_empty() {
            return None;
        }
        let mut when = Vec::new();
        for (condition_at, condition) in rule.when.iter().enumerate() {
            let field = format!("{field}.when[{condition_at}]");
            match self.condition(condition) {
                Ok(test) => when.push(test),
                Err((end, problem)) => {
                    self.tell(format!("{field}.{end}"), problem, report);
                    if !self.closes {
                        return None;
                    }
                }
            }
        }
        Some(AccessRule {
            from: from.into(),
            to: to.into(),
            when: when.into(),
        })
    }

    /// The tests of a source or operation; `None` where it must not admit anybody.
    fn group(
        &self,
        field: &str,
        lists: Vec<Lists<'_>>,
        report: &mut Report<'_>,
    ) -> Option<Box<[AccessTest]>> {
        if lists.is_empty() {
            self.tell(field.to_owned(), "says nothing", report);
            return self.closes.then(Box::default);
        }
        let mut tests = Vec::new();
        for list in lists {
            let forms = |texts: &[Box<str>]| self.forms(texts, list.read);
            match (forms(list.any), forms(list.none)) {
                (Ok(any), Ok(none)) => tests.push(AccessTest {
                    subject: list.subject,
                    any,
                    none,
                }),
                (Err(problem), _) | (_, Err(problem)) => {
                    self.tell(format!("{field}.{}", list.field), problem, report);
                    if !self.closes {
                        return None;
                    }
                }
            }
        }
        Some(tests.into())
    }

    fn condition(&self, condition: &Condition) -> Result<AccessTest, (&'static str, &'static str)> {
        let (subject, read) = subject(&condition.key).ok_or(("key", "cannot be evaluated"))?;
        if condition.values.is_empty() && condition.not_values.is_empty() {
            return Err(("values", "is empty"));
        }
        let forms = |texts: &[Box<str>]| self.forms(texts, read);
        Ok(AccessTest {
            subject,
            any: forms(&condition.values).map_err(|problem| ("values", problem))?,
            none: forms(&condition.not_values).map_err(|problem| ("notValues", problem))?,
        })
    }

    fn forms(&self, texts: &[Box<str>], read: Read) -> Result<Box<[AccessMatcher]>, &'static str> {
        let mut forms = Vec::with_capacity(texts.len());
        for text in texts {
            forms.push(read(text, self)?);
            if std::ptr::fn_addr_eq(read, principal as Read) {
                for alias in self.aliases(text) {
                    forms.push(principal(&alias, self)?);
                }
            }
        }
        // Servers that say 80 and 443 are on the two listeners, and so are policies.
        if std::ptr::fn_addr_eq(read, port as Read) {
            let settings = self.settings;
            for (said, meant) in [(80, settings.http.port()), (443, settings.https.port())] {
                let said = AccessMatcher::Exact(said.to_string().into());
                if forms.contains(&said) {
                    forms.push(AccessMatcher::Exact(meant.to_string().into()));
                }
            }
        }
        Ok(forms.into())
    }

    /// The same principal in the other trust domains that stand for the mesh's own;
    /// `cluster.local` is what policies call that one, whatever its name.
    fn aliases(&self, text: &str) -> Vec<String> {
        let text = text.strip_prefix("spiffe://").unwrap_or(text);
        let Some((domain, rest)) = text.split_once('/') else {
            return Vec::new();
        };
        let is_own = domain == LOCAL || self.settings.trust_domains().any(|it| it == domain);
        let domains = self.settings.trust_domains();
        let others = domains.filter(|it| is_own && *it != domain);
        others.map(|it| format!("{it}/{rest}")).collect()
    }

    fn tell(&self, field: String, problem: &str, report: &mut Report<'_>) {
        let effect = match self.closes {
            true => "counts as fitting",
            false => "fits no request",
        };
        let remedy = "see docs/istio-reference.md for what policies may ask";
        report.error(field, format!("{problem}, so it {effect}"), remedy);
    }
}

/// A list of a source or operation, and its opposite.
struct Lists<'a> {
    field: &'static str,
    subject: AccessSubject,
    any: &'a [Box<str>],
    none: &'a [Box<str>],
    read: Read,
}

fn source_tests(source: &Source) -> Vec<Lists<'_>> {
    use AccessSubject as Subject;
    lists([
        (
            "principals",
            Subject::Principal,
            &source.principals,
            &source.not_principals,
            principal,
        ),
        (
            "requestPrincipals",
            Subject::RequestPrincipal,
            &source.request_principals,
            &source.not_request_principals,
            word,
        ),
        (
            "namespaces",
            Subject::Namespace,
            &source.namespaces,
            &source.not_namespaces,
            word,
        ),
        (
            "serviceAccounts",
            Subject::ServiceAccount,
            &source.service_accounts,
            &source.not_service_accounts,
            account,
        ),
        (
            "ipBlocks",
            Subject::PeerAddress,
            &source.ip_blocks,
            &source.not_ip_blocks,
            block,
        ),
        (
            "remoteIpBlocks",
            Subject::ClientAddress,
            &source.remote_ip_blocks,
            &source.not_remote_ip_blocks,
            block,
        ),
        (
            "trustDomains",
            Subject::TrustDomain,
            &source.trust_domains,
            &source.not_trust_domains,
            word,
        ),
    ])
}

fn operation_tests(operation: &Operation) -> Vec<Lists<'_>> {
    use AccessSubject as Subject;
    lists([
        (
            "hosts",
            Subject::Host,
            &operation.hosts,
            &operation.not_hosts,
            word,
        ),
        (
            "ports",
            Subject::LocalPort,
            &operation.ports,
            &operation.not_ports,
            port,
        ),
        (
            "methods",
            Subject::Method,
            &operation.methods,
            &operation.not_methods,
            word,
        ),
        (
            "paths",
            Subject::Path,
            &operation.paths,
            &operation.not_paths,
            path,
        ),
    ])
}

/// A field: its name, what it is about, its list, the opposite one, and how both are read.
type Field<'a> = (
    &'static str,
    AccessSubject,
    &'a [Box<str>],
    &'a [Box<str>],
    Read,
);

fn lists<'a, const N: usize>(all: [Field<'a>; N]) -> Vec<Lists<'a>> {
    let set = all
        .into_iter()
        .filter(|(_, _, any, none, _)| !any.is_empty() || !none.is_empty());
    set.map(|(field, subject, any, none, read)| Lists {
        field,
        subject,
        any,
        none,
        read,
    })
    .collect()
}

/// The subject that the key of a condition stands for; `None` where it cannot be evaluated.
fn subject(key: &str) -> Option<(AccessSubject, Read)> {
    use AccessSubject as Subject;
    if let Some(rest) = key.strip_prefix("request.headers") {
        let names = brackets(rest)?;
        let [name] = names.as_slice() else {
            return None;
        };
        let name = name.to_ascii_lowercase();
        return is_token(&name).then(|| (Subject::Header(name.into()), word as Read));
    }
    if let Some(rest) = key.strip_prefix("request.auth.claims") {
        let path = brackets(rest)?;
        let path = path.into_iter().map(Into::into).collect();
        return Some((Subject::Claim(path), word));
    }
    Some(match key {
        "source.ip" => (Subject::PeerAddress, block),
        "remote.ip" => (Subject::ClientAddress, block),
        "destination.ip" => (Subject::LocalAddress, block),
        "source.namespace" => (Subject::Namespace, word),
        "source.principal" => (Subject::Principal, principal),
        "source.serviceAccount" => (Subject::ServiceAccount, account),
        "source.trustDomain" => (Subject::TrustDomain, word),
        "request.auth.principal" => (Subject::RequestPrincipal, word),
        "request.auth.audiences" => (Subject::Audience, word),
        "request.auth.presenter" => (Subject::Presenter, word),
        "destination.port" => (Subject::LocalPort, port),
        "connection.sni" => (Subject::ServerName, word),
        _ => return None,
    })
}

/// The parts of `[a][b]`; `None` where it is anything else.
fn brackets(text: &str) -> Option<Vec<&str>> {
    let mut rest = text;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (part, after) = rest.strip_prefix('[')?.split_once(']')?;
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        rest = after;
    }
    (!parts.is_empty()).then_some(parts)
}

/// `*` alone, at the start or at the end stands for anything.
fn word(text: &str, _: &Scene<'_>) -> Result<AccessMatcher, &'static str> {
    Ok(match (text.strip_prefix('*'), text.strip_suffix('*')) {
        (Some(""), _) => AccessMatcher::Present,
        (Some(end), _) => AccessMatcher::Suffix(end.into()),
        (None, Some(start)) => AccessMatcher::Prefix(start.into()),
        (None, None) => AccessMatcher::Exact(text.into()),
    })
}

fn principal(text: &str, scene: &Scene<'_>) -> Result<AccessMatcher, &'static str> {
    word(text.strip_prefix("spiffe://").unwrap_or(text), scene)
}

fn account(text: &str, scene: &Scene<'_>) -> Result<AccessMatcher, &'static str> {
    if text.contains('*') || text.is_empty() {
        return Err("is not the name of a service account");
    }
    Ok(AccessMatcher::Exact(match text.contains('/') {
        true => text.into(),
        false => format!("{}/{text}", scene.namespace).into(),
    }))
}

fn block(text: &str, _: &Scene<'_>) -> Result<AccessMatcher, &'static str> {
    let block = match text.contains('/') {
        true => text.parse::<IpNet>().ok(),
        false => text.parse::<IpAddr>().ok().map(IpNet::from),
    };
    let block = block.ok_or("is not an address or a block of addresses")?;
    Ok(AccessMatcher::Block(block.trunc()))
}

fn port(text: &str, _: &Scene<'_>) -> Result<AccessMatcher, &'static str> {
    let number: u16 = text.parse().map_err(|_| "is not the number of a port")?;
    Ok(AccessMatcher::Exact(number.to_string().into()))
}

fn path(text: &str, scene: &Scene<'_>) -> Result<AccessMatcher, &'static str> {
    if !text.contains(['{', '}']) {
        return word(text, scene);
    }
    let mut segments = text.strip_prefix('/').unwrap_or("{").split('/');
    let is_fit =
        |segment: &str| matches!(segment, "{*}" | "{**}") || !segment.contains(['{', '}', '*']);
    let mut is_last = false;
    let is_sound = segments.all(|segment| {
        // Nothing but text may follow what stands for the rest.
        let is_operator = segment.starts_with('{');
        let is_sound = is_fit(segment) && !(is_last && is_operator);
        is_last |= segment == "{**}";
        is_sound
    });
    match is_sound {
        true => Ok(AccessMatcher::Template(text.into())),
        false => Err("is not a template of paths"),
    }
}
