//! Whether a request, or a stream, is admitted by the policies of its listener.
//!
//! Providers are asked first; then what denies is weighed, and then what allows, on
//! the request as the answers have left it.
//!
//! An access policy that closes (denies, or asks somebody) must not be evaded, and one that opens
//! must not be fooled. Where a property can be read in two ways, the first looks at both and the
//! second at the one that endpoints go by; tests that no value may fit, the other way round.

use std::borrow::Cow;
use std::net::IpAddr;

use myriad_model::reach::readings_of;
use myriad_model::{
    AccessAction, AccessMatcher, AccessRule, AccessSubject, AccessTest, Authorize, Name, SealedArc,
};

use smallvec::SmallVec;

use super::client;
use crate::codec::client::ClientAddress;
use crate::codec::field::{BETWEEN_COOKIES, is_read_as};
use crate::codec::head::Head;
use crate::pattern::Budget;
use crate::route::access_policies::AccessPolicies;
use crate::route::claims::VerifiedClaims;
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::count::{Count, Counts};

pub mod path;

/// So many bytes of a field are compared in one step.
const BYTES_OF_STEP: usize = 256;

/// The judgement of the access policies that ask no provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Whether the request goes on; otherwise it gets 403.
    pub is_admitted: bool,
    /// Whether the access log marks the request.
    pub is_audited: bool,
}

/// Providers that have to be asked about a request, each once, in the order of their access
/// policies.
pub type AskedProviders<'a> = SmallVec<[&'a Name; 2]>;

/// A request to be judged.
pub struct JudgedRequest<'a, 'h> {
    /// The connection.
    pub visit: &'a DownstreamConnection,
    /// The head.
    pub head: &'a Head<'h>,
    /// The claims of its token, where one was verified.
    pub token: Option<VerifiedClaims<'a>>,
    /// How many proxies in front of this one are believed.
    pub trusted_hops: usize,
    /// The steps that the request has left.
    pub budget: &'a Budget,
}

/// A stream of bytes to be judged.
pub struct JudgedStream<'a> {
    /// The listener.
    pub listener: &'a Name,
    /// The client.
    pub client: IpAddr,
    /// The other end of its connection, where a balancer is in between.
    pub peer: IpAddr,
    /// The address that it connected to, where that is known.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The name that the client asked for.
    pub server_name: Option<&'a str>,
    /// The identity in the client's verified certificate.
    pub principal: Option<&'a str>,
}

/// The providers that have to be asked about a request before anything else is weighed.
pub fn asked<'a>(
    access_policies: &'a AccessPolicies,
    request: &JudgedRequest<'a, '_>,
) -> AskedProviders<'a> {
    let listener = &request.visit.listener;
    let mut customs = custom(access_policies, listener).peekable();
    match customs.peek() {
        Some(_) => fitting(customs, &Facts::of(request)),
        None => AskedProviders::new(),
    }
}

/// Judges a request that all providers have let pass.
pub fn judge(
    access_policies: &AccessPolicies,
    request: &JudgedRequest<'_, '_>,
    counts: &Counts,
) -> Judgement {
    let facts = Facts::of(request);
    weigh(access_policies, &request.visit.listener, &facts, counts)
}

/// The verdict of one policy on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighed {
    /// It denies the request.
    Denies,
    /// It allows the request.
    Allows,
    /// It allows others.
    DoesNotAllow,
}

/// The verdict of each policy that denies or allows. For people who ask why: no request does.
pub fn weighed<'a>(
    access_policies: &'a AccessPolicies,
    request: &JudgedRequest<'a, '_>,
) -> Vec<(&'a SealedArc, Weighed)> {
    let facts = Facts::of(request);
    let all = access_policies.authorizing_by_name(&request.visit.listener);
    let all = all.filter(|(_, access_policy)| !access_policy.is_dry_run);
    all.filter_map(|(sealed, access_policy)| {
        let weighed = match (&access_policy.action, facts.fit(access_policy)) {
            (AccessAction::Deny, true) => Weighed::Denies,
            (AccessAction::Allow, true) => Weighed::Allows,
            (AccessAction::Allow, false) => Weighed::DoesNotAllow,
            (AccessAction::Deny | AccessAction::Audit | AccessAction::Custom(_), _) => return None,
        };
        Some((sealed, weighed))
    })
    .collect()
}

/// Whether a stream is admitted. What only requests have fits where it closes, and does not
/// where it opens. Nobody can be asked about a stream, so one that fits such an access policy is
/// refused.
pub fn admits_stream(
    access_policies: &AccessPolicies,
    stream: &JudgedStream<'_>,
    counts: &Counts,
) -> bool {
    let facts = Facts {
        peer: stream.peer.to_canonical(),
        client: stream.client.into(),
        address: stream.address.map(|address| address.to_canonical()),
        port: stream.port,
        server_name: stream.server_name,
        principal: stream.principal,
        head: None,
        token: None,
        budget: &Budget::default(),
    };
    let asked = fitting(custom(access_policies, stream.listener), &facts);
    asked.is_empty() && weigh(access_policies, stream.listener, &facts, counts).is_admitted
}

/// The access policies that ask somebody.
fn custom<'a>(
    access_policies: &'a AccessPolicies,
    listener: &'a Name,
) -> impl Iterator<Item = (&'a Authorize, &'a Name)> {
    let all = access_policies.authorizing(listener);
    all.filter_map(|access_policy| match &access_policy.action {
        AccessAction::Custom(provider) if !access_policy.is_dry_run => {
            Some((access_policy, provider))
        }
        _ => None,
    })
}

fn fitting<'a>(
    customs: impl Iterator<Item = (&'a Authorize, &'a Name)>,
    facts: &Facts<'_, '_>,
) -> AskedProviders<'a> {
    let mut asked = AskedProviders::new();
    for (access_policy, provider) in customs {
        if !asked.contains(&provider) && facts.fit(access_policy) {
            asked.push(provider);
        }
    }
    asked
}

fn weigh(
    access_policies: &AccessPolicies,
    listener: &Name,
    facts: &Facts<'_, '_>,
    counts: &Counts,
) -> Judgement {
    let (mut is_denied, mut is_restricted, mut is_allowed) = (false, false, false);
    let mut is_audited = false;
    for access_policy in access_policies.authorizing(listener) {
        // Those that ask somebody were weighed before.
        if matches!(access_policy.action, AccessAction::Custom(_)) && !access_policy.is_dry_run {
            continue;
        }
        let fits = facts.fit(access_policy);
        if access_policy.is_dry_run {
            let refuses = match access_policy.action {
                AccessAction::Allow => !fits,
                AccessAction::Deny => fits,
                AccessAction::Audit | AccessAction::Custom(_) => false,
            };
            counts.add(match refuses {
                true => Count::DryRunRefused,
                false => Count::DryRunAdmitted,
            });
            continue;
        }
        match &access_policy.action {
            AccessAction::Deny => is_denied |= fits,
            AccessAction::Allow => {
                is_restricted = true;
                is_allowed |= fits;
            }
            AccessAction::Audit => is_audited |= fits,
            AccessAction::Custom(_) => {}
        }
    }
    Judgement {
        is_admitted: !is_denied && (is_allowed || !is_restricted),
        is_audited,
    }
}

/// The properties of a request or stream.
struct Facts<'a, 'h> {
    peer: IpAddr,
    client: ClientAddress,
    /// None where the system did not tell.
    address: Option<IpAddr>,
    port: u16,
    server_name: Option<&'a str>,
    principal: Option<&'a str>,
    /// None for a stream.
    head: Option<&'a Head<'h>>,
    token: Option<VerifiedClaims<'a>>,
    /// Each value of a test takes a step, and one of a field another for four fields of the head,
    /// for [`BYTES_OF_STEP`] of what they say, and for four members of its list where it closes.
    budget: &'a Budget,
}

impl<'a, 'h> Facts<'a, 'h> {
    fn of(request: &JudgedRequest<'a, 'h>) -> Self {
        let visit = request.visit;
        let client = visit.client.ip();
        let secured = visit.secured.as_ref();
        Facts {
            peer: visit.peer().to_canonical(),
            client: client::address(request.head, client, request.trusted_hops),
            address: visit.address.map(|address| address.to_canonical()),
            port: visit.port,
            server_name: secured.and_then(|secured| secured.sni.as_deref()),
            principal: visit.principal(),
            head: Some(request.head),
            token: request.token,
            budget: request.budget,
        }
    }

    fn fit(&self, access_policy: &Authorize) -> bool {
        let closes = matches!(
            access_policy.action,
            AccessAction::Deny | AccessAction::Custom(_)
        );
        access_policy
            .rules
            .iter()
            .any(|rule| self.fit_rule(rule, closes))
    }

    fn fit_rule(&self, rule: &AccessRule, closes: bool) -> bool {
        let all = |tests: &[AccessTest]| tests.iter().all(|test| self.fit_test(test, closes));
        let any = |groups: &[Box<[AccessTest]>]| {
            groups.is_empty() || groups.iter().any(|tests| all(tests))
        };
        any(&rule.from) && any(&rule.to) && all(&rule.when)
    }

    fn fit_test(&self, test: &AccessTest, closes: bool) -> bool {
        if self.head.is_none() && is_of_requests(&test.subject) {
            return closes;
        }
        let fits = |forms: &[AccessMatcher], wide: bool| {
            forms
                .iter()
                .any(|form| self.fit_form(&test.subject, form, wide))
        };
        let is_any = test.any.is_empty() || fits(&test.any, closes);
        is_any && (test.none.is_empty() || !fits(&test.none, !closes))
    }

    /// Whether any value of a property fits. `wide` looks at every reading of it, and what cannot
    /// be looked at any more fits there.
    fn fit_form(&self, subject: &AccessSubject, form: &AccessMatcher, wide: bool) -> bool {
        use AccessSubject as Subject;
        let fields = match (subject, self.head) {
            (Subject::Header(_), Some(head)) => head.fields.len() / 4,
            _ => 0,
        };
        if !self.budget.take(1 + fields) {
            return wide;
        }
        let spiffe = || self.principal.and_then(Spiffe::read);
        match subject {
            Subject::Principal => self.principal.is_some_and(|it| fits(form, it)),
            Subject::Namespace => spiffe().is_some_and(|it| fits(form, it.namespace)),
            Subject::ServiceAccount => spiffe().is_some_and(|it| {
                let account = format!("{}/{}", it.namespace, it.account);
                fits(form, &account)
            }),
            Subject::TrustDomain => spiffe().is_some_and(|it| fits(form, it.trust_domain)),
            Subject::PeerAddress => fits_address(form, self.peer, wide),
            Subject::ClientAddress => match self.client.known() {
                Some(address) => fits_address(form, address, wide),
                None => wide,
            },
            Subject::LocalAddress => match self.address {
                Some(address) => fits_address(form, address, wide),
                None => wide,
            },
            Subject::LocalPort => fits_number(form, self.port),
            Subject::ServerName => self.server_name.is_some_and(|it| fits(form, it)),
            Subject::RequestPrincipal => {
                let principal = self.token.and_then(|token| token.principal());
                principal.is_some_and(|it| fits(form, it))
            }
            Subject::Audience => self.fit_claim("aud", form),
            Subject::Presenter => self.fit_claim("azp", form),
            Subject::Claim(path) => self.fit_path(path, form),
            Subject::Host => self.head.is_some_and(|head| fits_host(form, head)),
            Subject::Method => self.head.is_some_and(|head| match wide {
                // Some servers take methods in any case.
                true => fits_any_case(form, head.method),
                false => fits(form, head.method),
            }),
            Subject::Path => self.head.is_some_and(|head| {
                let readings = head.readings.as_deref();
                path::fits(form, &head.path, readings, wide)
            }),
            Subject::Header(name) => self
                .head
                .is_some_and(|head| fits_header(form, head, name, wide, self.budget)),
        }
    }

    fn fit_claim(&self, name: &str, form: &AccessMatcher) -> bool {
        self.fit_path(&[name], form)
    }

    fn fit_path<T: AsRef<str>>(&self, path: &[T], form: &AccessMatcher) -> bool {
        let mut is_fit = false;
        if let Some(token) = self.token {
            token.each(path, &mut |text| is_fit |= fits(form, text));
        }
        is_fit
    }
}

/// The parts of an identity: `trust-domain/ns/namespace/sa/account`.
struct Spiffe<'a> {
    trust_domain: &'a str,
    namespace: &'a str,
    account: &'a str,
}

impl<'a> Spiffe<'a> {
    fn read(text: &'a str) -> Option<Spiffe<'a>> {
        let mut parts = text.split('/');
        let mut next = || parts.next();
        let (trust_domain, ns, namespace) = (next()?, next()?, next()?);
        let (sa, account) = (next()?, next()?);
        let is_one = ns == "ns" && sa == "sa" && next().is_none();
        is_one.then_some(Spiffe {
            trust_domain,
            namespace,
            account,
        })
    }
}

/// Whether only requests have a property, and streams do not.
fn is_of_requests(subject: &AccessSubject) -> bool {
    use AccessSubject as Subject;
    match subject {
        Subject::RequestPrincipal
        | Subject::Audience
        | Subject::Presenter
        | Subject::Claim(_)
        | Subject::Host
        | Subject::Method
        | Subject::Path
        | Subject::Header(_) => true,
        Subject::Principal
        | Subject::Namespace
        | Subject::ServiceAccount
        | Subject::TrustDomain
        | Subject::PeerAddress
        | Subject::ClientAddress
        | Subject::LocalAddress
        | Subject::LocalPort
        | Subject::ServerName => false,
    }
}

fn fits(form: &AccessMatcher, value: &str) -> bool {
    fits_bytes(form, value.as_bytes())
}

fn fits_bytes(form: &AccessMatcher, value: &[u8]) -> bool {
    match form {
        AccessMatcher::Exact(text) => value == text.as_bytes(),
        AccessMatcher::Prefix(text) => value.starts_with(text.as_bytes()),
        AccessMatcher::Suffix(text) => value.ends_with(text.as_bytes()),
        AccessMatcher::Present => !value.is_empty(),
        // Only paths and addresses are compared with these.
        AccessMatcher::Template(_) | AccessMatcher::Block(_) => false,
    }
}

/// An address that holds another opens as itself alone, and closes as both.
fn fits_address(form: &AccessMatcher, address: IpAddr, wide: bool) -> bool {
    match form {
        AccessMatcher::Block(block) if wide => readings_of(address).any(|ip| block.contains(&ip)),
        AccessMatcher::Block(block) => block.contains(&address),
        AccessMatcher::Present => true,
        _ => false,
    }
}

fn fits_number(form: &AccessMatcher, number: u16) -> bool {
    match form {
        AccessMatcher::Exact(text) => text.parse() == Ok(number),
        AccessMatcher::Present => true,
        _ => false,
    }
}

/// Hosts have no case, and one without a port is that host on any port.
fn fits_host(form: &AccessMatcher, head: &Head<'_>) -> bool {
    fits_any_case(form, head.authority) || fits_any_case(form, &head.host)
}

fn fits_any_case(form: &AccessMatcher, value: &str) -> bool {
    let same = |text: &str, value: &str| value.eq_ignore_ascii_case(text);
    match form {
        AccessMatcher::Exact(text) => same(text, value),
        AccessMatcher::Prefix(text) => value.get(..text.len()).is_some_and(|it| same(text, it)),
        AccessMatcher::Suffix(text) => {
            let start = value.len().checked_sub(text.len());
            start
                .and_then(|start| value.get(start..))
                .is_some_and(|it| same(text, it))
        }
        AccessMatcher::Present => !value.is_empty(),
        AccessMatcher::Template(_) | AccessMatcher::Block(_) => false,
    }
}

/// Several fields of a name are one list (RFC 9110, section 5.3), which is what is compared.
/// A test that looks at every reading also takes each field alone and each member of the list, and
/// names that servers may take for this one. One that does not goes by the text as a whole, and
/// where that may be longer than what is asked for, each field has to fit as well: servers may take
/// the last.
fn fits_header(
    form: &AccessMatcher,
    head: &Head<'_>,
    name: &str,
    wide: bool,
    budget: &Budget,
) -> bool {
    let named = || values_of(head, move |sent| sent.eq_ignore_ascii_case(name));
    let read = || values_of(head, move |sent| is_read_as(sent, name));
    if !budget.take(read().map(<[u8]>::len).sum::<usize>() / BYTES_OF_STEP) {
        return wide;
    }
    // Cookies go on as one field, of which there is no last.
    let is_cookie = name.eq_ignore_ascii_case("cookie");
    let between: &[u8] = if is_cookie { BETWEEN_COOKIES } else { b"," };
    if !wide {
        let is_whole = is_cookie || matches!(form, AccessMatcher::Exact(_));
        return fits_list(form, named(), between)
            && (is_whole || named().all(|it| fits_bytes(form, it)));
    }
    if fits_list(form, named(), between) || fits_list(form, read(), between) {
        return true;
    }
    let commas = read().map(|it| memchr::memchr_iter(b',', it).count());
    if !budget.take(commas.sum::<usize>() / 4) {
        return true;
    }
    read().any(|it| fits_bytes(form, it) || members(it).any(|it| fits_bytes(form, it)))
}

/// The values of the fields whose names are it.
fn values_of<'a>(
    head: &'a Head<'_>,
    is_it: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.fields.iter();
    fields
        .filter(move |field| is_it(field.name))
        .map(|field| field.value)
}

/// The members of a list, as far as commas divide it: of quotes servers think differently.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether the list that fields are together fits.
fn fits_list<'a>(
    form: &AccessMatcher,
    mut values: impl Iterator<Item = &'a [u8]>,
    between: &[u8],
) -> bool {
    let Some(first) = values.next() else {
        return false;
    };
    let mut list = Cow::Borrowed(first);
    for value in values {
        let list = list.to_mut();
        list.extend_from_slice(between);
        list.extend_from_slice(value);
    }
    fits_bytes(form, &list)
}

#[cfg(test)]
mod tests;
