//! Resources and findings as compact, stable text.

mod access_policy;
mod route;
mod share;
mod status;
mod stream_route;
mod telemetry;
mod upstream;

use std::fmt::Write as _;
use std::time::Duration;

use myriad_api::Finding;
use myriad_model::{
    Affinity, Capture, CaptureDirection, CertificateDemand, CheckProtocol, Cors, Domain,
    ErrorPages, HeaderEdit, HeaderEdits, Inquiry, Kind, Mirror, Name, PathRewrite, Policy,
    Provider, RateLimit, Resource, Retry, Rewrite, Sealed, Snapshot, TlsSettings, Value,
};
use myriad_translate::{AuthorityTerms, Engine, IssuerTerms, Rival, SolverTerms, Wish};

pub(crate) use status::{status_text, statuses};

/// All resources but the two listeners that every snapshot has; a listener that says more than
/// its address is shown. Routes stand in the order in which they are tried.
pub(crate) fn resources(snapshot: &Snapshot) -> String {
    let lines = lines(snapshot).into_iter();
    lines.map(|line| line + "\n").collect()
}

/// The resources of the main view, and those of each other one: what is the same there is named
/// alone.
pub(crate) fn views(engine: &Engine) -> String {
    let main = lines(engine.snapshot());
    let mut text = resources(engine.snapshot());
    for (view, snapshot) in engine.views().skip(1) {
        let _ = writeln!(text, "=== resources of {}", view.name);
        for line in lines(&snapshot) {
            let mut words = line.split_whitespace();
            match (main.contains(&line), words.next(), words.next()) {
                (true, Some(kind), Some(name)) => writeln!(text, "{kind} {name} as above"),
                _ => writeln!(text, "{line}"),
            }
            .expect("a text takes all");
        }
    }
    text
}

/// All resources but those two listeners, each with all of its lines.
pub(crate) fn lines(snapshot: &Snapshot) -> Vec<String> {
    let mut lines: Vec<((Kind, String, u64, usize), String)> = snapshot
        .iter()
        .filter_map(|sealed| {
            let resource = sealed.resource().expect("the value is kept");
            let line = resource_line(sealed, resource)?;
            Some(((sealed.key().kind, sealed.name().to_string(), 0, 0), line))
        })
        .collect();
    for (number, (rank, host, line)) in route::lines(snapshot).into_iter().enumerate() {
        lines.push(((Kind::Route, host, rank, number), line));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// The wishes, where there are any.
pub(crate) fn wishes(engine: &Engine) -> String {
    let lines = engine.wishes().map(|wish| {
        let Wish {
            secret,
            host,
            issuer,
            object,
            is_second,
        } = wish;
        let which = if *is_second { " as the second" } else { "" };
        format!("{secret} for {host} of {issuer} from {object}{which}\n")
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("=== wishes\n{lines}"),
    }
}

/// The namespaces that claim what others claim too, where there are any.
pub(crate) fn rivals(engine: &Engine) -> String {
    let lines = engine.rivals().map(|rival| {
        let Rival {
            host,
            namespace,
            holds,
        } = rival;
        let verb = if *holds { "has" } else { "wants" };
        format!("{namespace} {verb} {host}\n")
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("=== rivals\n{lines}"),
    }
}

/// The issuers that objects make, where there are any.
pub(crate) fn issuers(engine: &Engine) -> String {
    let lines = engine.issuers().map(|issuer| {
        let terms = match &issuer.terms {
            Ok(terms) => issuer_text(terms),
            Err(fault) => format!("nothing: {fault}"),
        };
        format!("{} from {}: {terms}\n", issuer.name, issuer.object)
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("=== issuers\n{lines}"),
    }
}

fn issuer_text(terms: &IssuerTerms) -> String {
    let mut text = format!("{:?} {:?}", terms.proof, terms.key);
    if !terms.roots.is_empty() {
        text.push_str(&format!(" roots={}", terms.roots.len()));
    }
    if let Some(ask) = &terms.ask {
        text.push_str(&format!(" ask={ask}"));
    }
    for authority in &terms.authorities {
        let AuthorityTerms {
            url,
            email,
            profile,
            binding,
        } = authority;
        text.push_str(&format!("\n  {url}"));
        for (name, value) in [("email", email), ("profile", profile)] {
            let value = value.as_deref();
            text.extend(value.map(|value| format!(" {name}={value}")));
        }
        if let Some((id, key)) = binding {
            text.push_str(&format!(" bound to {id} by {} bytes", key.expose().len()));
        }
    }
    match &terms.solver {
        None => text,
        Some(SolverTerms::Update {
            server,
            zone,
            key_name,
            hash,
            key,
        }) => {
            let bytes = key.expose().len();
            format!("{text}\n  updates {server} {zone:?} by {key_name} {hash:?} {bytes} bytes")
        }
        Some(SolverTerms::Webhook {
            url,
            group,
            solver,
            config,
            namespace,
        }) => format!("{text}\n  asks {url:?} {group} {solver} {config} in {namespace}"),
    }
}

/// One finding a line.
pub(crate) fn findings<'a>(findings: impl Iterator<Item = &'a Finding>) -> String {
    findings.map(|finding| format!("{finding}\n")).collect()
}

fn resource_line(sealed: &Sealed, resource: &Resource) -> Option<String> {
    let name = sealed.name();
    let from = format!("from {}", resource.origin);
    Some(match &resource.value {
        Value::Listener(listener) => {
            // The two that are always there are only worth a line for what they show.
            let certificate = listener.default_certificate.as_ref();
            let certificate = certificate.map(|name| format!(" certificate={name}"));
            if certificate.is_none() && matches!(name.as_str(), "http" | "https") {
                return None;
            }
            let place = match name.as_str() {
                "http" | "https" => String::new(),
                _ => format!(
                    " {} tls={} {:?}{}",
                    listener.address,
                    listener.tls,
                    listener.protocol,
                    listener.capture.map_or_else(String::new, capture_text),
                ),
            };
            format!("listener {name}{place}{}", certificate.unwrap_or_default())
        }
        Value::Domain(domain) => domain_line(domain, &from),
        Value::Certificate(certificate) => {
            format!(
                "certificate {name} chain={} {from}",
                certificate.chain.len()
            )
        }
        Value::Trust(trust) => {
            let (roots, crls) = (trust.roots.len(), trust.crls.len());
            match trust.users.len() {
                0 => format!("trust {name} roots={roots} crls={crls} {from}"),
                users => format!("trust {name} users={users} {from}"),
            }
        }
        Value::Route(_) | Value::Routes(_) => return None,
        Value::Upstream(value) => {
            let (told, options) = upstream::text(value);
            format!("upstream {name} {told} {from}{options}")
        }
        Value::Provider(value) => provider_line(name, value),
        Value::StreamRoute(value) => format!(
            "stream_route {name}\n  {} {from}",
            stream_route::text(value)
        ),
        Value::AccessPolicy(value) => {
            format!("access_policy {name} {} {from}", access_policy::text(value))
        }
        Value::Telemetry(value) => {
            format!("telemetry {name} {from}{}", telemetry::text(value))
        }
        Value::ChallengeAnswer(value) => {
            let text = &value.text;
            format!("challenge_answer {name} {:?} {text} {from}", value.form)
        }
        Value::Endpoints(endpoints) => {
            let told = upstream::endpoints_text(endpoints);
            format!("endpoints {name} [{told}] {from}")
        }
    })
}

fn capture_text(capture: Capture) -> String {
    match capture.direction {
        CaptureDirection::Outbound if capture.detects_hosts => " captured by-host".to_owned(),
        CaptureDirection::Outbound => " captured".to_owned(),
        CaptureDirection::Inbound => format!(" captured mutual={:?}", capture.mutual),
    }
}

fn provider_line(name: &Name, provider: &Provider) -> String {
    let Provider {
        upstream,
        timeout,
        error_status,
        authority,
        ..
    } = provider;
    let mut line = format!(
        "provider {name} at {upstream} as {authority} in {timeout:?} or {error_status}{}",
        if provider.fail_open { " open" } else { "" }
    );
    if let Some(body) = &provider.body {
        let _ = write!(line, "\n  {body:?}");
    }
    if let CheckProtocol::Http(check) = &provider.protocol {
        let _ = write!(line, "\n  {check:?}");
    }
    if !provider.told.is_empty() {
        let _ = write!(line, "\n  told {:?}", provider.told);
    }
    line
}

fn limit_text(limit: &RateLimit) -> String {
    let per_client = if limit.is_per_client {
        " per client"
    } else {
        ""
    };
    let (requests, name) = (limit.requests, &limit.name);
    let (interval, burst) = (limit.interval, limit.burst);
    let mut text = match limit.is_at_once {
        true => format!("\n  at most {requests} at once{per_client} on {name}"),
        false => {
            format!("\n  at most {requests} in {interval:?} burst {burst}{per_client} on {name}")
        }
    };
    if !limit.exempt.is_empty() {
        let _ = write!(text, " except {:?}", limit.exempt);
    }
    text
}

fn domain_line(domain: &Domain, from: &str) -> String {
    let certificate = domain.certificate.as_ref();
    let usual = match (domain.mesh, &domain.section) {
        (true, _) => "mesh",
        (false, Some(_)) => "none",
        (false, None) => "default",
    };
    let certificate = certificate.map_or(usual, |name| name.as_str());
    let listeners = joined(&domain.listeners);
    let mut line = format!(
        "domain {} [{listeners}] certificate={certificate}",
        domain.host
    );
    for name in &domain.alternatives {
        let _ = write!(line, ",{name}");
    }
    line += if domain.by_name { " by name" } else { "" };
    if let Some(section) = &domain.section {
        let _ = write!(line, " for {section}");
    }
    let (tls, usual) = (&*domain.tls, TlsSettings::default());
    if (tls.version_min, tls.version_max) != (usual.version_min, usual.version_max) {
        let _ = write!(line, " tls={:?}-{:?}", tls.version_min, tls.version_max);
    }
    if !tls.cipher_suites.is_empty() {
        let _ = write!(line, " suites={:?}", tls.cipher_suites);
    }
    if let Some(auth) = &domain.client_auth {
        let _ = write!(line, " clients={:?} by {}", auth.mode, auth.trust);
        if !auth.subject_alt_names.is_empty() {
            let _ = write!(line, " named {:?}", auth.subject_alt_names);
        }
        if auth.depth > 0 {
            let _ = write!(line, " depth={}", auth.depth);
        }
        let hashes = auth.key_hashes.len() + auth.certificate_hashes.len();
        if hashes > 0 {
            let _ = write!(line, " hashes={hashes}");
        }
    }
    format!("{line} {from}")
}

fn joined(names: &[Name]) -> String {
    let texts: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    texts.join(" ")
}

fn policy_text(policy: &Policy) -> String {
    let default = Policy::default();
    let mut text = String::new();
    if let Some(redirect) = &policy.tls_redirect {
        let _ = write!(text, " tls-redirect={}:{}", redirect.status, redirect.port);
        if &*redirect.except_prefix != "/.well-known/acme-challenge/" {
            let _ = write!(text, " except {}", redirect.except_prefix);
        }
    }
    if let Some(rewrite) = &policy.rewrite {
        text += &rewrite_text(rewrite);
    }
    text += &access_text(policy);
    text += if policy.is_foreign { " foreign" } else { "" };
    text += if policy.is_operators {
        " operators"
    } else {
        ""
    };
    if policy.request_body_bytes_max != default.request_body_bytes_max {
        let _ = write!(text, " body<={}", policy.request_body_bytes_max);
    }
    // Those of Istio, where nobody wrote any, mark its routes well enough.
    let default = match policy.connect_timeout == Duration::from_secs(10) {
        true => Policy {
            connect_timeout: policy.connect_timeout,
            read_timeout: Duration::from_secs(300),
            send_timeout: Duration::from_secs(300),
            ..default
        },
        false => default,
    };
    for (name, timeout, usual) in [
        ("connect", policy.connect_timeout, default.connect_timeout),
        ("read", policy.read_timeout, default.read_timeout),
        ("send", policy.send_timeout, default.send_timeout),
        ("request", policy.request_timeout, default.request_timeout),
        ("attempt", policy.attempt_timeout, default.attempt_timeout),
    ] {
        if timeout != usual {
            let _ = write!(text, " {name}-timeout={timeout:?}");
        }
    }
    text.extend(policy.cors.as_deref().map(cors_text));
    text.extend(policy.affinity.as_deref().map(affinity_text));
    if let Some(retry) = &policy.retry {
        text += &retry_text(retry);
    }
    if let Some(fault) = &policy.fault {
        let _ = write!(text, "\n  {fault:?}");
    }
    text.extend(policy.mirrors.iter().map(mirror_text));
    text.extend(policy.error_pages.as_deref().map(pages_text));
    if let Some(inquiry) = &policy.inquiry {
        text += &inquiry_text(inquiry);
    }
    if let Some(asked) = policy.authorizer.as_deref() {
        let line = provider_line(&"first".into(), asked);
        let _ = write!(text, "\n  {}", line.replace('\n', "\n  "));
    }
    text.extend(policy.rate_limits.iter().map(limit_text));
    if let Some(processor) = &policy.processor {
        let _ = write!(text, "\n  by way of {processor}");
    }
    if let Some(edits) = &policy.headers {
        let _ = write!(text, "\n  headers{}", edits_text(edits));
    }
    text
}

/// The rule for other origins, but for what nobody asked for.
fn cors_text(cors: &Cors) -> String {
    let text = format!("\n  {cors:?}");
    text.replace(", origin_patterns: []", "").replace(
        ", echoes_wildcards: false, exposes_in_preflights: false",
        "",
    )
}

fn affinity_text(affinity: &Affinity) -> String {
    let text = format!("\n  {affinity:?}");
    text.replace(", in_header: false, absolute_timeout: 0ns", "")
        .replace(
            ", domain: \"\", same_site: Unsaid, stays_on_failure: false",
            "",
        )
}

fn pages_text(pages: &ErrorPages) -> String {
    let (upstream, statuses, fields) = (&pages.upstream, &pages.statuses, &pages.fields);
    format!("\n  pages of {upstream} for {statuses:?} {fields:?}")
}

fn access_text(policy: &Policy) -> String {
    let mut text = String::new();
    if !policy.sources_allowed.is_empty() {
        let _ = write!(text, " sources={:?}", policy.sources_allowed);
    }
    if !policy.sources_denied.is_empty() {
        let _ = write!(text, " denied={:?}", policy.sources_denied);
    }
    if policy.satisfies_any {
        text += " satisfy=any";
    }
    if let Some(users) = &policy.users {
        let _ = write!(text, " users={users} realm={:?}", policy.realm);
    }
    if !policy.hsts.is_empty() {
        let _ = write!(text, " hsts={:?}", policy.hsts);
    }
    if let Some(demand) = &policy.client_certificate {
        text += &demand_text(demand);
    }
    text
}

fn demand_text(demand: &CertificateDemand) -> String {
    let mut text = format!(" certificate={:?} by {}", demand.need, demand.trust);
    for (name, value) in [("subject", &demand.subject), ("page", &demand.error_page)] {
        if !value.is_empty() {
            let _ = write!(text, " {name}={value:?}");
        }
    }
    text += if demand.is_passed_on {
        " passed-on"
    } else {
        ""
    };
    text += match demand.spares_plain_text {
        true => " except-plain-text",
        false => "",
    };
    text
}

fn inquiry_text(inquiry: &Inquiry) -> String {
    let (upstream, method) = (&inquiry.upstream, &inquiry.method);
    let (authority, target, timeout) = (&inquiry.authority, &inquiry.target, inquiry.timeout);
    let mut text = format!("\n  asks {upstream}: {method} {authority}{target} within {timeout:?}");
    if *inquiry.redirect != *"$request_uri" {
        let _ = write!(text, "\n    to lead to {}", inquiry.redirect);
    }
    for (name, value) in &inquiry.fields {
        let _ = write!(text, "\n    with {name}={value:?}");
    }
    if !inquiry.passed.is_empty() {
        let _ = write!(text, "\n    for {}", inquiry.passed.join(" "));
    }
    if !inquiry.signin.is_empty() {
        let _ = write!(text, "\n    or {}", inquiry.signin);
    }
    if inquiry.always_sets_cookies {
        text += "\n    always sets cookies";
    }
    if let Some(memory) = &inquiry.memory {
        let _ = write!(text, "\n    remembers by {:?}", memory.key);
        for (status, age) in &memory.ages {
            let _ = write!(text, " {status}={age:?}");
        }
    }
    text
}

fn mirror_text(mirror: &Mirror) -> String {
    let (upstream, ppm) = (&mirror.upstream, mirror.share.ppm());
    let mut text = format!("\n  mirror {upstream} {ppm}ppm");
    if !mirror.authority.is_empty() {
        let _ = write!(text, " as {}", mirror.authority);
    }
    if mirror.omits_body {
        text.push_str(" without body");
    }
    if mirror.keeps_authority {
        text.push_str(" as asked");
    }
    text
}

fn retry_text(retry: &Retry) -> String {
    let mut text = format!("\n  retry {} on {:#x}", retry.attempts, retry.conditions.0);
    for status in &retry.statuses {
        let _ = write!(text, " {status}");
    }
    if !retry.try_timeout.is_zero() {
        let _ = write!(text, " try-timeout={:?}", retry.try_timeout);
    }
    let _ = write!(text, " backoff={:?}", retry.backoff);
    // Istio's own, where nobody wrote any.
    match text.strip_prefix("\n  ") {
        Some("retry 2 on 0x891 503 backoff=25ms") => String::new(),
        _ => text,
    }
}

fn rewrite_text(rewrite: &Rewrite) -> String {
    let mut text = match &rewrite.path {
        None => String::new(),
        Some(PathRewrite::Template(template)) => format!(" rewrite={template}"),
        Some(PathRewrite::Matched(with)) => format!(" rewrite-matched={with}"),
        Some(PathRewrite::Substitution { regex, template }) => {
            format!(" rewrite-each={regex} by {template}")
        }
    };
    if !rewrite.authority.is_empty() {
        let _ = write!(text, " authority={}", rewrite.authority);
    }
    text
}

fn edits_text(edits: &HeaderEdits) -> String {
    let mut text = String::new();
    for (way, edit) in [("request", &edits.request), ("response", &edits.response)] {
        let HeaderEdit { remove, set, add } = edit;
        for name in remove {
            let _ = write!(text, " {way}-{name}");
        }
        for (name, value) in set {
            let _ = write!(text, " {way}={name}:{value}");
        }
        for (name, value) in add {
            let _ = write!(text, " {way}+{name}:{value}");
        }
    }
    text
}
