//! The domains of a host: what TLS does on each listener where a Gateway ends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Finding, Severity};
use myriad_model::{
    ClientAuth, Domain, Host, Name, Origin, OriginKind, Resource, TlsSettings, Value,
};

use super::credential::{self, Credential};
use super::entrance::{self, Entrance};
use super::scene::{HostScene, Site};
use super::stream::Holders;
use super::tls::{self, Clients, Terms};
use crate::engine::{Output, Reader, Shared, Unit, Wish};
use crate::resolve::units::CERTIFICATE;
use crate::resolve::{
    CREDENTIAL_NAMESPACES, ISSUER, Several, second_secret, too_long, wish, wish_second,
};

/// The end of the name of a certificate that is never there: handshakes get an alert. No Secret
/// has such a name, since it has two slashes.
pub(crate) const CLOSED: &str = "closed";

/// The answer of a listener for a host; equal ones share a domain.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    /// Its certificate; none where it is the mesh's, or that of the listener.
    certificate: Option<Name>,
    alternatives: Vec<Name>,
    tls: TlsSettings,
    client_auth: Option<ClientAuth>,
    mesh: bool,
    gateway: Arc<str>,
}

/// Takes out the domain of an Ingress where an older Gateway of the same owner ends TLS: what that
/// asks of clients must not go with it.
pub(super) fn yield_to_older(reader: &mut Reader<'_>, scene: &HostScene<'_>, output: &mut Output) {
    let (host, sites) = (scene.host, &scene.sites);
    let mut resources = output.resources.iter();
    let domain = resources.position(|(_, it)| matches!(it.value, Value::Domain(_)));
    let Some(at) = domain else {
        return;
    };
    let Some((_, resource)) = output.resources.get(at) else {
        return;
    };
    let (Value::Domain(domain), Some(ingress)) =
        (&resource.value, reader.ingress(&resource.origin.id))
    else {
        return;
    };
    let own = reader.claim(&ingress.meta, host);
    for site in sites.iter().filter(|site| site.is_own) {
        if !reader.claim(&site.gateway.meta, host).is_before(&own) {
            continue;
        }
        let mut ways = entrance::for_host(reader, &site.gateway, host, None);
        ways.retain(|way| way.door.ends_tls() && domain.listeners.contains(&way.listener));
        ways.retain(|way| credential::keeper(reader, scene.above, site, way).is_none());
        if !ways.is_empty() {
            // What is wrong with a Secret that nothing uses now is nobody's trouble, and nobody
            // would tell this host that it was mended.
            let key = Some(&ingress.meta.key);
            let is_of_tls =
                |it: &Finding| it.object.as_ref() == key && it.field.starts_with("spec.tls[");
            output.findings.retain(|it| !is_of_tls(it));
            output.findings.push(Finding::new(
                Severity::Warning,
                &ingress.meta.key,
                "spec.tls",
                format!(
                    "is without effect for {host}, whose TLS the older {} ends",
                    site.gateway.meta.key
                ),
                "leave TLS to one of them",
            ));
            output.needs.retain(|need| !need.is(&CERTIFICATE));
            output.wishes.retain(|wish| Some(&wish.object) != key);
            output.resources.remove(at);
            return;
        }
    }
}

/// Adds the domains of a host: on each listener, what the oldest Gateway says that ends TLS for
/// exactly this host there, unless an Ingress has it.
pub(super) fn add(
    reader: &mut Reader<'_>,
    shared: &Shared,
    (scene, holders): (&HostScene<'_>, &Holders),
    output: &mut Output,
) {
    let host = scene.host;
    let mut taken: Vec<Name> = Vec::new();
    for (_, resource) in &output.resources {
        if let Value::Domain(domain) = &resource.value {
            taken.extend(domain.listeners.iter().cloned());
        }
    }
    let mut answers: BTreeMap<Answer, Vec<Name>> = BTreeMap::new();
    for site in scene.sites.iter().filter(|site| site.is_own) {
        for way in entrance::effective(reader, &site.gateway, host) {
            let ends_tls = way.door.ends_tls() && !holders.is_passed(&way.listener);
            if !ends_tls || taken.contains(&way.listener) {
                continue;
            }
            if credential::keeper(reader, scene.above, site, &way).is_some() {
                continue;
            }
            let answer = answer(reader, site, host, &way, output);
            taken.push(way.listener.clone());
            answers.entry(answer).or_default().push(way.listener);
        }
    }
    for (answer, listeners) in answers {
        push(shared, host, answer, listeners, output);
    }
}

/// Adds the domain of a host on the listener of a server above it, as that server says.
pub(super) fn add_as(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (site, way): (&Site, &Entrance),
    output: &mut Output,
) {
    let answer = answer(reader, site, host, way, output);
    push(shared, host, answer, vec![way.listener.clone()], output);
}

/// Whether there is a domain on a listener already.
pub(crate) fn is_there(output: &Output, listener: &Name) -> bool {
    let mut resources = output.resources.iter();
    resources.any(|(_, resource)| match &resource.value {
        Value::Domain(domain) => domain.listeners.contains(listener),
        _ => false,
    })
}

fn push(
    shared: &Shared,
    host: &Host,
    answer: Answer,
    mut listeners: Vec<Name>,
    output: &mut Output,
) {
    listeners.sort_unstable();
    // What answers on the listener that everybody has bears the name of the host alone.
    let is_usual = listeners.contains(&shared.tls_listeners[0]);
    let name = match is_usual {
        true => Name::new(host.text().clone()),
        false => Name::new(format!("{host}@{}", listeners[0])),
    };
    let listeners = match *listeners == *shared.tls_listeners {
        true => shared.tls_listeners.clone(),
        false => listeners.into(),
    };
    let tls = match answer.tls == *shared.tls {
        true => shared.tls.clone(),
        false => Arc::new(answer.tls),
    };
    let domain = Domain {
        listeners,
        host: host.clone(),
        certificate: answer.certificate,
        alternatives: answer.alternatives.into(),
        tls,
        client_auth: answer.client_auth.map(Arc::new),
        mesh: answer.mesh,
        section: None,
        by_name: false,
    };
    let origin = Origin {
        kind: OriginKind::Gateway,
        id: answer.gateway,
    };
    let resource = Resource {
        origin,
        value: Value::Domain(Box::new(domain)),
    };
    output.resources.push((name, resource));
}

fn answer(
    reader: &mut Reader<'_>,
    site: &Site,
    host: &Host,
    way: &Entrance,
    output: &mut Output,
) -> Answer {
    let server = site.gateway.spec.servers.get(way.server);
    let settings = reader.settings();
    let usual = &settings.tls;
    let terms = server.and_then(|server| tls::read(server, settings, &mut Vec::new()));
    let gateway = site.gateway.meta.key.id();
    // A broader domain must not answer in its place, without what was asked for here.
    let closed = || Answer {
        certificate: Some(Name::new(format!("{gateway}/{CLOSED}"))),
        alternatives: Vec::new(),
        tls: usual.clone(),
        client_auth: None,
        mesh: false,
        gateway: gateway.clone(),
    };
    let Some(terms) = terms else {
        return closed();
    };
    if terms.mesh {
        return Answer {
            certificate: None,
            tls: terms.settings,
            mesh: true,
            ..closed()
        };
    }
    let scene = Scene { site, host, way };
    let mut certificates = scene.certificates(reader, &terms, output);
    if certificates.is_empty() {
        return closed();
    }
    let client_auth = match &terms.clients {
        None => None,
        Some(clients) => match scene.trust(reader, &terms, clients, output) {
            Some(trust) => Some(ClientAuth {
                trust,
                mode: clients.mode,
                subject_alt_names: clients.subject_alt_names.clone(),
                key_hashes: clients.key_hashes.clone(),
                certificate_hashes: clients.certificate_hashes.clone(),
                depth: 0,
            }),
            None => return closed(),
        },
    };
    let certificate = certificates.remove(0);
    Answer {
        certificate: Some(certificate),
        alternatives: certificates,
        tls: terms.settings,
        client_auth,
        mesh: false,
        gateway: gateway.clone(),
    }
}

/// A server of a Gateway, as one host enters by it.
struct Scene<'a> {
    site: &'a Site,
    host: &'a Host,
    way: &'a Entrance,
}

impl Scene<'_> {
    /// The certificates of the credentials, and the one that an issuer provides beside one. Those
    /// whose Secrets are not there leave their place to the others, and stay, so that the domain
    /// comes with the Secret. One that the Gateway may not use is left out.
    fn certificates(
        &self,
        reader: &mut Reader<'_>,
        terms: &Terms,
        output: &mut Output,
    ) -> Vec<Name> {
        let own = self.site.gateway.meta.key.namespace();
        let mut found: Vec<Arc<str>> = Vec::new();
        let mut first: Option<Wish> = None;
        for (at, credential) in terms.credentials.iter().enumerate() {
            let Credential { secret, is_refused } = credential::find(reader, credential, own);
            if is_refused {
                let field = self.field_of(credential);
                let finding = self.refused(reader, field, &secret);
                output.findings.push(finding);
                continue;
            }
            let (secret, wish) = self.wish(reader, credential, secret);
            let second_of = first.as_ref().filter(|_| at == 1);
            let second_of = second_of.filter(|first| reader.gives_pair(&first.issuer));
            if let Some(first) = second_of.filter(|_| wish.is_some()) {
                output.wishes.extend(wish_second(reader, first, &secret));
            } else if let Some(wish) = wish {
                first = first.or_else(|| (at == 0).then(|| wish.clone()));
                output.wishes.push(wish);
            } else if reader.secret_names(&secret).is_none() {
                let end = format!("so {} answers no handshake by it", self.host);
                output
                    .findings
                    .push(self.no_secret(reader, credential, &secret, &end));
            }
            found.push(secret);
        }
        if let (Some(first), [_]) = (&first, &*terms.credentials)
            && let Some(second) = second_secret(reader, first, None)
        {
            output.findings.extend(too_long(first, &second));
            output.wishes.extend(wish_second(reader, first, &second));
            found.push(second);
        }
        let needed = found.iter().cloned();
        output.needs.extend(needed.map(Unit::certificate));
        self.arranged(reader, &terms.credentials, found, output)
    }

    /// Certificates in the order in which clients are shown them.
    fn arranged(
        &self,
        reader: &mut Reader<'_>,
        credentials: &[Box<str>],
        secrets: Vec<Arc<str>>,
        output: &mut Output,
    ) -> Vec<Name> {
        let several = Several::of(reader, self.host, secrets);
        // What an issuer provides is of the right algorithm once it is renewed.
        if credentials.len() > 1 {
            let key = &self.site.gateway.meta.key;
            for spare in &several.spare {
                let field = "tls.credentialNames";
                let field = entrance::field(reader, key, self.way.server, field);
                output.findings.push(spare.finding(key, field, self.host));
            }
        }
        several.secrets.into_iter().map(Name::new).collect()
    }

    /// The Secret of a credential, and the wish for its certificate where the Gateway names an
    /// issuer. One that is not there is wanted beside the Gateway.
    fn wish(
        &self,
        reader: &mut Reader<'_>,
        credential: &str,
        secret: Arc<str>,
    ) -> (Arc<str>, Option<Wish>) {
        let meta = &self.site.gateway.meta;
        let Some(issuer) = meta.annotation(ISSUER) else {
            return (secret, None);
        };
        let own = meta.key.namespace();
        let secret = match reader.has_secret(&secret) {
            true => secret,
            false => format!("{own}/{credential}").into(),
        };
        // What lies beside the gateway's workload is not this Gateway's to provide.
        let is_own = secret
            .strip_prefix(own)
            .is_some_and(|it| it.starts_with('/'));
        let issuer = reader.issuer_named(own, issuer).filter(|_| is_own);
        let wish = issuer.and_then(|it| wish(reader, self.host, &secret, it, &meta.key));
        (secret, wish)
    }

    /// The authorities that clients are verified by: those of the Secret that is named for them,
    /// or else those beside the certificate, or else those of the Secret of the same name with
    /// `-cacert` behind it.
    fn trust(
        &self,
        reader: &mut Reader<'_>,
        terms: &Terms,
        clients: &Clients,
        output: &mut Output,
    ) -> Option<Name> {
        let own = self.site.gateway.meta.key.namespace();
        let names = match &clients.authorities {
            Some(named) => vec![named.to_string()],
            None => {
                let beside = terms.credentials.iter().map(ToString::to_string);
                let behind = terms
                    .credentials
                    .iter()
                    .map(|name| format!("{name}-cacert"));
                beside.chain(behind).collect()
            }
        };
        let mut refused = None;
        for name in &names {
            let Credential { secret, is_refused } = credential::find(reader, name, own);
            if is_refused {
                refused = Some(secret);
            } else if reader.has_trust(&secret) {
                output.needs.push(Unit::trust(secret.clone()));
                return Some(Name::new(secret));
            }
        }
        let (field, wanted) = match &clients.authorities {
            Some(named) => ("tls.caCertCredentialName", named.to_string()),
            None => ("tls.credentialName", names.join(" or ")),
        };
        if let Some(secret) = refused {
            output.findings.push(self.refused(reader, field, &secret));
            return None;
        }
        let key = &self.site.gateway.meta.key;
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            entrance::field(reader, key, self.way.server, field),
            format!(
                "needs authorities to verify clients by, and there is no ca.crt in Secret \
                 {wanted}, so {} answers no handshake",
                self.host
            ),
            "put ca.crt into the Secret of the certificate",
        ));
        None
    }

    fn no_secret(
        &self,
        reader: &mut Reader<'_>,
        credential: &str,
        secret: &str,
        end: &str,
    ) -> Finding {
        let field = self.field_of(credential);
        let key = &self.site.gateway.meta.key;
        Finding::new(
            Severity::Error,
            key,
            entrance::field(reader, key, self.way.server, field),
            format!("names Secret {secret}, which is not there, {end}"),
            "create the Secret, of type kubernetes.io/tls",
        )
    }

    /// The finding about a Secret that the Gateway may not use.
    fn refused(&self, reader: &mut Reader<'_>, field: &str, secret: &str) -> Finding {
        let key = &self.site.gateway.meta.key;
        Finding::new(
            Severity::Error,
            key,
            entrance::field(reader, key, self.way.server, field),
            format!(
                "names Secret {secret}, which namespace {} may not use, so {} answers no handshake \
                 by it",
                key.namespace(),
                self.host
            ),
            format!(
                "let the owner of the Secret add the namespace to its annotation \
                 {CREDENTIAL_NAMESPACES}, or create a Secret of that name beside the Gateway, or \
                 set --gateway-credentials=any"
            ),
        )
    }

    /// The field that names a certificate.
    fn field_of(&self, credential: &str) -> &'static str {
        let server = self.site.gateway.spec.servers.get(self.way.server);
        let tls = server.and_then(|server| server.tls.as_ref());
        match tls.is_some_and(|tls| *tls.credential_name == *credential) {
            true => "tls.credentialName",
            false => "tls.credentialNames",
        }
    }
}
