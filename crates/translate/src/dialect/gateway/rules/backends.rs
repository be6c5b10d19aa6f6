//! The backends of a rule, each with its share of the requests.

use myriad_model::{HeaderEdits, Name, ShareAnswer, ShareFilters, WeightedUpstream};

use super::fault::RuleFaults;
use super::filters::{self, FilterBudget, FilterSite};
use super::kit::{RuleKit, upstream_of};
use super::redirect::PlannedRedirect;
use super::written::WrittenRule;
use crate::engine::{Unit, namespace_of};
use crate::resolve::client_fields;

/// The name of what answers by itself.
const NOWHERE: &str = "nowhere";

/// A share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedShare {
    upstream: Name,
    weight: u32,
    headers: Option<Box<HeaderEdits>>,
    filters: ShareFilters,
    redirect: Option<PlannedRedirect>,
}

impl PlannedShare {
    /// All requests, with this status.
    pub(super) fn refusing(status: u16) -> Self {
        PlannedShare {
            upstream: Name::new(NOWHERE),
            weight: 1,
            headers: None,
            filters: ShareFilters {
                answer: Some(ShareAnswer::Refuse(status)),
                ..ShareFilters::default()
            },
            redirect: None,
        }
    }

    /// Whether it leads clients to the port of the listener.
    pub(super) fn is_by_port(&self) -> bool {
        self.redirect
            .as_ref()
            .is_some_and(PlannedRedirect::is_by_port)
    }

    /// The upstream that its requests are sent to; none where it answers them itself.
    pub(super) fn upstream(&self) -> Option<&str> {
        let is_sent = self.filters.answer.is_none() && self.redirect.is_none();
        is_sent.then(|| self.upstream.as_str())
    }

    /// Whether its requests, or copies of them, are sent to endpoints of others than a namespace.
    pub(super) fn leads_away(&self, namespace: &str) -> bool {
        let copies = self.filters.mirrors.iter();
        let mut sent = copies
            .map(|mirror| mirror.upstream.as_str())
            .chain(self.upstream());
        sent.any(|upstream| namespace_of(upstream) != namespace)
    }

    /// Leaves what its endpoints are told of clients as it is; returns whether it was not.
    pub(super) fn keep_client(&mut self) -> bool {
        client_fields::keep_client(&mut self.headers)
    }

    /// The share at listeners with this port, or with many of them.
    pub(super) fn at(&self, port: Option<u16>) -> WeightedUpstream {
        let mut filters = self.filters.clone();
        if let Some(redirect) = &self.redirect {
            let answer = filters.answer.take();
            let answer = answer.unwrap_or_else(|| ShareAnswer::Redirect(redirect.at(port)));
            filters.answer = Some(answer);
        }
        WeightedUpstream {
            upstream: self.upstream.clone(),
            weight: self.weight,
            headers: self.headers.clone(),
            filters: (filters != ShareFilters::default()).then(|| Box::new(filters)),
        }
    }
}

/// Reads the backends of a rule, with the units that they need. Each may do as much as the filters
/// of the rule leave.
pub(super) fn read(
    rule: &WrittenRule<'_>,
    left: FilterBudget,
    kit: &mut RuleKit<'_>,
    faults: &mut RuleFaults,
) -> (Vec<PlannedShare>, Vec<Unit>) {
    let (mut shares, mut needs) = (Vec::with_capacity(rule.backends.len()), Vec::new());
    for (at, written) in rule.backends.iter().enumerate() {
        let (reference, refusal) = (&written.reference, rule.refusal());
        let field = format!("backendRefs[{at}]");
        let effect = format!("its share of requests gets {refusal}");
        let found = kit.find((&field, reference), rule.used(), &effect, faults);
        let field = format!("{field}.filters");
        let site = FilterSite {
            rule,
            filters: &written.filters,
            field: &field,
            is_share: true,
        };
        let mut budget = left;
        let mut filters = filters::read(&site, &mut budget, kit, faults);
        // One without a share is judged all the same.
        if reference.weight() == 0 {
            continue;
        }
        let found = found.filter(|_| !filters.is_refused);
        let redirect = filters.redirect.take();
        let upstream = match &found {
            Some(backend) => {
                let (unit, upstream) = upstream_of(backend);
                let is_sent = redirect.is_none();
                needs.extend(is_sent.then_some(unit));
                needs.append(&mut filters.needs);
                upstream
            }
            None => {
                // What is refused is not copied either, and nobody needs where it would be.
                filters.mirrors.clear();
                Name::new(NOWHERE)
            }
        };
        shares.push(PlannedShare {
            upstream,
            weight: reference.weight(),
            headers: filters.edits(),
            filters: ShareFilters {
                answer: found.is_none().then_some(ShareAnswer::Refuse(refusal)),
                rewrite: filters.rewrite.take(),
                mirrors: std::mem::take(&mut filters.mirrors).into(),
                cors: filters.cors.take(),
            },
            redirect,
        });
    }
    (shares, needs)
}
