//! How much of the memory that the process may have is in use, and what is shed then.
//!
//! The kernel says once per second how much there is in use, and more often while that is much and
//! many requests come. New work is shed in steps before
//! there is no memory left, since a process that the kernel ends sheds everything.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use myriad_base::kernel;
use myriad_base::log::sparse::SparseLines;
use myriad_base::metrics::{Counter, Gauge, Metrics};

use super::spaces::AllSpaces;

/// The steps, each with the part of the budget from which on it is taken, in per cent.
const STEPS: [(PressureStep, u64); 3] = [
    (PressureStep::ShedAll, 95),
    (PressureStep::ShedLargest, 90),
    (PressureStep::EndIdle, 80),
];

/// How far below that the step is taken back, in per cent of the budget.
const SLACK: u64 = 5;

/// The most that is read of what the kernel says.
const FILE_BYTES_MAX: u64 = 128;

/// A step that is taken while memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PressureStep {
    /// Nothing.
    None,
    /// Connections end with the request they are in.
    EndIdle,
    /// Domains that hold more than twice the mean get no more connections and requests.
    ShedLargest,
    /// Only domains of namespaces that hold next to nothing do.
    ShedAll,
}

/// The memory of the process.
pub struct Pressure {
    /// The budget in bytes; none for no budget.
    max: Option<u64>,
    used: AtomicU64,
    /// The bytes that all workers hold for clients, as far as they have told it.
    held: AtomicUsize,
    /// The same by namespace.
    pub spaces: AllSpaces,
    step: AtomicU8,
    shown: Shown,
    lines: SparseLines,
}

#[derive(Default)]
struct Shown {
    used: Gauge<i64, AtomicI64>,
    held: Gauge<i64, AtomicI64>,
    step: Gauge<i64, AtomicI64>,
    steps: Counter,
}

impl Pressure {
    /// A state without pressure, below this budget.
    pub fn new(max: Option<u64>) -> Self {
        Pressure {
            max: max.filter(|max| *max > 0),
            used: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            spaces: AllSpaces::default(),
            step: AtomicU8::new(PressureStep::None as u8),
            shown: Shown::default(),
            lines: SparseLines::untold(),
        }
    }

    /// The same for a process, which shows it in its metrics.
    pub fn of_process(max: Option<u64>, metrics: &Metrics) -> Self {
        let pressure = Pressure::new(max);
        pressure.register(metrics);
        pressure
    }

    fn register(&self, metrics: &Metrics) {
        let max = Gauge::<i64, AtomicI64>::default();
        max.set(
            self.max
                .map_or(0, |max| i64::try_from(max).unwrap_or(i64::MAX)),
        );
        let help = "The memory that the process may have; 0 for no budget";
        metrics.register("memory_max_bytes", help, max);
        let help = "The memory in use but for pages of files, as the kernel counts it";
        metrics.register("memory_used_bytes", help, self.shown.used.clone());
        let help = "The bytes that are held for clients, of all workers; held_bytes bounds them";
        metrics.register("held_client_bytes", help, self.shown.held.clone());
        let help = "What is shed: 0 nothing, 1 idle connections, 2 new work of the largest, 3 all";
        metrics.register("memory_pressure", help, self.shown.step.clone());
        let help = "Times that a step of shedding was taken";
        metrics.register("memory_pressure_steps", help, self.shown.steps.clone());
    }

    /// The budget in bytes; none for no budget.
    pub fn max(&self) -> Option<u64> {
        self.max
    }

    /// The bytes that all workers hold for clients, as far as they have told it.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Takes note of what one worker holds, and of what it has told before.
    pub fn hold(&self, before: usize, now: usize) {
        match now.checked_sub(before) {
            Some(more) => self.held.fetch_add(more, Ordering::Relaxed),
            None => self.held.fetch_sub(before - now, Ordering::Relaxed),
        };
        let held = i64::try_from(self.held()).unwrap_or(i64::MAX);
        self.shown.held.set(held);
    }

    /// The measure that is taken now.
    pub fn step(&self) -> PressureStep {
        match self.step.load(Ordering::Relaxed) {
            0 => PressureStep::None,
            1 => PressureStep::EndIdle,
            2 => PressureStep::ShedLargest,
            _ => PressureStep::ShedAll,
        }
    }

    /// Asks the kernel how much is in use, and takes the step for it.
    pub fn ask(&self) {
        if let Some(used) = own_bytes() {
            self.look(used);
        }
    }

    /// Asks between two times, where that may matter: much may come within a second.
    pub fn ask_again(&self) {
        let used = self.used.load(Ordering::Relaxed);
        if self.max.is_some_and(|max| used >= max / 2) {
            self.ask();
        }
    }

    /// How many bytes were in use when last somebody asked.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes the step for so many bytes in use.
    pub fn look(&self, used: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.shown.used.set(i64::try_from(used).unwrap_or(i64::MAX));
        let Some(max) = self.max else {
            return;
        };
        let before = self.step();
        let is_over = |(step, percent): &(PressureStep, u64)| {
            let slack = if *step <= before { SLACK } else { 0 };
            u128::from(used) * 100 >= u128::from(max) * u128::from(percent - slack)
        };
        let step = STEPS
            .iter()
            .find(|it| is_over(it))
            .map_or(PressureStep::None, |it| it.0);
        if step == before {
            return;
        }
        self.step.store(step as u8, Ordering::Relaxed);
        self.shown.step.set(step as i64);
        let is_shorter = step > before;
        if is_shorter {
            self.shown.steps.inc();
        }
        // Clients may make it short as often as they like.
        let Some(left_out) = self.lines.admit() else {
            return;
        };
        match is_shorter {
            true => {
                tracing::warn!(
                    used,
                    max,
                    ?step,
                    left_out,
                    "memory is short, and new work is shed"
                );
            }
            false => tracing::info!(used, max, ?step, left_out, "there is memory again"),
        }
    }
}

/// The process's own memory in bytes, as the kernel counts it. Pages of files are left out:
/// the kernel takes them back before it ends a process.
fn own_bytes() -> Option<u64> {
    let text = kernel::text("/proc/self/statm", FILE_BYTES_MAX).ok()?;
    let (resident, shared): (u64, u64) = (kernel::number(&text, 1)?, kernel::number(&text, 2)?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// A process without a budget, whose memory is never short.
impl Default for Pressure {
    fn default() -> Self {
        Pressure::new(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{Pressure, PressureStep, own_bytes};

    #[test]
    fn steps_are_taken_in_order_and_taken_back_with_slack() {
        let pressure = Pressure::new(Some(1_000));
        let taken = [
            (799, PressureStep::None),
            (800, PressureStep::EndIdle),
            (760, PressureStep::EndIdle),
            (749, PressureStep::None),
            (900, PressureStep::ShedLargest),
            (949, PressureStep::ShedLargest),
            (950, PressureStep::ShedAll),
            (901, PressureStep::ShedAll),
            (899, PressureStep::ShedLargest),
            (851, PressureStep::ShedLargest),
            (849, PressureStep::EndIdle),
            (0, PressureStep::None),
        ];
        for (used, step) in taken {
            pressure.look(used);
            assert_eq!(pressure.step(), step, "{used}");
        }
    }

    #[test]
    fn without_a_budget_nothing_is_shed() {
        for max in [None, Some(0)] {
            let pressure = Pressure::new(max);
            pressure.look(u64::MAX);
            assert_eq!(pressure.step(), PressureStep::None);
        }
    }

    #[test]
    fn the_kernel_says_what_is_in_use() {
        let before = own_bytes().unwrap();
        assert!(before > 100_000);
    }
}
