//! All patterns of the process, each held once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use myriad_base::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics};
use myriad_model::{PROXY_READ_STEPS_MAX, RegexText};

use super::compile::Program;
use super::hint::Hint;
use super::table::DfaTable;
use super::{BadRegex, Pattern};

/// Below this many patterns, those that nobody has any more are not looked for.
const SWEEP_MIN: usize = 64;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Patterns by their text, for as long as somebody has them. At most twice as many as are in use,
/// or [`SWEEP_MIN`].
#[derive(Default)]
struct Store {
    known: HashMap<Box<str>, Weak<Pattern>>,
    sweep_at: usize,
}

/// The patterns that the process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternTotals {
    /// How many different ones.
    pub patterns: usize,
    /// The memory that they take in bytes.
    pub bytes: usize,
    /// How many were compiled since the start.
    pub compiled: usize,
}

/// The patterns that the process holds now.
pub fn held() -> PatternTotals {
    PatternTotals {
        patterns: COUNT.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
        compiled: COMPILED.load(Ordering::Relaxed),
    }
}

/// Shows the patterns that the process holds.
pub fn register(metrics: &Metrics) {
    let of = |count: &'static AtomicUsize| Shown { count };
    let help = "Different regexes that the process holds, each compiled once";
    metrics.register("regexes", help, of(&COUNT));
    let help = "Memory of the regexes that the process holds, in bytes";
    metrics.register("regex_bytes", help, of(&BYTES));
}

/// One number, read when somebody asks.
#[derive(Debug)]
struct Shown {
    count: &'static AtomicUsize,
}

impl EncodeMetric for Shown {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let count = self.count.load(Ordering::Relaxed);
        encoder.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// The pattern of a text, compiled where nobody has it.
///
/// # Errors
/// When it is not valid, or too large.
pub(super) fn find_or_compile(text: &str) -> Result<Arc<Pattern>, BadRegex> {
    static STORE: LazyLock<Mutex<Store>> = LazyLock::new(Mutex::default);
    let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pattern) = store.known.get(text).and_then(Weak::upgrade) {
        return Ok(pattern);
    }
    let pattern = Arc::new(compile(text).ok_or_else(|| BadRegex(text.into()))?);
    if store.known.len() >= store.sweep_at {
        store.known.retain(|_, pattern| pattern.strong_count() > 0);
        store.sweep_at = (store.known.len() * 2).max(SWEEP_MIN);
    }
    store.known.insert(text.into(), Arc::downgrade(&pattern));
    Ok(pattern)
}

fn compile(text: &str) -> Option<Pattern> {
    // Translation refuses what takes half as much, so this only protects against one that does not.
    let parts = RegexText::new(text).ok()?;
    let hir = parts.read(PROXY_READ_STEPS_MAX).ok()?;
    let program = Program::new(&hir).ok()?;
    let table = DfaTable::new(&program, &mut 0).map(Box::new);
    let hint = Hint::new(&hir);
    let of_table = table.as_ref().map_or(0, |table| table.memory_usage());
    let bytes =
        size_of::<Pattern>() + text.len() + program.memory_usage() + hint.memory_usage() + of_table;
    COUNT.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes, Ordering::Relaxed);
    COMPILED.fetch_add(1, Ordering::Relaxed);
    Some(Pattern {
        program,
        table,
        hint,
        bytes,
    })
}

impl Drop for Pattern {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
