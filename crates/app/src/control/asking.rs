//! The events that the control loop takes in between two cuts, and the proxies that ask it.
//!
//! Of both there is only so much before a cut: whoever sends without end delays no change.

use std::time::Duration;

use myriad_base::clock;
use tokio::sync::mpsc;

use super::callers::Callers;
use super::event::{Answer, INBOX_EVENTS_MAX};
use super::outlet::Outlet;
use super::queue::Holders;
use super::{Control, Event};

/// The processor time of questions of proxies after which those that remain wait for a cut.
pub(super) const ASKING_MAX: Duration = Duration::from_millis(5);

impl<O: Outlet> Control<O> {
    /// The same, which learns by `callers` who follows which view.
    pub fn with_callers(self, callers: &Callers) -> Self {
        Control {
            followers: callers.followers(),
            ..self
        }
    }

    /// Takes in what waits in the inbox: no more events than fit into it, for what comes meanwhile
    /// waits for a cut, and so does what is left once questions have taken their time or something
    /// was translated. Returns whether to go on.
    pub(super) fn take_waiting(&mut self, inbox: &mut mpsc::Receiver<Event>) -> bool {
        self.note_followers();
        self.asking = Duration::ZERO;
        for _ in 0..INBOX_EVENTS_MAX {
            if self.queue.is_full() || self.asking >= ASKING_MAX {
                break;
            }
            let Ok(event) = inbox.try_recv() else {
                break;
            };
            let translates = matches!(event, Event::Learned(_) | Event::Overrun(_));
            if !self.take(event) {
                return false;
            }
            if translates {
                break;
            }
        }
        true
    }

    /// Finds the view that a proxy asks for, unless it does not wait any more. What that takes is
    /// charged to the namespace of its Pod once it adds up, like other portions of views.
    pub(super) fn ask(&mut self, pod: &str, answer: Answer) {
        if answer.is_closed() {
            return;
        }
        let before = (self.processor_time)();
        self.beside.ask(&mut self.engine, pod, answer);
        self.tell_refused();
        let cost = (self.processor_time)().saturating_sub(before);
        self.asking += cost;
        let namespace = pod.split_once('/').map_or("", |(namespace, _)| namespace);
        if let Some(cost) = self.portions.add(namespace, cost, clock::now()) {
            self.charge(Holders::of(namespace.into()), cost, None);
        }
    }

    /// Tells of Pods whose proxies get no view.
    fn tell_refused(&mut self) {
        for (pod, problem) in self.beside.take_refused() {
            let findings = self.notices.tell_refused(&pod, problem, clock::now());
            self.find(findings);
        }
    }

    /// Notes who has begun to follow a view, or has ended to.
    fn note_followers(&mut self) {
        for (view, change) in self.followers.take() {
            self.beside.follow(&view, change);
        }
    }

    /// Takes away the views that no sidecar has followed for a while.
    pub(super) fn sweep(&mut self) {
        self.note_followers();
        let idle = self.beside.sweep();
        for view in &idle {
            self.remove_view(view);
        }
        if !idle.is_empty() {
            self.translate_views();
        }
    }
}
