//! File descriptors: the soft limit is raised to what connections need, and connections are lowered
//! to what the system allows, so that a proxy at its limit keeps its clients waiting in the queue
//! of a socket, and never has a client without a descriptor left for its endpoint.

use std::fmt;
use std::sync::Arc;

use myriad_api::{Finding, Report, Severity};
use myriad_base::metrics::{Gauge, Metrics};
use myriad_proxy::{Limits, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::board::Board;

/// The most descriptors that are kept for files, sockets that listen, pages, and whoever is
/// followed.
const RESERVE_MAX: u64 = 1_024;

/// The part of the descriptors that this reserve is at most.
const RESERVE_PART: u64 = 4;

/// The descriptors of a worker that endpoints have where there are enough for them, however many
/// clients come.
const ENDPOINTS_MIN: u64 = 4_096;

/// The part of the descriptors of a worker that endpoints have where there are few.
const ENDPOINTS_PART: u64 = 4;

/// The part of the descriptors of endpoints that idle connections have.
const IDLE_PART: u64 = 8;

/// The part of the descriptors of endpoints that flows of datagrams have, where there are any.
const FLOWS_PART: u64 = 4;

/// The part of the descriptors of clients that silent ones have beyond the limit of all.
const SPARE_PART: u64 = 8;

/// The descriptors that were needed, and the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The descriptors that `connections` and their endpoints need, with the reserve.
    pub needed: u64,
    /// The descriptors that the process may have open.
    pub had: u64,
    /// Connections of clients for each worker, as they were set.
    pub connections_set: usize,
    /// Connections of clients for each worker, as there is room.
    pub connections: usize,
}

/// Raises the soft limit to what the settings need, as far as the hard one lets it, and lowers
/// them to what was had.
pub fn provide(settings: &mut Settings) -> Descriptors {
    let workers = settings.workers.max(1) as u64;
    let needed = needed(workers, &settings.limits);
    let had = raise(needed);
    let connections_set = settings.limits.connections_max;
    if had < needed {
        lower(workers, had, &mut settings.limits);
    }
    Descriptors {
        needed,
        had,
        connections_set,
        connections: settings.limits.connections_max,
    }
}

/// Raises the soft limit as far as the hard one lets it, for a process whose clients are not
/// counted beforehand.
pub fn raise_all() -> u64 {
    raise(u64::MAX)
}

impl Descriptors {
    /// Shows them as metrics, in the log, and as a finding where there are too few.
    pub fn show(&self, board: &Board, metrics: &Metrics) {
        for (name, help, value) in [
            (
                "descriptors_max",
                "File descriptors that the process may have open",
                self.had,
            ),
            (
                "descriptors_needed",
                "File descriptors that connections, as they are set, and their endpoints need",
                self.needed,
            ),
        ] {
            let gauge: Gauge = Gauge::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            metrics.register(name, help, gauge);
        }
        tracing::info!("{self}");
        board.set_report(Report {
            subject: Arc::from("descriptors"),
            findings: self.finding().into_iter().collect(),
        });
    }

    /// Whether connections had to be lowered.
    pub fn is_short(&self) -> bool {
        self.connections < self.connections_set
    }

    fn finding(&self) -> Option<Finding> {
        self.is_short().then(|| Finding {
            severity: Severity::Warning,
            object: None,
            field: "connections".into(),
            message: self.to_string(),
            remedy: format!(
                "raise the hard limit of open files to {} (systemd: LimitNOFILE, containers: the \
                 runtime's default ulimit), or set --limit connections={}",
                self.needed, self.connections
            ),
            place: None,
        })
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Descriptors {
            needed,
            had,
            connections_set,
            connections,
        } = self;
        write!(
            f,
            "{had} file descriptors for {connections} connections per worker"
        )?;
        match self.is_short() {
            true => write!(f, "; {connections_set} connections would need {needed}"),
            false => Ok(()),
        }
    }
}

/// The descriptors for clients' connections, requests in flight and idle connections to endpoints.
fn needed(workers: u64, limits: &Limits) -> u64 {
    let clients = limits.connections_max as u64 + limits.spare_max as u64;
    let own = clients + of_endpoints(limits);
    workers.saturating_mul(own).saturating_add(RESERVE_MAX)
}

fn of_endpoints(limits: &Limits) -> u64 {
    limits.requests_max as u64 + limits.idle_endpoints_max as u64
}

/// Lowers limits to so many descriptors. Endpoints have three fifths of what a worker has where
/// that is little: each client may be in a request, and no domain has more than its share of the
/// last fifth of these. They have less where there are many clients, most of whom are idle.
fn lower(workers: u64, had: u64, limits: &mut Limits) {
    let reserve = RESERVE_MAX.min(had / RESERVE_PART);
    let own = (had - reserve) / workers;
    let endpoints = of_endpoints(limits)
        .min(ENDPOINTS_MIN.max(own / ENDPOINTS_PART))
        .min(own * 3 / 5);
    let idle = (endpoints / IDLE_PART).min(limits.idle_endpoints_max as u64);
    let least = |limit: &mut usize, room: u64| {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        *limit = room.clamp(1, (*limit).max(1));
    };
    // Those who are heard before anybody leaves for them have descriptors too.
    let clients = own - endpoints;
    let spare = (clients / SPARE_PART).min(limits.spare_max as u64).max(1);
    least(&mut limits.spare_max, spare);
    least(&mut limits.connections_max, clients.saturating_sub(spare));
    least(&mut limits.requests_max, endpoints - idle);
    least(&mut limits.flows_max, endpoints / FLOWS_PART);
    limits.idle_endpoints_max = usize::try_from(idle).unwrap_or(usize::MAX);
}

/// Raises the soft limit to a number, within the hard one; returns what it is then.
fn raise(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // None is no limit.
    let (soft, hard) = (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    );
    let wanted = needed.min(hard);
    if wanted <= soft {
        return soft;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays");
            soft
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_proxy::Limits;

    use super::{Descriptors, RESERVE_MAX, lower, needed};

    /// The most descriptors in use once limits were lowered to a number of descriptors.
    fn lowered(workers: u64, had: u64) -> (u64, Limits) {
        let mut limits = Limits::default();
        lower(workers, had, &mut limits);
        let clients = limits.connections_max + limits.spare_max;
        let own = clients + limits.requests_max + limits.idle_endpoints_max;
        (workers * own as u64, limits)
    }

    #[test]
    fn what_was_had_is_enough_for_what_is_left_and_a_reserve() {
        for workers in [1, 2, 16, 128] {
            for had in [64, 256, 512, 1_024, 4_096, 65_536, 524_288, 1_048_576] {
                if had < workers * 8 || had >= needed(workers, &Limits::default()) {
                    continue;
                }
                let (open, limits) = lowered(workers, had);
                let reserve = RESERVE_MAX.min(had / 4);
                assert!(
                    open + reserve <= had,
                    "{workers} workers, {had}: {limits:?}"
                );
                assert!(limits.connections_max > 0 && limits.requests_max > 0);
            }
        }
    }

    #[test]
    fn of_few_descriptors_every_client_has_one_for_its_endpoint_and_many_go_to_clients() {
        let (_, limits) = lowered(2, 512);
        assert_eq!((limits.connections_max, limits.requests_max), (68, 101));
        assert_eq!((limits.idle_endpoints_max, limits.spare_max), (14, 9));
        // A domain alone meets no bound of its share.
        assert!(limits.requests_max * 4 / 5 >= limits.connections_max);
        let (_, limits) = lowered(16, 524_288);
        assert_eq!((limits.connections_max, limits.spare_max), (24_464, 64));
    }

    #[test]
    fn a_finding_says_what_was_had_and_what_is_needed() {
        let short = Descriptors {
            needed: 173_056,
            had: 1_024,
            connections_set: 65_536,
            connections: 192,
        };
        let finding = short.finding().unwrap();
        let text = "1024 file descriptors for 192 connections per worker; 65536 connections would \
                    need 173056";
        assert_eq!(finding.message, text);
        assert!(finding.remedy.contains("LimitNOFILE"), "{finding:?}");
        let enough = Descriptors {
            had: 173_056,
            connections: 65_536,
            ..short
        };
        assert_eq!(enough.finding(), None);
    }

    #[test]
    fn nothing_is_said_where_connections_stay_as_they_were_set() {
        let mut limits = Limits {
            connections_max: 200,
            ..Limits::default()
        };
        let (needed, had) = (needed(1, &limits), 20_000);
        assert!(had < needed);
        lower(1, had, &mut limits);
        let stays = Descriptors {
            needed,
            had,
            connections_set: 200,
            connections: limits.connections_max,
        };
        assert_eq!(stays.finding(), None);
        let text = "20000 file descriptors for 200 connections per worker";
        assert_eq!(stays.to_string(), text);
    }
}
