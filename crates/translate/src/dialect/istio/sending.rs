//! Where the requests of a rule are sent, and copies of them, and what endpoints of others are told
//! there of whom they come from.

use std::sync::Arc;

use myriad_api::istio::VirtualService;
use myriad_api::istio::virtual_service::{Destination, HttpRoute, HttpRouteRare};
use myriad_model::{Action, Mirror, Name, Policy, Share, WeightedUpstream};

use super::delegate::Rule;
use super::rule_problem::RuleProblem;
use super::{answer, destination, fault, headers, redirect};
use crate::engine::{Reader, Unit};
use crate::resolve::client_fields::{KEPT, KEPT_REMEDY, changes_client, keep_client};
use crate::resolve::upstream;
use crate::settings::Settings;

/// The mirrors of a rule that get copies: each request of a client is as many to endpoints.
const MIRRORS_MAX: usize = 8;

/// A rule whose destinations are looked for.
pub(super) struct Sending<'a> {
    rule: &'a Rule,
    /// The object on the host: that of the rule, or the one that delegates to it.
    root: &'a VirtualService,
    /// The problems of the rule.
    pub problems: Vec<RuleProblem>,
    /// The problems of the rule of the root that delegates to it.
    pub of_root: Vec<RuleProblem>,
    /// The units of the upstreams that it leads to.
    pub needs: Vec<Unit>,
}

impl<'a> Sending<'a> {
    /// A rule, and the object by which it is on the host.
    pub(super) fn of(rule: &'a Rule, root: &'a VirtualService) -> Self {
        Sending {
            rule,
            root,
            problems: Vec::new(),
            of_root: Vec::new(),
            needs: Vec::new(),
        }
    }

    /// The action of the rule. Each of its destinations may change `left` of the headers.
    pub(super) fn action(&mut self, reader: &mut Reader<'_>, left: headers::EditsLeft) -> Action {
        let rule = self.rule;
        let rare = rule.route.rare.as_deref();
        note_rivals(&rule.route, &mut self.problems);
        if let Some(written) = rare.and_then(|rare| rare.redirect.as_ref()) {
            return redirect::build(written, &mut self.problems);
        }
        if let Some(written) = rare.and_then(|rare| rare.direct_response.as_ref()) {
            return answer::respond(written, &mut self.problems);
        }
        let shares = &rule.route.route;
        let is_only = shares.len() == 1;
        let mut upstreams = Vec::with_capacity(shares.len());
        for (at, share) in shares.iter().enumerate() {
            let field = format!("route[{at}].destination");
            let lost = lost_name(rule, at);
            let upstream = self.find(reader, (&field, &share.destination), true);
            let headers = share.headers.as_deref().and_then(|headers| {
                let field = format!("route[{at}].headers");
                headers::headers(headers, &field, left, &mut self.problems)
            });
            upstreams.push(WeightedUpstream {
                upstream: upstream.map_or(lost, Name::new),
                weight: match (share.weight, is_only) {
                    (0, true) => 1,
                    (weight, _) => weight,
                },
                headers,
                filters: None,
            });
        }
        Action::Forward(upstreams.into())
    }

    /// The destinations of copies of the rule's requests.
    pub(super) fn mirrors(&mut self, reader: &mut Reader<'_>) -> Box<[Mirror]> {
        let Some(rare) = self.rule.route.rare.as_deref() else {
            return Box::default();
        };
        let (says_one, says_several) = match self.written() {
            Some(own) => (own.mirror.is_some(), !own.mirrors.is_empty()),
            None => (false, false),
        };
        let single = rare.mirror.iter().map(|to| {
            let percent = rare.mirror_percent;
            let of_whole =
                percent.map(|it| Share::from_ppm(it.saturating_mul(10_000)).unwrap_or(Share::ALL));
            let field = "mirror".to_owned();
            (to, rare.mirror_percentage, of_whole, (field, says_one))
        });
        let several = rare.mirrors.iter().enumerate().map(|(at, mirror)| {
            let field = format!("mirrors[{at}].destination");
            let place = (field, says_several);
            (&mirror.destination, mirror.percentage, None, place)
        });
        let mut found = Vec::new();
        for (at, (to, percentage, of_whole, place)) in single.chain(several).enumerate() {
            let (field, says_it) = place;
            if at == MIRRORS_MAX {
                self.problems.push(RuleProblem {
                    field,
                    message: format!(
                        "is beyond the {MIRRORS_MAX} mirrors that a rule may have, so no copies \
                         go there, nor to those behind it"
                    ),
                    remedy: "remove mirrors",
                });
                break;
            }
            let share = match (percentage, of_whole) {
                (Some(percent), _) => fault::share(percent, &field, &mut self.problems),
                (None, Some(share)) => Some(share).filter(|share| share.ppm() > 0),
                (None, None) => Some(Share::ALL),
            };
            let Some(share) = share else {
                continue;
            };
            if let Some(upstream) = self.find(reader, (&field, to), says_it) {
                found.push(Mirror {
                    upstream: Name::new(upstream),
                    share,
                    authority: Box::default(),
                    omits_body: false,
                    keeps_authority: false,
                });
            }
        }
        found.into()
    }

    /// The upstream of a destination, which the rule says itself, or else its root.
    fn find(
        &mut self,
        reader: &mut Reader<'_>,
        (field, written): (&str, &Destination),
        says_it: bool,
    ) -> Option<Arc<str>> {
        let namespace = self.rule.service.meta.key.namespace();
        let upstream = match destination::resolve(reader, written, namespace) {
            Ok(upstream) => upstream,
            Err(lost) => {
                self.problems.push(RuleProblem {
                    field: format!("{field}.{}", lost.field),
                    message: format!("{}, so its requests get 503", lost.problem),
                    remedy: lost.remedy,
                });
                return None;
            }
        };
        let judged = self.judged_by(reader.settings(), says_it).map(|root| {
            let found = (&*upstream, namespace);
            destination::check_root(reader, written, found, root)
        });
        if let Some(Err(lost)) = judged {
            let (own, at) = (self.rule.service.meta.key.id(), self.rule.at);
            self.of_root.push(match says_it {
                true => RuleProblem {
                    field: "delegate".into(),
                    message: format!(
                        "leads to spec.http[{at}].{field} of VirtualService {own}: {}, so its \
                         requests get 503",
                        lost.problem
                    ),
                    remedy: "let the delegate name this namespace in its spec.exportTo, or let the \
                             owner of what it leads to export that to this namespace",
                },
                false => RuleProblem {
                    field: format!("{field}.{}", lost.field),
                    message: format!("{}, so no copies go there", lost.problem),
                    remedy: lost.remedy,
                },
            });
            return None;
        }
        self.needs.push(Unit::upstream(upstream.clone()));
        Some(upstream)
    }

    /// The namespace that has to see a destination beside the rule's own: that of a root which
    /// leads there without being named by the delegate, or by what it says itself. The operator's
    /// leads wherever the delegate may.
    fn judged_by(&self, settings: &Settings, says_it: bool) -> Option<&'a str> {
        let root = self.root.meta.key.namespace();
        let is_judged = self.rule.is_foreign || !says_it;
        let is_other = root != self.rule.service.meta.key.namespace();
        (is_judged && is_other && !is_operators(settings, root)).then_some(root)
    }

    /// The part that the object of the rule says itself, where it is not said by its root.
    fn written(&self) -> Option<&'a HttpRouteRare> {
        let own = self.rule.service.spec.http.get(self.rule.at);
        own.and_then(|route| route.rare.as_deref())
    }

    /// Leaves what endpoints of others than the author's namespace are told of clients as it is.
    /// Headers of all destinations are told to each of them, and a copy is told as much as
    /// the destination whose request it is of.
    pub(super) fn keep_client(
        &mut self,
        reader: &Reader<'_>,
        shares: &mut Arc<[WeightedUpstream]>,
        policy: &mut Policy,
    ) {
        let own = self.rule.service.meta.key.namespace();
        let says_it = self.written().is_some_and(|rare| rare.headers.is_some());
        let author = match says_it {
            true => own,
            false => self.root.meta.key.namespace(),
        };
        if changes_client(policy.headers.as_deref())
            && (copies_away(&policy.mirrors, author)
                || shares.iter().any(|it| leads_away(&it.upstream, author)))
            && !may_tell(reader, author)
        {
            keep_client(&mut policy.headers);
            let problem = kept("headers.request".into());
            match says_it {
                true => self.problems.push(problem),
                false => self.of_root.push(problem),
            }
        }
        let copied = copies_away(&policy.mirrors, own);
        let is_kept = |share: &WeightedUpstream| {
            let is_told = copied || leads_away(&share.upstream, own);
            is_told && changes_client(share.headers.as_deref())
        };
        if !shares.iter().any(is_kept) || may_tell(reader, own) {
            return;
        }
        for (at, share) in Arc::make_mut(shares).iter_mut().enumerate() {
            if is_kept(share) {
                keep_client(&mut share.headers);
                let problem = kept(format!("route[{at}].headers.request"));
                self.problems.push(problem);
            }
        }
    }
}

/// Whether an upstream has endpoints of others than a namespace.
fn leads_away(upstream: &Name, namespace: &str) -> bool {
    let owner = upstream::namespace(upstream.as_str());
    owner.is_some_and(|(owner, _)| owner != namespace)
}

/// Whether copies go to endpoints of others than a namespace.
fn copies_away(mirrors: &[Mirror], namespace: &str) -> bool {
    let mut mirrors = mirrors.iter();
    mirrors.any(|it| leads_away(&it.upstream, namespace))
}

/// Whether a namespace is the operator's.
fn is_operators(settings: &Settings, namespace: &str) -> bool {
    namespace == settings.root_namespace() || *namespace == *settings.gateway_namespace
}

/// Whether objects of a namespace say to endpoints of others what the proxy tells of clients: the
/// operator's, and those of the proxy's own namespace, whose workloads may say so without it.
fn may_tell(reader: &Reader<'_>, namespace: &str) -> bool {
    // Whether it is the proxy's is asked last, since the answer parts views.
    is_operators(reader.settings(), namespace) || reader.view().is_of(namespace)
}

/// The problem of changes that were left out.
fn kept(field: String) -> RuleProblem {
    RuleProblem {
        field,
        message: KEPT.into(),
        remedy: KEPT_REMEDY,
    }
}

/// Names what stands beside something that goes first, and so has no effect.
fn note_rivals(route: &HttpRoute, problems: &mut Vec<RuleProblem>) {
    let rare = route.rare.as_deref();
    let answers = [
        ("redirect", rare.is_some_and(|it| it.redirect.is_some())),
        (
            "directResponse",
            rare.is_some_and(|it| it.direct_response.is_some()),
        ),
        ("route", !route.route.is_empty()),
    ];
    let mut written = answers.iter().filter(|(_, is_set)| *is_set);
    let Some((first, _)) = written.next() else {
        return;
    };
    problems.extend(written.map(|(field, _)| RuleProblem {
        field: (*field).into(),
        message: format!("stands beside {first}, which goes first, so it has no effect"),
        remedy: "keep one of redirect, directResponse and route",
    }));
}

/// The name of what is not there, which answers 503 for its share.
fn lost_name(rule: &Rule, at: usize) -> Name {
    let id = rule.service.meta.key.id();
    Name::new(format!("{id}/{}.{at}/missing", rule.at))
}
