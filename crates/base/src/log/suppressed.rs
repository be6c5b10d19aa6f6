//! Lines that the log was not given: what comes as often as others like has few of them, and the
//! rest is counted.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::metrics::{EncodeMetric, MetricEncoder, MetricType, Metrics, NoLabelSet};

/// A topic of the log whose lines are bounded in number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Findings that appear or go.
    Finding,
    /// Requests that the proxy answers with 5xx by itself.
    Failure,
    /// Peers that are not believed.
    Peer,
    /// Requests whose regexes take too many steps.
    Regex,
    /// Lines that libraries write.
    Library,
    /// Tasks that panic.
    Panic,
}

static LEFT_OUT: [AtomicU64; Topic::ALL.len()] = [const { AtomicU64::new(0) }; Topic::ALL.len()];

impl Topic {
    const ALL: [Topic; 6] = [
        Topic::Finding,
        Topic::Failure,
        Topic::Peer,
        Topic::Regex,
        Topic::Library,
        Topic::Panic,
    ];

    const fn label(self) -> &'static str {
        match self {
            Topic::Finding => "finding",
            Topic::Failure => "failure",
            Topic::Peer => "peer",
            Topic::Regex => "regex",
            Topic::Library => "library",
            Topic::Panic => "panic",
        }
    }

    /// Counts a line that was left out.
    pub fn suppress(self) {
        if let Some(count) = LEFT_OUT.get(self as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn left_out(self) -> u64 {
        LEFT_OUT
            .get(self as usize)
            .map_or(0, |count| count.load(Relaxed))
    }
}

/// Registers the counts of the process.
pub fn register(metrics: &Metrics) {
    let help = "Lines that the log was not given since it had had enough of their kind";
    metrics.register("log_lines_suppressed", help, Suppressed);
}

#[derive(Debug)]
struct Suppressed;

impl EncodeMetric for Suppressed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for topic in Topic::ALL {
            encoder
                .encode_family(&[("kind", topic.label())])?
                .encode_counter::<NoLabelSet, _, u64>(&topic.left_out(), None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

#[cfg(test)]
mod tests {
    use super::{Topic, register};
    use crate::metrics::Metrics;

    #[test]
    fn each_kind_is_counted_by_its_name() {
        let metrics = Metrics::new();
        register(&metrics);
        Topic::Regex.suppress();
        let text = metrics.encode();
        let line = |topic: Topic| {
            let label = topic.label();
            format!("myriad_log_lines_suppressed_total{{kind=\"{label}\"}} ")
        };
        for topic in Topic::ALL {
            assert!(text.contains(&line(topic)), "{text}");
        }
        assert!(
            !text.contains(&format!("{}0\n", line(Topic::Regex))),
            "{text}"
        );
    }
}
