//! The values that were picked from the three prefixes, and what was found wrong with them.

use std::collections::BTreeMap;
use std::fmt::Display;

use myriad_api::Severity;
use myriad_model::SourceRanges;

use super::{AnnotationProblem, Blocked, values};

/// The effect of a value that cannot be read, where leaving it out would open something.
const PATHS_CLOSED: &str = "so the paths of this Ingress answer 503";

/// The effect where it would open something on whole hosts.
const HOSTS_CLOSED: &str = "so all paths of its hosts answer 503";

/// One value per honoured name.
#[derive(Default)]
pub(super) struct Sheet<'a> {
    picked: BTreeMap<&'static str, Picked<'a>>,
    /// The problems that were found so far.
    pub problems: Vec<AnnotationProblem>,
    /// The paths that have to stay closed so far.
    pub blocked: Blocked,
}

#[derive(Clone, Copy)]
struct Picked<'a> {
    rank: usize,
    key: &'a str,
    value: &'a str,
}

impl<'a> Sheet<'a> {
    /// Takes a value, unless one of a better prefix is there.
    pub(super) fn pick(&mut self, name: &'static str, rank: usize, key: &'a str, value: &'a str) {
        let picked = Picked { rank, key, value };
        let known = self.picked.entry(name).or_insert(picked);
        if rank < known.rank {
            *known = picked;
        }
    }

    /// The value as written.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.picked.get(name).map(|picked| picked.value)
    }

    /// The value as `reader` reads it; where it cannot, a finding that says what is expected.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        expected: &str,
        reader: impl Fn(&'a str) -> Option<T>,
    ) -> Option<T> {
        let picked = *self.picked.get(name)?;
        let value = reader(picked.value.trim());
        if value.is_none() {
            self.invalid(picked, "so it has no effect", expected);
        }
        value
    }

    /// Like [`Sheet::read`], for values whose absence would open something: a value that cannot
    /// be read closes the paths of the Ingress.
    pub(super) fn read_closing<T>(
        &mut self,
        name: &str,
        expected: &str,
        reader: impl Fn(&'a str) -> Option<T>,
    ) -> Option<T> {
        let picked = *self.picked.get(name)?;
        let value = reader(picked.value.trim());
        if value.is_none() {
            self.invalid(picked, PATHS_CLOSED, expected);
            self.blocked = self.blocked.max(Blocked::Paths);
        }
        value
    }

    /// Like [`Sheet::read_closing`], for values that hold for the hosts of the Ingress as a whole.
    pub(super) fn read_closing_hosts<T>(
        &mut self,
        name: &str,
        expected: &str,
        reader: impl Fn(&'a str) -> Option<T>,
    ) -> Option<T> {
        let picked = *self.picked.get(name)?;
        let value = reader(picked.value.trim());
        if value.is_none() {
            self.invalid(picked, HOSTS_CLOSED, expected);
            self.blocked = self.blocked.max(Blocked::Host);
        }
        value
    }

    /// Networks; none where they are too many or cannot be read, which closes the paths of the
    /// Ingress where they keep clients out.
    pub(super) fn networks(&mut self, name: &str, closes: bool) -> Option<SourceRanges> {
        let picked = *self.picked.get(name)?;
        let text = picked.value.trim();
        if let Some(networks) = values::networks(text) {
            return Some(networks);
        }
        let effect = match closes {
            true => PATHS_CLOSED,
            false => "so it has no effect",
        };
        match values::is_short(text) {
            true => {
                let expected = "write networks such as 10.0.0.0/8, separated by commas";
                self.invalid(picked, effect, expected);
            }
            false => {
                let message = format!("{}, {effect}", values::too_long());
                self.problem(Severity::Error, picked.key, message, values::FEWER_NETWORKS);
            }
        }
        if closes {
            self.blocked = self.blocked.max(Blocked::Paths);
        }
        None
    }

    /// A switch; off where it is absent or cannot be read.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.read(name, "write \"true\" or \"false\"", values::boolean) == Some(true)
    }

    /// Like [`Sheet::flag`], closing the paths of the Ingress where it cannot be read.
    pub(super) fn flag_closing(&mut self, name: &str) -> bool {
        self.read_closing(name, "write \"true\" or \"false\"", values::boolean) == Some(true)
    }

    /// Seconds from 1.
    pub(super) fn seconds(&mut self, name: &str) -> Option<u32> {
        self.read(name, "write a number of seconds from 1", values::seconds)
    }

    /// Notes a problem.
    pub(super) fn problem(
        &mut self,
        severity: Severity,
        key: &str,
        message: impl Display,
        remedy: impl Display,
    ) {
        self.problems.push(AnnotationProblem {
            severity,
            key: key.into(),
            message: message.to_string(),
            remedy: remedy.to_string(),
        });
    }

    fn invalid(&mut self, picked: Picked<'_>, effect: &str, expected: &str) {
        let shown = values::quote(picked.value);
        let message = format!("is {shown}, which is not understood, {effect}");
        self.problem(Severity::Error, picked.key, message, expected);
    }
}
