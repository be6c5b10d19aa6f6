//! The plan of a rule: what it takes, what becomes of that, and what is wrong with it.

use std::sync::Arc;

use myriad_model::{Action, PathMatch, PathReading, Policy, Test, ValueMatch};

use super::backends::{self, PlannedShare};
use super::fault::RuleFaults;
use super::filters::{self, FilterBudget, FilterSet, FilterSite};
use super::kit::RuleKit;
use super::matching::{self, RequestMatch};
use super::redirect::PlannedRedirect;
use super::written::{WrittenMatches, WrittenRule};
use super::{methods, session, timing};
use crate::engine::{Unit, namespace_of};
use crate::regex::{Regexes, TooMany, literal_start};
use crate::resolve::client_fields::{self, KEPT, KEPT_REMEDY};

/// A rule as it takes effect.
#[derive(Debug)]
pub(super) struct PlannedRule {
    /// The name.
    pub name: Option<Box<str>>,
    /// The matches.
    pub matches: Vec<PlannedMatch>,
    /// The action on what they take.
    pub action: PlannedAction,
    /// The rules beside match and action.
    pub policy: Policy,
    /// The units that all of this needs.
    pub needs: Vec<Unit>,
    /// The status of what is refused.
    pub refusal: u16,
    /// All that is wrong.
    pub faults: RuleFaults,
}

/// A match of a rule.
#[derive(Debug)]
pub(super) struct PlannedMatch {
    /// Its number in the rule.
    pub number: u16,
    /// The requests.
    pub taken: RequestMatch,
}

/// The action of a rule, as far as it does not depend on the listener.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlannedAction {
    /// Requests are led elsewhere.
    Redirect(PlannedRedirect),
    /// Each share of them has its backend.
    Forward(Vec<PlannedShare>),
}

impl PlannedAction {
    /// Whether it is another one at listeners with other ports.
    pub(super) fn is_by_port(&self) -> bool {
        match self {
            PlannedAction::Redirect(redirect) => redirect.is_by_port(),
            PlannedAction::Forward(shares) => shares.iter().any(PlannedShare::is_by_port),
        }
    }

    /// The action at listeners with this port, or with many of them.
    pub(super) fn at(&self, port: Option<u16>) -> Action {
        match self {
            PlannedAction::Redirect(redirect) => Action::Redirect(redirect.at(port)),
            PlannedAction::Forward(shares) => {
                let shares: Arc<[_]> = shares.iter().map(|share| share.at(port)).collect();
                Action::Forward(shares)
            }
        }
    }

    /// The upstreams that requests are sent to.
    pub(super) fn upstreams(&self) -> impl Iterator<Item = &str> {
        let shares = match self {
            PlannedAction::Redirect(_) => &[][..],
            PlannedAction::Forward(shares) => shares.as_slice(),
        };
        shares.iter().filter_map(PlannedShare::upstream)
    }
}

impl PlannedRule {
    /// Refuses all that its matches take.
    fn close(&mut self) {
        self.action = PlannedAction::Forward(vec![PlannedShare::refusing(self.refusal)]);
        self.policy = Policy {
            underscores: self.policy.underscores,
            path_reading: self.policy.path_reading,
            ..timing::usual()
        };
        self.needs.clear();
    }

    /// Leaves what endpoints of others than a namespace are told of clients as it is: they are lent
    /// to serve requests, and not to believe of them what whoever writes the rule says.
    pub(super) fn keep_client(&mut self, namespace: &str) {
        let PlannedAction::Forward(shares) = &mut self.action else {
            return;
        };
        let mut copies = self.policy.mirrors.iter();
        // A copy has what is changed for the backend as well.
        let copied = copies.any(|mirror| namespace_of(mirror.upstream.as_str()) != namespace);
        let (mut leads_away, mut is_left) = (copied, false);
        for share in shares.iter_mut() {
            if !copied && !share.leads_away(namespace) {
                continue;
            }
            leads_away = true;
            is_left |= share.keep_client();
        }
        if leads_away {
            is_left |= client_fields::keep_client(&mut self.policy.headers);
        }
        if is_left {
            self.faults.omit("filters", KEPT, KEPT_REMEDY);
        }
    }

    /// Whether a rule of less precedence may let through what this one does not.
    fn restricts(&self, is_refused: bool) -> bool {
        let is_redirect = matches!(self.action, PlannedAction::Redirect(_));
        let is_asked = self.policy.authorizer.is_some();
        is_refused || is_redirect || is_asked || self.faults.dropping().is_some()
    }

    /// Takes the regexes of all matches into account. A match with one beyond the bound cannot be
    /// asked; where its rule restricts, what is known of it is refused with the rest.
    fn admit(&mut self, is_refused: bool, regexes: &mut Regexes) {
        let restricts = self.restricts(is_refused);
        let mut kept = Vec::with_capacity(self.matches.len());
        for mut matched in std::mem::take(&mut self.matches) {
            let RequestMatch {
                path, conditions, ..
            } = &mut matched.taken;
            let Err(TooMany(max)) = regexes.admit_all(path, conditions, &self.policy) else {
                kept.push(matched);
                continue;
            };
            self.faults.drop(
                format!("matches[{}]", matched.number),
                format!("has a regex beyond the {max} that a route may have"),
                "write plain prefixes where they do, or raise --regexes-per-host",
            );
            if restricts {
                widen(path, conditions);
                kept.push(matched);
            }
        }
        self.matches = kept;
    }
}

/// Leaves the regexes of a match out: it takes at least as much.
fn widen(path: &mut PathMatch, conditions: &mut Vec<ValueMatch>) {
    if let PathMatch::Regex(pattern) = path {
        *path = match literal_start(pattern) {
            start if start == "/" => PathMatch::Prefix("/".into()),
            start => PathMatch::Start(start.into()),
        };
    }
    conditions.retain(|condition| match condition.test {
        Test::Regex(_) => false,
        Test::Exact(_) | Test::Present | Test::Start(_) => true,
    });
}

/// Reads a rule, which `seed` tells from all others.
pub(super) fn read(rule: &WrittenRule<'_>, seed: &str, kit: &mut RuleKit<'_>) -> PlannedRule {
    let mut faults = RuleFaults::default();
    let matches = matches(rule, &mut faults);
    let mut budget = FilterBudget::ALL;
    let site = FilterSite {
        rule,
        filters: rule.filters,
        field: "filters",
        is_share: false,
    };
    let mut filters = filters::read(&site, &mut budget, kit, &mut faults);
    let (shares, of_shares) = backends::read(rule, budget, kit, &mut faults);
    let mut policy = Policy {
        underscores: kit.underscores,
        path_reading: PathReading::Base,
        headers: filters.edits(),
        cors: filters.cors.take(),
        authorizer: filters.authorizer.take(),
        ..timing::usual()
    };
    let mut needs = std::mem::take(&mut filters.needs);
    needs.extend(of_shares);
    let is_refused = filters.is_refused;
    let action = match filters.redirect.take() {
        Some(redirect) => {
            tell_beside_redirect(rule, &filters, &mut faults);
            PlannedAction::Redirect(redirect)
        }
        None => {
            policy.rewrite = filters.rewrite.take();
            policy.mirrors = std::mem::take(&mut filters.mirrors).into();
            forward(rule, (seed, &matches), &mut policy, &mut faults);
            match shares.is_empty() {
                true => PlannedAction::Forward(vec![PlannedShare::refusing(rule.refusal())]),
                false => PlannedAction::Forward(shares),
            }
        }
    };
    let mut planned = PlannedRule {
        name: rule.name.map(Into::into),
        matches,
        action,
        policy,
        needs,
        refusal: rule.refusal(),
        faults,
    };
    if is_refused || planned.policy.authorizer.is_some() {
        let unread = unread(rule, &planned.matches);
        planned.matches.extend(unread);
    }
    planned.admit(is_refused, &mut kit.regexes);
    if is_refused || planned.faults.dropping().is_some() {
        planned.close();
    }
    planned
}

/// Sets what is about requests that are sent on.
fn forward(
    rule: &WrittenRule<'_>,
    (seed, matches): (&str, &[PlannedMatch]),
    policy: &mut Policy,
    faults: &mut RuleFaults,
) {
    if let Some(written) = rule.timeouts {
        timing::limit(written, policy, faults);
    }
    if let Some(written) = rule.retry {
        policy.retry = Some(Box::new(timing::retry(written, faults)));
    }
    if let Some(written) = rule.session {
        let mut paths = matches.iter().map(|matched| &matched.taken.path);
        let affinity = session::read(written, seed, &mut paths, faults);
        policy.affinity = affinity.map(Box::new);
    }
}

/// Adds what has no effect beside a redirect, or may not stand there.
fn tell_beside_redirect(rule: &WrittenRule<'_>, filters: &FilterSet, faults: &mut RuleFaults) {
    if !rule.backends.is_empty() {
        faults.oppose(
            "backendRefs",
            "stands beside a RequestRedirect, by which no request is sent on",
            "keep one of them",
        );
    }
    if !filters.mirrors.is_empty() {
        faults.omit(
            "filters",
            "has a RequestMirror beside a RequestRedirect, which makes no copies",
            "remove it",
        );
    }
}

/// The matches of a rule that cannot be read, as far as they are known: nothing may go on unasked
/// since one of them is none.
fn unread(rule: &WrittenRule<'_>, found: &[PlannedMatch]) -> Vec<PlannedMatch> {
    let at_least = |at: usize| match rule.matches {
        WrittenMatches::Http(written) => written.get(at).map(matching::at_least),
        WrittenMatches::Grpc(written) => written.get(at).map(methods::at_least),
    };
    let unread = (0..=u16::MAX).filter(|number| found.iter().all(|it| it.number != *number));
    let planned = unread.map_while(|number| {
        let mut taken = at_least(usize::from(number))?;
        widen(&mut taken.path, &mut taken.conditions);
        Some(PlannedMatch { number, taken })
    });
    planned.collect()
}

/// The matches of a rule that can be read.
fn matches(rule: &WrittenRule<'_>, faults: &mut RuleFaults) -> Vec<PlannedMatch> {
    let mut found = Vec::new();
    let mut add = |number: usize, taken: Option<RequestMatch>| {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        found.extend(taken.map(|taken| PlannedMatch { number, taken }));
    };
    match rule.matches {
        WrittenMatches::Http([]) => add(0, matching::of_http(None, "matches", faults)),
        WrittenMatches::Grpc([]) => add(0, methods::of_grpc(None, "matches", faults)),
        WrittenMatches::Http(matches) => {
            for (at, matched) in matches.iter().enumerate() {
                let field = format!("matches[{at}]");
                add(at, matching::of_http(Some(matched), &field, faults));
            }
        }
        WrittenMatches::Grpc(matches) => {
            for (at, matched) in matches.iter().enumerate() {
                let field = format!("matches[{at}]");
                add(at, methods::of_grpc(Some(matched), &field, faults));
            }
        }
    }
    found
}
