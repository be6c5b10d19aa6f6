//! The filters of a rule, or of one of its backends.

use std::collections::BTreeSet;

use myriad_api::gateway::{ExternalAuth, LocalObjectReference, RouteFilter};
use myriad_model::{Cors, HeaderEdit, HeaderEdits, Mirror, Provider, Rewrite};

use super::fault::{CORRECT, Gravity, RuleFault, RuleFaults};
use super::headers::HEADER_BYTES_MAX;
use super::kit::RuleKit;
use super::mirror::MIRRORS_MAX;
use super::redirect::PlannedRedirect;
use super::written::WrittenRule;
use super::{authorizer, cors, headers, mirror, redirect, rewrite};
use crate::dialect::gateway::backend_problem::BackendProblem;
use crate::engine::Unit;

/// How much the filters of a rule and of one of its backends may yet do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterBudget {
    /// The bytes of header fields.
    pub header_bytes: usize,
    /// The copies of requests.
    pub mirrors: usize,
}

impl FilterBudget {
    /// All of it.
    pub(super) const ALL: FilterBudget = FilterBudget {
        header_bytes: HEADER_BYTES_MAX,
        mirrors: MIRRORS_MAX,
    };
}

/// Filters that stand together.
#[derive(Clone, Copy)]
pub(super) struct FilterSite<'a> {
    /// The rule.
    pub rule: &'a WrittenRule<'a>,
    /// The filters.
    pub filters: &'a [RouteFilter],
    /// The field of the rule where they stand.
    pub field: &'a str,
    /// Whether they are those of a backend.
    pub is_share: bool,
}

/// All that filters do.
#[derive(Debug, Default)]
pub(super) struct FilterSet {
    /// The changes of header fields of requests.
    pub request: HeaderEdit,
    /// The changes of header fields of responses.
    pub response: HeaderEdit,
    /// The copies.
    pub mirrors: Vec<Mirror>,
    /// The answer that leads elsewhere.
    pub redirect: Option<PlannedRedirect>,
    /// The change of the target.
    pub rewrite: Option<Box<Rewrite>>,
    /// The other origins that may ask.
    pub cors: Option<Box<Cors>>,
    /// The server that is asked.
    pub authorizer: Option<Box<Provider>>,
    /// The units that all of this needs.
    pub needs: Vec<Unit>,
    /// Whether nothing may be answered but an error, since a filter cannot be honoured.
    pub is_refused: bool,
}

impl FilterSet {
    /// The changes of header fields.
    pub(super) fn edits(&mut self) -> Option<Box<HeaderEdits>> {
        let edits = HeaderEdits {
            request: std::mem::take(&mut self.request),
            response: std::mem::take(&mut self.response),
        };
        let is_empty = edits.request.is_empty() && edits.response.is_empty();
        (!is_empty).then(|| Box::new(edits))
    }

    fn add(
        &mut self,
        filter: &RouteFilter,
        (field, site): (&str, &FilterSite<'_>),
        budget: &mut FilterBudget,
        kit: &mut RuleKit<'_>,
        faults: &mut RuleFaults,
    ) {
        let is_by_prefix = site.rule.is_by_prefix();
        match filter {
            RouteFilter::RequestHeaderModifier(written) => {
                let field = format!("{field}.requestHeaderModifier");
                self.request = headers::read(written, &field, &mut budget.header_bytes, faults);
            }
            RouteFilter::ResponseHeaderModifier(written) => {
                let field = format!("{field}.responseHeaderModifier");
                self.response = headers::read(written, &field, &mut budget.header_bytes, faults);
            }
            RouteFilter::RequestMirror(written) => {
                let field = format!("{field}.requestMirror");
                let way = (&*field, site.rule.used());
                let made = mirror::read(written, way, &mut budget.mirrors, kit, faults);
                if let Some((unit, mirror)) = made {
                    self.needs.push(unit);
                    self.mirrors.push(mirror);
                }
            }
            RouteFilter::RequestRedirect(written) => {
                let field = format!("{field}.requestRedirect");
                self.redirect = redirect::read(written, &field, is_by_prefix, faults);
            }
            RouteFilter::UrlRewrite(written) => {
                let field = format!("{field}.urlRewrite");
                let rewrite = rewrite::read(written, &field, is_by_prefix, faults);
                self.rewrite = rewrite.map(Box::new);
            }
            RouteFilter::Cors(written) => {
                let made = cors::read(written, &format!("{field}.cors"), faults);
                self.cors = Some(Box::new(made));
            }
            RouteFilter::ExternalAuth(written) => {
                self.ask(written, (field, site.is_share), kit, faults);
            }
            RouteFilter::ExtensionRef(written) => self.refuse(written, field, faults),
            RouteFilter::Other(kind) => faults.drop(
                format!("{field}.type"),
                format!("is {kind}, which is no filter of such a route that is known"),
                CORRECT,
            ),
        }
    }

    fn ask(
        &mut self,
        written: &ExternalAuth,
        (field, is_share): (&str, bool),
        kit: &mut RuleKit<'_>,
        faults: &mut RuleFaults,
    ) {
        if is_share {
            faults.drop(
                field,
                "asks a server about the requests of one backend, which only a rule may",
                "write it among the filters of the rule",
            );
            return;
        }
        match authorizer::read(written, &format!("{field}.externalAuth"), kit, faults) {
            Some((unit, provider)) => {
                self.needs.push(unit);
                self.authorizer = Some(Box::new(provider));
            }
            None => self.is_refused = true,
        }
    }

    fn refuse(&mut self, written: &LocalObjectReference, field: &str, faults: &mut RuleFaults) {
        self.is_refused = true;
        let LocalObjectReference { group, kind, name } = written;
        faults.push(RuleFault {
            field: format!("{field}.extensionRef"),
            message: format!(
                "names {kind} {name} of group {group:?}, which is no filter that is known: its \
                 requests are refused"
            ),
            remedy: "remove it",
            gravity: Gravity::Unresolved(BackendProblem::InvalidKind),
        });
    }
}

/// Reads filters.
pub(super) fn read(
    site: &FilterSite<'_>,
    budget: &mut FilterBudget,
    kit: &mut RuleKit<'_>,
    faults: &mut RuleFaults,
) -> FilterSet {
    let mut found = FilterSet::default();
    let mut kinds = BTreeSet::new();
    for (at, filter) in site.filters.iter().enumerate() {
        let field = format!("{}[{at}]", site.field);
        if !may_repeat(filter) && !kinds.insert(filter.kind()) {
            faults.oppose(
                field,
                format!("is a second {}", filter.kind()),
                "write one filter of each such type",
            );
            continue;
        }
        found.add(filter, (&field, site), budget, kit, faults);
    }
    if kinds.contains("RequestRedirect") && kinds.contains("URLRewrite") {
        faults.oppose(
            site.field,
            "has both RequestRedirect and URLRewrite",
            "keep one of them",
        );
    }
    found
}

fn may_repeat(filter: &RouteFilter) -> bool {
    match filter {
        RouteFilter::RequestMirror(_) | RouteFilter::ExtensionRef(_) | RouteFilter::Other(_) => {
            true
        }
        RouteFilter::RequestHeaderModifier(_)
        | RouteFilter::ResponseHeaderModifier(_)
        | RouteFilter::RequestRedirect(_)
        | RouteFilter::UrlRewrite(_)
        | RouteFilter::Cors(_)
        | RouteFilter::ExternalAuth(_) => false,
    }
}
