//! Walks the way of a request through the tables, step by step as the proxy does, and writes
//! down what it meets. From the head on, the proxy's own list of stages says it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind};
use myriad_model::{
    Action, DnsName, Domain, Host, ListenerProtocol, Name, Origin, PathView, Policy, RouteView,
    SealedArc, WeightedUpstream,
};
use myriad_proxy::codec::head::Head;
use myriad_proxy::failure::FailureKind;
use myriad_proxy::http::stage::dry_run::{self, DryRun};
use myriad_proxy::http::stage::{self, Stage, TakenRoute};
use myriad_proxy::pattern::Budget;
use myriad_proxy::policy::rewrite::{self, Matched};
use myriad_proxy::policy::token::HeadMemory;
use myriad_proxy::route::certificate::{CertificateEntry, Parsed};
use myriad_proxy::route::downstream_connection::{DownstreamConnection, Secured};
use myriad_proxy::route::entry::RouteEntry;
use myriad_proxy::route::identity::MESH_CLIENTS;
use myriad_proxy::route::tables::{self, Answerer, Tables};
use myriad_proxy::tls::by_name::of_name;
use myriad_proxy::tls::key;
use x509_parser::oid_registry::OID_SIG_ED25519;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::parts::{
    CertificatePart, DomainPart, ENDPOINTS_SHOWN_MAX, Explanation, RoutePart, StagePart,
    UpstreamPart,
};
use super::question::Question;
use super::scene::Scene;
use crate::board;

mod datagrams;
mod stream;

/// Finds findings.
pub(super) type Findings<'a> = &'a dyn Fn(&dyn Fn(&Finding) -> bool) -> Vec<Finding>;

/// The most names and paths that are offered as what was perhaps meant.
const OFFERED_MAX: usize = 5;

/// Answers a question.
pub(super) fn explain(scene: &Scene, question: &Question, findings: Findings<'_>) -> Explanation {
    let mut walk = Walk {
        scene,
        question,
        seen: Explanation {
            url: question.url.clone(),
            ..Explanation::default()
        },
        objects: BTreeSet::new(),
    };
    let mut room = HeadMemory::default();
    let answer = match question.head() {
        Ok(head) => walk.walk(head, &mut room),
        Err(problem) => problem,
    };
    let Walk {
        mut seen, objects, ..
    } = walk;
    seen.answer = answer;
    let names = question.names();
    let concerns = |finding: &Finding| {
        let is_of = finding.object.as_ref();
        is_of.is_some_and(|object| objects.contains(object))
            || names.iter().any(|name| finding.message.contains(&**name))
    };
    let found = findings(&concerns);
    seen.findings = found.iter().map(ToString::to_string).collect();
    seen
}

/// One walk.
struct Walk<'a> {
    scene: &'a Scene,
    question: &'a Question,
    seen: Explanation,
    /// The objects that were met.
    objects: BTreeSet<ObjectKey>,
}

impl Walk<'_> {
    /// Goes as far as the request would, and says in one sentence where that is.
    fn walk<'h>(&mut self, head: Head<'h>, room: &'h mut HeadMemory) -> String {
        if !self.question.is_datagrams {
            self.seen.method = head.method.to_owned();
        }
        let Some((listener, address)) = self.find_listener() else {
            let word = match (self.question.is_tls, self.question.is_datagrams) {
                (true, _) => "HTTPS",
                (false, true) => "UDP",
                (false, false) => "HTTP",
            };
            return format!("there is no listener for {word}");
        };
        let client = self.question.client.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let mut visit = DownstreamConnection::new(listener, (client, 0).into(), address.port());
        if self.question.is_datagrams {
            return self.lead_flow(&visit);
        }
        if let Some(answer) = self.hand_on(&visit) {
            return answer;
        }
        if self.question.is_tls {
            match self.shake_hands(&visit.listener) {
                Ok(secured) => visit.secured = Some(secured),
                Err(reason) => return format!("the TLS handshake is refused: {reason}"),
            }
            if let Some(answer) = self.hand_on(&visit) {
                return answer;
            }
        }
        self.run_stages(&visit, head, room)
    }

    /// Passes the stages as the proxy does, where a route takes what comes by the connection.
    fn run_stages<'h>(
        &mut self,
        visit: &DownstreamConnection,
        mut head: Head<'h>,
        room: &'h mut HeadMemory,
    ) -> String {
        let (tables, budget) = (self.scene.tables.clone(), Budget::default());
        let token = self.question.token();
        head.scheme = stage::scheme(visit, &head, self.scene.trusted_hops);
        let scene = stage::Scene {
            tables: &tables,
            visit,
            budget: &budget,
            trusted_hops: self.scene.trusted_hops,
        };
        let DryRun { steps, taken, end } = dry_run::run(&scene, (&head, room), token.as_ref());
        let acts = steps.iter().any(|step| step.stage == Stage::Forward);
        for step in steps.into_iter().filter(|it| it.stage != Stage::Forward) {
            self.note(step.stage.name(), step.text);
        }
        if let Some(TakenRoute { entry, route }) = taken {
            let patterns = tables.routes_for(&visit.listener, &head.host);
            self.meet_route(entry, patterns.map(|(host, _)| host), &head);
            if acts {
                self.note_response(route.policy);
            }
            if let Action::Forward(shares) = route.action
                && acts
            {
                self.note_rewrite(entry, route, &head);
                self.meet_upstreams(entry, shares);
            }
        }
        if let Some(FailureKind::NoHost | FailureKind::NoRoute) = end.failure {
            self.explain_not_found(&visit.listener, &head);
        }
        self.seen.is_served = end.failure.is_none();
        self.seen.status = end.status;
        end.text
    }

    /// The listener of the URL's scheme; of several that of its port.
    fn find_listener(&mut self) -> Option<(Name, SocketAddr)> {
        let listeners = self.scene.tables.listeners().iter();
        let mut listeners: Vec<_> = listeners
            .filter_map(|sealed| Some((sealed.name(), sealed.listener()?)))
            .filter(|(_, listener)| {
                let is_datagrams = listener.protocol == ListenerProtocol::Udp;
                listener.tls == self.question.is_tls && is_datagrams == self.question.is_datagrams
            })
            .collect();
        listeners.sort_by_key(|(_, it)| Some(it.address.port()) != self.question.port);
        let (name, listener) = listeners.first()?;
        let address = listener.address;
        self.seen.listener = Some(format!("{name} at {address}"));
        Some(((*name).clone(), address))
    }

    /// Settles the handshake, or says why there is none.
    fn shake_hands(&mut self, listener: &Name) -> Result<Secured, String> {
        let tables = self.scene.tables.clone();
        let name = self.question.server_name();
        let sni = self.question.sni();
        let resource = sni.and_then(|name| tables.domain_resource(listener, name));
        if let Some(resource) = resource {
            self.meet_domain(resource);
        }
        let (entry, settings, domain) = match tables.answerer(listener, sni) {
            Answerer::Domain(domain, entry, _) => (entry, domain.tls.clone(), Some(domain)),
            Answerer::Listener(entry) => (entry, Arc::default(), None),
            Answerer::Nobody => {
                let domain = resource.and_then(|sealed| sealed.domain());
                if domain.is_some_and(|domain| domain.mesh) {
                    let reason = "it is answered with the proxy's identity in the mesh, and there \
                                  is none here";
                    return Err(reason.to_owned());
                }
                let auth = domain.and_then(|domain| domain.client_auth.as_ref());
                if let Some(auth) = auth.filter(|auth| tables.trust(&auth.trust).is_none()) {
                    let id = auth.trust.text().clone();
                    self.objects
                        .insert(ObjectKey::from_id(ObjectKind::Secret, id));
                    return Err(format!(
                        "Secret {} is missing, or holds no authorities to verify clients by",
                        auth.trust
                    ));
                }
                let wanted = domain.map(|domain| domain.certificate.as_ref());
                return Err(self.explain_no_certificate(name, wanted));
            }
        };
        let mut offered = self.offered(&tables, (entry, domain), sni).into_iter();
        let certificate = offered.next();
        let certificate = certificate.and_then(|it| self.meet_certificate(it, listener, name));
        let Some(certificate) = certificate else {
            return Err("the certificate or its key cannot be read".to_owned());
        };
        let others = offered.filter_map(|other| self.meet_certificate(other, listener, name));
        Ok(Secured {
            alternatives: others.map(Arc::new).collect(),
            // As for a client that has shown what the domain asks for.
            client_auth: domain.and_then(|domain| match domain.mesh {
                true => Some(MESH_CLIENTS.clone()),
                false => domain.client_auth.clone(),
            }),
            peer: None,
            shown: None,
            sni: sni.map(Into::into),
            is_mesh: false,
            by_domain: domain.is_some(),
            settings,
            certificate: Arc::new(certificate),
            version: "1.3",
            checked: Cell::new(0),
        })
    }

    /// The certificates that a client may be shown, the first of which is that of most. Of a domain
    /// whose certificates are for different names it gets those for the name that it asks for.
    fn offered<'t>(
        &mut self,
        tables: &'t Tables,
        (entry, domain): (&'t Arc<CertificateEntry>, Option<&'t Domain>),
        sni: Option<&str>,
    ) -> Vec<&'t Arc<CertificateEntry>> {
        let others = domain.map_or(&[][..], |domain| &domain.alternatives);
        let others = others.iter().filter_map(|name| tables.certificate(name));
        let others = others.filter(|other| !Arc::ptr_eq(other, entry));
        let all: Vec<_> = std::iter::once(entry).chain(others).collect();
        let Some(domain) = domain.filter(|domain| domain.by_name) else {
            return all;
        };
        let parse = |entry: &&'t Arc<CertificateEntry>| {
            let parsed = key::parse(entry.sealed.certificate()?).ok()?;
            Some((*entry, Arc::new(parsed)))
        };
        let parsed: Vec<(_, Arc<Parsed>)> = all.iter().filter_map(parse).collect();
        let usable = parsed.iter().map(|(_, parsed)| parsed.clone()).collect();
        let Some((first, beside)) = of_name(usable, sni) else {
            return Vec::new();
        };
        let (host, count) = (domain.host.as_str(), all.len());
        self.hint(match sni.is_some_and(|name| first.covers(name)) {
            true => format!("of {count} certificates of {host} those for this name are shown"),
            false => format!("none of {count} certificates of {host} is for this name"),
        });
        let chosen = std::iter::once(&first).chain(&beside);
        let entries = chosen.filter_map(|chosen| {
            let found = parsed.iter().find(|(_, it)| Arc::ptr_eq(it, chosen));
            found.map(|(entry, _)| *entry)
        });
        entries.collect()
    }

    /// Why nobody answers a handshake for a name. `wanted` is the certificate that its domain
    /// names, where there is a domain.
    fn explain_no_certificate(&mut self, name: &str, wanted: Option<Option<&Name>>) -> String {
        match wanted {
            Some(Some(secret)) => {
                self.objects.insert(ObjectKey::from_id(
                    ObjectKind::Secret,
                    secret.text().clone(),
                ));
                format!("Secret {secret} is missing, or holds no certificate that can be used")
            }
            Some(None) => format!("{name} has no certificate of its own, and there is no default"),
            None => {
                self.offer_names(name);
                format!("no object asks for HTTPS on {name}, and there is no default certificate")
            }
        }
    }

    /// Hints at the routes and hosts that exist, for a request that no route takes.
    fn explain_not_found(&mut self, listener: &Name, head: &Head<'_>) {
        let tables = self.scene.tables.clone();
        let Some((host, routes)) = tables.routes_for(listener, &head.host) else {
            return self.offer_names(&head.host);
        };
        for entry in routes.iter().take(OFFERED_MAX) {
            if let Some(origin) = entry.origin() {
                self.meet_origin(origin);
            }
            if let Some(route) = entry.route() {
                let conditions = match route.conditions.len() {
                    0 => String::new(),
                    count => format!(", if {count} conditions hold"),
                };
                let path = path_text(route.path);
                self.hint(format!("{host} has {path}{conditions}"));
            }
        }
        if routes.len() > OFFERED_MAX {
            self.hint(format!("and {} more routes", routes.len() - OFFERED_MAX));
        }
    }

    /// Offers names that are there and look alike.
    fn offer_names(&mut self, name: &str) {
        let known = self.scene.hosts.iter();
        let mut near: Vec<_> = known
            .map(|host| (strsim::osa_distance(host, name), host))
            .filter(|(distance, host)| *distance <= 2 + host.len() / 8)
            .collect();
        near.sort();
        let near = near.iter().take(OFFERED_MAX);
        let near: Vec<&str> = near.map(|(_, host)| &***host).collect();
        if !near.is_empty() {
            self.hint(format!("perhaps meant: {}", near.join(", ")));
        } else {
            self.hint(format!("{} hosts are known", self.scene.hosts.len()));
        }
    }

    /// Notes the route's edits of response headers, and its session cookie.
    fn note_response(&mut self, policy: &Policy) {
        let edits = policy.headers.as_deref().map(|edits| &edits.response);
        if let Some(edit) = edits.filter(|edit| !edit.is_empty()) {
            let parts = [("sets", &edit.set), ("adds", &edit.add)];
            let parts = parts.map(|(word, pairs)| (word, names(pairs.iter().map(|pair| &pair.0))));
            let removed = ("removes", names(edit.remove.iter()));
            let parts = parts.into_iter().chain([removed]);
            let parts = parts.filter(|(_, names)| !names.is_empty());
            let parts: Vec<String> = parts.map(|(word, it)| format!("{word} {it}")).collect();
            self.note("response headers", parts.join(", "));
        }
        if let Some(affinity) = &policy.affinity {
            let stays = match affinity.stays_on_failure {
                true => ", and comes back to it after a failure",
                false => "",
            };
            let text = format!(
                "cookie {} keeps the client on its endpoint{stays}",
                affinity.cookie
            );
            self.note("session cookie", text);
        }
    }

    fn note_rewrite(&mut self, entry: &RouteEntry, written: RouteView<'_>, head: &Head<'_>) {
        let Some(rule) = &written.policy.rewrite else {
            return;
        };
        let (substituted, budget) = (entry.substitution_regex(), Budget::default());
        let path = match &rule.path {
            None => Some(head.path.clone().into_owned()),
            Some(path) => {
                let matched = Matched::of(entry, written, &budget);
                rewrite::rewrite(path, matched, substituted, head).ok()
            }
        };
        if let Some(route) = &mut self.seen.route {
            route.rewrite = path.map(|path| match &*rule.authority {
                "" => path,
                authority => format!("{authority}{path}"),
            });
        }
    }

    /// Notes the upstreams that a request may be sent to.
    fn meet_upstreams(&mut self, entry: &RouteEntry, shares: &[WeightedUpstream]) {
        for (number, share) in shares.iter().enumerate() {
            let Some(hash) = entry.upstream_hash(number) else {
                break;
            };
            let part = self.meet_upstream(share, hash);
            self.seen.upstreams.push(part);
        }
    }

    fn meet_upstream(&mut self, share: &WeightedUpstream, hash: u64) -> UpstreamPart {
        let tables = self.scene.tables.clone();
        let mut part = UpstreamPart {
            name: share.upstream.to_string(),
            object: None,
            weight: share.weight,
            protocol: String::new(),
            endpoints: Vec::new(),
            endpoints_total: 0,
            dns: None,
        };
        let entry = tables.upstream(hash, &share.upstream);
        let resource = entry.and_then(|entry| entry.upstream.as_ref());
        if let (Some(entry), Some(resource)) = (entry, resource)
            && let Some(value) = resource.upstream()
        {
            part.object = self.meet_object(resource);
            part.protocol = if entry.is_tls() { "HTTPS" } else { "HTTP" }.to_owned();
            let dns = value.dns.as_deref();
            let told = |name: &DnsName| format!("{}:{}", name.host, name.port);
            part.dns = dns.map(|dns| {
                let names: Vec<String> = dns.names.iter().map(told).collect();
                names.join(", ")
            });
            part.endpoints_total = entry.pool.len();
            let shown = entry.pool.members().take(ENDPOINTS_SHOWN_MAX);
            part.endpoints = shown.map(|it| it.target.address.to_string()).collect();
        }
        part
    }

    fn meet_domain(&mut self, resource: &SealedArc) {
        let object = self.meet_object(resource).unwrap_or_default();
        if let Some(domain) = resource.domain() {
            let host = domain.host.as_str().to_owned();
            self.seen.domain = Some(DomainPart { host, object });
        }
    }

    /// Notes a certificate: the first that is met is the one that most clients are shown. Returns
    /// it with its key, where both can be read.
    fn meet_certificate(
        &mut self,
        entry: &CertificateEntry,
        listener: &Name,
        name: &str,
    ) -> Option<Parsed> {
        self.meet_object(&entry.sealed);
        let default = self.scene.tables.listener(listener);
        let default = default.and_then(|listener| listener.default_certificate.as_ref());
        let mut part = CertificatePart {
            secret: entry.sealed.name().to_string(),
            is_default: default == Some(entry.sealed.name()),
            ..CertificatePart::default()
        };
        let leaf = tables::value_of(entry).and_then(|it| it.chain.first());
        let leaf = leaf.map(|leaf| x509_parser::parse_x509_certificate(leaf));
        if let Some(Ok((_, leaf))) = leaf {
            let end = leaf.validity().not_after;
            part.issuer = leaf.issuer().to_string();
            part.not_after = end.to_string();
            part.is_expired = end.timestamp() < self.scene.now_unix();
            // A former certificate has the key of nobody.
            part.key = key_word(leaf.public_key());
        }
        let parsed = entry.sealed.certificate();
        let parsed = parsed.and_then(|certificate| key::parse(certificate).ok());
        if let Some(parsed) = &parsed {
            part.is_for_host = parsed.covers(name);
            part.names = parsed.names.iter().map(|it| it.as_str().into()).collect();
        }
        match self.seen.certificate {
            None => self.seen.certificate = Some(part),
            Some(_) => self.seen.other_certificates.push(part),
        }
        parsed
    }

    fn meet_route(&mut self, entry: &RouteEntry, host: Option<&Host>, head: &Head<'_>) {
        let object = entry.origin().map(|origin| self.meet_origin(origin));
        let object = object.unwrap_or_default();
        if let Some(route) = entry.route() {
            let name = entry.name();
            let rule = object
                .starts_with("VirtualService ")
                .then(|| rule_of(&name));
            self.seen.route = Some(RoutePart {
                rule: rule.flatten(),
                name,
                object,
                host: host.map_or(&*head.host, Host::as_str).to_owned(),
                path: path_text(route.path),
                conditions: route.conditions.len(),
                rewrite: None,
            });
        }
    }

    /// Notes the object that a resource came from.
    fn meet_object(&mut self, sealed: &SealedArc) -> Option<String> {
        let origin = &sealed.resource()?.origin;
        Some(self.meet_origin(origin))
    }

    fn meet_origin(&mut self, origin: &Origin) -> String {
        self.objects.extend(board::object_of(origin));
        origin.to_string()
    }

    fn hint(&mut self, hint: String) {
        self.seen.hints.push(hint);
    }

    /// Notes what a stage has said.
    fn note(&mut self, stage: &str, text: String) {
        let stage = stage.to_owned();
        self.seen.stages.push(StagePart { stage, text });
    }
}

/// Names in a row.
fn names<'a>(names: impl Iterator<Item = &'a Box<str>>) -> String {
    names.map(|name| &**name).collect::<Vec<&str>>().join(", ")
}

/// The rule that a route of a VirtualService came from, as its name tells: the VirtualService, the
/// host, the rule and the match, with the delegate and its rule between those two.
pub(super) fn rule_of(name: &str) -> Option<String> {
    let field = |rule: &str, at: &str| -> Option<String> {
        let (rule, at): (u32, u32) = (rule.parse().ok()?, at.parse().ok()?);
        Some(format!("spec.http[{rule}], its match {at}"))
    };
    match name.split_once('>') {
        None => {
            let (rule, at) = name.rsplit('/').next()?.split_once('.')?;
            field(rule, at)
        }
        Some((root, delegate)) => {
            let mut parts = root.splitn(3, '/');
            let (namespace, name) = (parts.next()?, parts.next()?);
            let rule: u32 = parts.next()?.rsplit('/').next()?.parse().ok()?;
            let (delegate, place) = delegate.rsplit_once('/')?;
            let (own, at) = place.split_once('.')?;
            let own = field(own, at)?;
            Some(format!(
                "spec.http[{rule}] of VirtualService {namespace}/{name}, delegated to \
                 VirtualService {delegate}: {own}"
            ))
        }
    }
}

/// The algorithm of a certificate's key; empty for one that no proxy signs by.
fn key_word(key: &SubjectPublicKeyInfo<'_>) -> String {
    let word = match key.parsed() {
        Ok(PublicKey::RSA(_)) => "RSA",
        Ok(PublicKey::EC(_)) => "ECDSA",
        _ if key.algorithm.algorithm == OID_SIG_ED25519 => "ED25519",
        _ => "",
    };
    word.to_owned()
}

fn path_text(path: PathView<'_>) -> String {
    match path {
        PathView::Exact(path) => format!("exactly {path}"),
        PathView::Prefix(path) => format!("prefix {path}"),
        PathView::Regex(pattern) => format!("regex {pattern}"),
        PathView::Start(start) => format!("start {start}"),
    }
}
