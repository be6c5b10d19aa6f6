//! A mass revocation: the authority wants all certificates renewed at once, while clients ask on
//! connections that they keep and on new ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use myriad_lab::pebble::PebbleCounts;
use serde::Serialize;

use super::arrivals::Arrival;
use super::client::Client;
use super::world::World;
use crate::activate::Pace;
use crate::load::{Load, Trouble};

/// How long traffic runs before it is measured, so that connections are made.
const WARMING: Duration = Duration::from_secs(1);

/// New connections per second, each to the next domain.
const NEW_RATE: f64 = 20.0;

/// How often it is looked how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How long certificates may take to be replaced: once all windows were looked at, so much, and so
/// much for each.
const REPLACED_TIMEOUT: Duration = Duration::from_secs(60);
const REPLACED_TIMEOUT_EACH: Duration = Duration::from_millis(200);

/// How long a certificate that was replaced may take to be served, and the status to be counted
/// anew.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The way in which it is carried out.
pub(super) struct Drill<'a> {
    /// The processes.
    pub world: &'a World,
    /// The client that makes new connections.
    pub client: &'a Client,
    /// The domains, and the certificates that they have.
    pub arrivals: &'a [Arrival],
    /// Requests per second on connections that are kept.
    pub rps: f64,
    /// The longest time between two looks at a window.
    pub look: Duration,
}

/// The figures of it.
#[derive(Debug, Serialize)]
pub(super) struct DrillFigures {
    /// Certificates that were to be replaced.
    certificates: usize,
    /// Certificates in whose place another one is served.
    replaced: usize,
    /// Orders that were placed for that, those that said what they replace, and certificates that
    /// were issued.
    orders: usize,
    replacements: usize,
    issued: usize,
    /// Certificates that the authority does not find again by what their orders say they replace.
    unfound: usize,
    /// Seconds until the authority wanted all of them renewed, and from there until they were.
    told_s: f64,
    replaced_s: f64,
    /// The status: certificates that were renewed, and the most that were left at a time.
    status_renewed: u64,
    status_left_max: u64,
    /// Requests on connections that were kept meanwhile, and those connections that broke.
    requests: u64,
    p99_ms: f64,
    broken: u64,
    /// New connections meanwhile.
    connections: u64,
    /// Requests and new connections that failed.
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// New connections, one after the other.
#[derive(Default)]
struct Fresh {
    made: u64,
    failed: u64,
    last_error: Option<String>,
}

/// The progress that was seen.
#[derive(Default)]
struct Progress {
    told: Duration,
    replaced: Duration,
    left_max: u64,
}

impl DrillFigures {
    /// Requests and connections that failed, certificates that were not replaced, and those that
    /// were issued beyond one for each.
    pub(super) fn errors_all(&self) -> u64 {
        let left = self.certificates.saturating_sub(self.replaced);
        let extra = self.issued.saturating_sub(self.certificates);
        self.errors + (left + extra) as u64
    }
}

impl Drill<'_> {
    /// Carries it out, and ends once all are replaced, or it takes too long.
    ///
    /// # Errors
    /// A process has ended, or the authority does not do what it is told.
    pub(super) fn run(&self) -> anyhow::Result<DrillFigures> {
        let world = self.world;
        let before = world.authority.counts()?;
        let hosts: Vec<String> = self.arrivals.iter().map(|it| it.host.clone()).collect();
        let load = Load::start(world.https(), &hosts, self.rps)?;
        std::thread::sleep(WARMING);
        load.take();
        let is_over = AtomicBool::new(false);
        let (progress, fresh) = std::thread::scope(|scope| {
            let fresh = scope.spawn(|| self.connect_until(&is_over));
            let progress = self.replace();
            is_over.store(true, Ordering::Relaxed);
            let fresh = fresh.join().ok().context("it panicked").flatten();
            anyhow::Ok((progress?, fresh?))
        })?;
        let (replaced, not) = self.look_at_all()?;
        let renewed = self.wait_for_status()?;
        let kept = load.take();
        load.stop()?;
        let after = world.authority.counts()?;
        let count = |of: fn(&PebbleCounts) -> usize| of(&after).saturating_sub(of(&before));
        let failed: u64 = kept.errors.values().sum();
        let broken = kept.errors.get(&Trouble::Connection);
        Ok(DrillFigures {
            certificates: hosts.len(),
            replaced,
            orders: count(|it| it.orders),
            replacements: count(|it| it.replacements),
            issued: count(|it| it.issued),
            unfound: self
                .arrivals
                .iter()
                .filter(|it| is_unfound(&it.leaf))
                .count(),
            told_s: seconds(progress.told),
            replaced_s: seconds(progress.replaced),
            status_renewed: renewed,
            status_left_max: progress.left_max,
            requests: kept.requests,
            p99_ms: kept.p99_ms,
            broken: broken.copied().unwrap_or(0),
            connections: fresh.made,
            errors: failed + fresh.failed,
            last_error: kept.last_error.or(fresh.last_error).or(not),
        })
    }

    /// Has the authority want all of them renewed, and waits until they are.
    fn replace(&self) -> anyhow::Result<Progress> {
        let (world, count) = (self.world, self.arrivals.len());
        let renewed = world.renewed()?;
        let begun = Instant::now();
        let mut management = world.authority.manage()?;
        for arrival in self.arrivals {
            management.renew_now(&arrival.leaf)?;
        }
        let mut progress = Progress {
            told: begun.elapsed(),
            ..Progress::default()
        };
        let told = Instant::now();
        let each = REPLACED_TIMEOUT_EACH * u32::try_from(count)?;
        let most = 2 * self.look + REPLACED_TIMEOUT + each;
        while world.renewed()?.saturating_sub(renewed) < count as u64 && told.elapsed() < most {
            let left = world.obtained()?.unwrap_or_default().renewing;
            progress.left_max = progress.left_max.max(left);
            std::thread::sleep(LOOK_INTERVAL);
        }
        progress.replaced = told.elapsed();
        Ok(progress)
    }

    /// Makes new connections until something is over.
    fn connect_until(&self, is_over: &AtomicBool) -> anyhow::Result<Fresh> {
        let runtime = self.world.runtime()?;
        let (mut fresh, mut pace) = (Fresh::default(), Pace::new(NEW_RATE));
        for arrival in self.arrivals.iter().cycle() {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            pace.wait();
            fresh.made += 1;
            if let Err(error) = runtime.block_on(self.client.ask(&arrival.host)) {
                fresh.failed += 1;
                fresh.last_error = Some(format!("{}: {error:#}", arrival.host));
            }
        }
        Ok(fresh)
    }

    /// The number of domains that are served with another certificate, and one that is not.
    fn look_at_all(&self) -> anyhow::Result<(usize, Option<String>)> {
        let (runtime, begun) = (self.world.runtime()?, Instant::now());
        let (mut replaced, mut not) = (0, None);
        for arrival in self.arrivals {
            let is_new = || {
                let leaf = runtime.block_on(self.client.ask(&arrival.host));
                leaf.is_ok_and(|leaf| leaf != arrival.leaf)
            };
            // A proxy may have it a moment later than the one that has obtained it.
            let mut is_replaced = is_new();
            while !is_replaced && begun.elapsed() < SHOWN_TIMEOUT {
                std::thread::sleep(LOOK_INTERVAL);
                is_replaced = is_new();
            }
            match is_replaced {
                true => replaced += 1,
                false => not = Some(format!("{} has its old certificate", arrival.host)),
            }
        }
        Ok((replaced, not))
    }

    /// The number of certificates that the status says were renewed, once that is all of them.
    fn wait_for_status(&self) -> anyhow::Result<u64> {
        let begun = Instant::now();
        loop {
            let renewed = self.world.obtained()?.unwrap_or_default().renewed;
            let is_all = renewed >= self.arrivals.len() as u64;
            if is_all || begun.elapsed() > SHOWN_TIMEOUT {
                return Ok(renewed);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// Whether Pebble 2.10.1 does not find a certificate again that is to be replaced: it compares
/// serial numbers as bytes, with and without the zero that positive ones may begin with in DER.
fn is_unfound(leaf: &[u8]) -> bool {
    // The third version of certificates, behind which the serial number is.
    const VERSION: [u8; 5] = [0xa0, 3, 2, 1, 2];
    let at = leaf.windows(VERSION.len()).position(|it| it == VERSION);
    let serial = at.and_then(|at| leaf.get(at + VERSION.len()..));
    matches!(serial, Some([2, _, 0, ..]))
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SerialNumber};

    use super::is_unfound;

    #[test]
    fn serial_numbers_with_a_leading_zero_are_told_apart() {
        let leaf = |serial: &[u8]| {
            let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
            params.serial_number = Some(SerialNumber::from_slice(serial));
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        assert!(is_unfound(&leaf(&[0x80, 1, 2, 3])));
        assert!(!is_unfound(&leaf(&[0x7f, 1, 2, 3])));
        assert!(!is_unfound(b""));
    }
}
