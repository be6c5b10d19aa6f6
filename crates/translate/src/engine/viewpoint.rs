//! The questions that a unit may ask about the view that it is translated for, and which views give
//! the same answers.
//!
//! A unit is translated as if there were one view. Whatever it asks about that view is noted, in
//! order. Another view that would answer alike leads to the same output, since nothing else
//! tells the two apart, so the unit does not run again for it. The questions form a tree: views
//! part where their answers do.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use myriad_api::istio::Labels;

use super::ports::{PortClaim, PortKey};
use super::scope::Scope;
use super::stamp::{Slot, Stamp};
use super::unit::{Unit, UnitId};
use super::views::Standing;
use crate::settings::first_names;
use crate::view::Role;

/// A view as one run of a unit sees it.
pub struct Viewpoint<'a> {
    slot: Slot,
    standing: &'a Standing,
    /// None where there is no other view to tell apart.
    asked: Option<RefCell<Asked>>,
}

/// The questions that a unit asked, each once.
#[derive(Default)]
pub struct Asked {
    known: BTreeSet<Question>,
    steps: Vec<Step>,
}

/// A question and what one view answered.
pub(super) type Step = (Question, Answer);

/// A question whose answer may differ between views.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Whether its workload has a label.
    HasLabel(Box<str>, Box<str>),
    /// Whether it is of a namespace.
    IsNamespace(Box<str>),
    /// Its namespace.
    Namespace,
    /// The owner of a port.
    Port(PortKey),
    /// The owner of a number of TCP, or of UDP, at whatever address.
    PortNumber(u16, bool),
    /// Whether its namespace has rules for a host or wildcard.
    HasRules(Box<str>),
    /// Whether its namespace has a ServiceEntry for a host or wildcard as it is written.
    Declares(Box<str>),
    /// Whether the first unit needs the second for it.
    IsNeeded(UnitId, UnitId),
    /// The same of one that may not be there.
    IsNeededBy(Unit, UnitId),
    /// Whether it is a sidecar.
    IsSidecar,
    /// Whether it answers for Ingresses.
    IsIngress,
    /// Whether it is of one Gateway of Gateway API alone.
    IsDedicated,
    /// Whether it imports a host of a namespace at a port.
    Imports(Box<str>, Box<str>, u16),
    /// Whether it may connect to whom no object names; none where its scope does not say so.
    AllowsAny,
}

/// The answer of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes or no.
    Is(bool),
    /// Its namespace.
    Namespace(Box<str>),
    /// The owner of a port.
    Port(Option<PortClaim>),
    /// Yes, no, or as the settings have it.
    Maybe(Option<bool>),
}

impl<'a> Viewpoint<'a> {
    /// The viewpoint of one view. Where there are others, what is asked is noted.
    pub fn new(slot: Slot, standing: &'a Standing, is_alone: bool) -> Self {
        Viewpoint {
            slot,
            standing,
            asked: (!is_alone).then(RefCell::default),
        }
    }

    /// Whether nothing is noted of what it is asked.
    pub fn is_alone(&self) -> bool {
        self.asked.is_none()
    }

    /// Whether its workload has a label.
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        let has = self.standing.view.has_label(key, value);
        self.note(|| {
            let question = Question::HasLabel(key.into(), value.into());
            (question, Answer::Is(has))
        });
        has
    }

    /// Whether its workload has all these labels.
    pub fn has_labels(&self, wanted: &Labels) -> bool {
        let mut wanted = wanted.iter();
        wanted.all(|(key, value)| self.has_label(key, value))
    }

    /// Whether its workload is of a namespace.
    pub fn is_of(&self, namespace: &str) -> bool {
        let is = *self.standing.view.namespace == *namespace;
        self.note(|| (Question::IsNamespace(namespace.into()), Answer::Is(is)));
        is
    }

    /// The namespace of its workload. [`Viewpoint::is_of`] parts fewer views.
    pub fn namespace(&self) -> &'a str {
        let namespace = &self.standing.view.namespace;
        self.note(|| (Question::Namespace, Answer::Namespace(namespace.clone())));
        namespace
    }

    /// Whether it sees what an object of a namespace exports, by the first of the entries.
    pub fn sees(&self, export_to: &[Box<str>], own: &str) -> bool {
        export_to.is_empty()
            || first_names(export_to).iter().any(|to| match &**to {
                "*" => true,
                "." => self.is_of(own),
                "~" => false,
                only => self.is_of(only),
            })
    }

    /// The owner of a port on its proxies.
    pub fn port(&self, key: &PortKey) -> Option<&'a PortClaim> {
        let claim = self.standing.ports.winner(key);
        self.note(|| (Question::Port(key.clone()), Answer::Port(claim.cloned())));
        claim
    }

    /// The owner of a number on its proxies, of TCP or of UDP, at whatever address.
    pub fn port_number(&self, number: u16, is_udp: bool) -> Option<&'a PortClaim> {
        let claim = self.standing.ports.owner(number, is_udp);
        self.note(|| {
            let question = Question::PortNumber(number, is_udp);
            (question, Answer::Port(claim.cloned()))
        });
        claim
    }

    /// Whether it is one of those for which a unit needs another.
    pub fn is_needed(&self, needer: UnitId, need: UnitId, views: &Stamp) -> bool {
        let is = views.has(self.slot);
        self.note(|| (Question::IsNeeded(needer, need), Answer::Is(is)));
        is
    }

    /// Whether it is one of those for which a unit, which may not be there, needs another.
    pub fn is_needed_by(&self, needer: &Unit, need: UnitId, views: &Stamp) -> bool {
        let is = views.has(self.slot);
        self.note(|| {
            let question = Question::IsNeededBy(needer.clone(), need);
            (question, Answer::Is(is))
        });
        is
    }

    /// Whether it is a sidecar.
    pub fn is_sidecar(&self) -> bool {
        let is = self.standing.view.role == Role::Sidecar;
        self.note(|| (Question::IsSidecar, Answer::Is(is)));
        is
    }

    /// Whether it answers for Ingresses, and so has the default certificate.
    pub fn is_ingress(&self) -> bool {
        let is = self.standing.view.role == Role::Ingress;
        self.note(|| (Question::IsIngress, Answer::Is(is)));
        is
    }

    /// Whether it is of one Gateway of Gateway API alone.
    pub fn is_dedicated(&self) -> bool {
        let is = self.standing.view.role == Role::Dedicated;
        self.note(|| (Question::IsDedicated, Answer::Is(is)));
        is
    }

    /// Whether an Istio Gateway with this selector is for it.
    pub fn has_servers(&self, selector: &Labels) -> bool {
        self.has_labels(selector) && !self.is_dedicated()
    }

    /// Whether its scope lets it reach a port of a host of a namespace. Where that
    /// differs, the view is asked again.
    pub fn imports(&self, namespace: &str, host: &str, port: u16) -> bool {
        let is = imports(self.standing, namespace, host, port);
        self.note(|| {
            let question = Question::Imports(namespace.into(), host.into(), port);
            (question, Answer::Is(is))
        });
        is
    }

    /// Whether it may connect to services that no object names; `None` where its scope does not
    /// say. The caller noted that it asks.
    pub fn allows_any(&self) -> Option<bool> {
        let allows = self.standing.scope.allows_any();
        self.note(|| (Question::AllowsAny, Answer::Maybe(allows)));
        allows
    }

    /// Its scope, for who is translated for one workload alone and notes what it reads.
    pub fn scope_unasked(&self) -> &'a Scope {
        &self.standing.scope
    }

    /// The labels of its workload, for the same.
    pub fn labels_unasked(&self) -> &'a BTreeMap<String, String> {
        &self.standing.view.labels
    }

    /// Notes that its namespace has rules, or none, for a host or wildcard; asked with a
    /// namespace that [`Viewpoint::namespace_unasked`] told.
    pub fn note_rules(&self, pattern: &str, has: bool) {
        self.note(|| (Question::HasRules(pattern.into()), Answer::Is(has)));
    }

    /// Notes that its namespace has a ServiceEntry, or none, for a host or wildcard, as above.
    pub fn note_declared(&self, pattern: &str, has: bool) {
        self.note(|| (Question::Declares(pattern.into()), Answer::Is(has)));
    }

    /// The namespace, for who notes by itself what it reads there.
    pub fn namespace_unasked(&self) -> &'a str {
        &self.standing.view.namespace
    }

    /// The answer of a view.
    pub fn answer(
        standing: &Standing,
        question: &Question,
        (has_rules, declares): (impl Fn(&str, &str) -> bool, impl Fn(&str, &str) -> bool),
        (is_needed, is_needed_by): (
            impl Fn(UnitId, UnitId) -> bool,
            impl Fn(&Unit, UnitId) -> bool,
        ),
    ) -> Answer {
        let view = &standing.view;
        match question {
            Question::HasLabel(key, value) => Answer::Is(view.has_label(key, value)),
            Question::IsNamespace(namespace) => Answer::Is(view.namespace == *namespace),
            Question::Declares(pattern) => Answer::Is(declares(&view.namespace, pattern)),
            Question::Namespace => Answer::Namespace(view.namespace.clone()),
            Question::Port(key) => Answer::Port(standing.ports.winner(key).cloned()),
            Question::PortNumber(number, is_udp) => {
                Answer::Port(standing.ports.owner(*number, *is_udp).cloned())
            }
            Question::HasRules(pattern) => Answer::Is(has_rules(&view.namespace, pattern)),
            Question::IsNeeded(needer, need) => Answer::Is(is_needed(*needer, *need)),
            Question::IsNeededBy(needer, need) => Answer::Is(is_needed_by(needer, *need)),
            Question::IsSidecar => Answer::Is(view.role == Role::Sidecar),
            Question::IsIngress => Answer::Is(view.role == Role::Ingress),
            Question::IsDedicated => Answer::Is(view.role == Role::Dedicated),
            Question::Imports(namespace, host, port) => {
                Answer::Is(imports(standing, namespace, host, *port))
            }
            Question::AllowsAny => Answer::Maybe(standing.scope.allows_any()),
        }
    }

    /// The place of the view among all.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Sets aside what was asked so far, until [`Viewpoint::take_up`].
    pub fn set_aside(&self) -> Option<Asked> {
        self.asked.as_ref().map(RefCell::take)
    }

    /// Takes up again what was set aside; returns what was asked meanwhile.
    pub fn take_up(&self, before: Option<Asked>) -> Vec<Step> {
        match (&self.asked, before) {
            (Some(asked), Some(before)) => asked.replace(before).steps,
            _ => Vec::new(),
        }
    }

    /// Notes what was asked of this view before.
    pub fn note_steps(&self, steps: &[Step]) {
        for step in steps {
            self.note(|| step.clone());
        }
    }

    /// All that was asked, in order.
    pub fn into_steps(self) -> Vec<Step> {
        let asked = self.asked.map(RefCell::into_inner);
        asked.map(|asked| asked.steps).unwrap_or_default()
    }

    fn note(&self, step: impl FnOnce() -> Step) {
        if let Some(asked) = &self.asked {
            let (question, answer) = step();
            let mut asked = asked.borrow_mut();
            if asked.known.insert(question.clone()) {
                asked.steps.push((question, answer));
            }
        }
    }
}

fn imports(standing: &Standing, namespace: &str, host: &str, port: u16) -> bool {
    let own = &standing.view.namespace;
    standing.scope.imports(own, (namespace, host), port)
}

/// The tree of questions of one unit. What it says of a view holds as long as no object that
/// the unit read is another.
#[derive(Default)]
pub(super) struct Classes {
    nodes: Vec<Node>,
}

enum Node {
    /// A question, and the node that each answer leads to.
    Asks(Question, Vec<(Answer, usize)>),
    /// The number of the output.
    Ends(usize),
}

impl Classes {
    /// The number of the output that a view has; `None` where it has to be made.
    pub(super) fn find(&self, answer: impl Fn(&Question) -> Answer) -> Option<usize> {
        let mut at = 0;
        loop {
            match self.nodes.get(at)? {
                Node::Ends(number) => return Some(*number),
                Node::Asks(question, branches) => {
                    let given = answer(question);
                    let mut branches = branches.iter();
                    at = branches.find(|(known, _)| *known == given)?.1;
                }
            }
        }
    }

    /// Notes the number of the output that these answers led to.
    pub(super) fn insert(&mut self, steps: Vec<Step>, number: usize) {
        let mut at = 0;
        for (question, answer) in steps {
            if at == self.nodes.len() {
                self.nodes.push(Node::Asks(question, Vec::new()));
            }
            let next = self.nodes.len();
            // A unit asks the same as long as the answers are the same.
            let Some(Node::Asks(_, branches)) = self.nodes.get_mut(at) else {
                return;
            };
            match branches.iter().find(|(known, _)| *known == answer) {
                Some((_, known)) => at = *known,
                None => {
                    branches.push((answer, next));
                    at = next;
                }
            }
        }
        if at == self.nodes.len() {
            self.nodes.push(Node::Ends(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Classes, Question};

    #[test]
    fn views_part_where_their_answers_do() {
        let label = |key: &str| Question::HasLabel(key.into(), "".into());
        let mut classes = Classes::default();
        let find = |classes: &Classes, has: &[&str]| {
            classes.find(|question| match question {
                Question::HasLabel(key, _) => Answer::Is(has.contains(&&**key)),
                _ => panic!("nobody asked"),
            })
        };
        assert_eq!(find(&classes, &[]), None);
        let steps = vec![
            (label("a"), Answer::Is(true)),
            (label("b"), Answer::Is(false)),
        ];
        classes.insert(steps, 0);
        assert_eq!(find(&classes, &["a"]), Some(0));
        assert_eq!(find(&classes, &["a", "c"]), Some(0), "nobody asked for c");
        assert_eq!(find(&classes, &["a", "b"]), None);
        assert_eq!(find(&classes, &[]), None);
        classes.insert(vec![(label("a"), Answer::Is(false))], 1);
        assert_eq!(find(&classes, &["b"]), Some(1));
        assert_eq!(find(&classes, &["a"]), Some(0));
        let mut unasked = Classes::default();
        unasked.insert(Vec::new(), 0);
        assert_eq!(find(&unasked, &["a"]), Some(0));
    }
}
