//! Metrics as values, for formats that are not written line by line: read from the text that the
//! registry writes.

/// All series of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// The name, with the suffix of counters.
    pub name: String,
    /// The help text.
    pub help: String,
    /// The kind of its series.
    pub kind: FamilyKind,
    /// The series, in the order in which they are written.
    pub series: Vec<Series>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts values by their size.
    Histogram,
    /// Nothing is known of it.
    Untyped,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The labels and their values.
    pub labels: Vec<(String, String)>,
    /// The value now.
    pub value: SeriesValue,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum SeriesValue {
    /// A number.
    Number(f64),
    /// A histogram.
    Histogram(HistogramValue),
}

/// The value of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramValue {
    /// How many values there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Upper bounds of buckets with the number of values up to each, in their order.
    pub buckets: Vec<(f64, u64)>,
    /// The same values in finer buckets, where they are kept.
    pub native: Option<NativeReading>,
}

/// The buckets of a native histogram at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeReading {
    /// How many durations were about zero.
    pub zero: u64,
    /// The buckets that are not empty, by their number, in order.
    pub buckets: Vec<(i32, u64)>,
}

/// The series of a text in Prometheus' older format. What is not understood is left out.
pub(super) fn parse(text: &str) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, said)| said);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            if let Some((name, kind)) = rest.split_once(' ') {
                families.push(MetricFamily {
                    name: name.to_owned(),
                    help: std::mem::take(&mut help).to_owned(),
                    kind: FamilyKind::named(kind),
                    series: Vec::new(),
                });
            }
        } else if !line.starts_with('#')
            && let Some(family) = families.last_mut()
            && let Some(sample) = Sample::parse(line)
        {
            family.add(sample);
        }
    }
    families
}

impl FamilyKind {
    fn named(word: &str) -> FamilyKind {
        match word {
            "counter" => FamilyKind::Counter,
            "gauge" => FamilyKind::Gauge,
            "histogram" => FamilyKind::Histogram,
            _ => FamilyKind::Untyped,
        }
    }

    /// Its word in the text format.
    pub fn word(self) -> &'static str {
        match self {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
            FamilyKind::Untyped => "untyped",
        }
    }
}

impl MetricFamily {
    fn add(&mut self, sample: Sample<'_>) {
        if self.kind != FamilyKind::Histogram {
            self.series.push(Series {
                labels: sample.labels,
                value: SeriesValue::Number(sample.value),
            });
            return;
        }
        let Sample {
            name,
            mut labels,
            value,
        } = sample;
        let Some(part) = name.strip_prefix(&*self.name) else {
            return;
        };
        let bound = labels.extract_if(.., |(name, _)| name == "le").next();
        // The lines of one series follow each other.
        if self.series.last().is_none_or(|last| last.labels != labels) {
            let value = SeriesValue::Histogram(HistogramValue::default());
            self.series.push(Series { labels, value });
        }
        let Some(Series {
            value: SeriesValue::Histogram(histogram),
            ..
        }) = self.series.last_mut()
        else {
            return;
        };
        match part {
            "_sum" => histogram.sum = value,
            // Numbers of events are whole, and far from where a double is not.
            "_count" => histogram.count = value as u64,
            "_bucket" => {
                let bound = bound.and_then(|(_, text)| text.parse().ok());
                histogram
                    .buckets
                    .extend(bound.map(|bound: f64| (bound, value as u64)));
            }
            _ => {}
        }
    }
}

/// One line of the text.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(String, String)>,
    value: f64,
}

impl<'t> Sample<'t> {
    fn parse(line: &'t str) -> Option<Sample<'t>> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at_checked(end)?;
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => labels(inside)?,
            None => (Vec::new(), rest),
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Sample {
            name,
            labels,
            value,
        })
    }
}

/// The labels up to the closing brace, and what is behind it.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        text = text.strip_prefix(',').unwrap_or(text);
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = rest.char_indices();
        let end = loop {
            let (at, letter) = letters.next()?;
            match letter {
                '"' => break at,
                '\\' => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        text = rest.get(end + 1..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{FamilyKind, HistogramValue, SeriesValue, parse};

    #[test]
    fn a_text_is_read_as_its_series() {
        let text = "# HELP a_total Things.\n# TYPE a_total counter\n\
                    a_total{x=\"} \\\" \\\\ \\n\",y=\"\"} 3\na_total 1\n\
                    # HELP h Times.\n# TYPE h histogram\n\
                    h_sum{s=\"1\"} 2.5\nh_count{s=\"1\"} 2\n\
                    h_bucket{le=\"1.0\",s=\"1\"} 1\nh_bucket{le=\"+Inf\",s=\"1\"} 2\n\
                    h_sum{s=\"2\"} 0.0\nh_count{s=\"2\"} 0\n";
        let families = parse(text);
        let [counter, histogram] = &*families else {
            panic!("{families:?}");
        };
        assert_eq!((&*counter.name, &*counter.help), ("a_total", "Things."));
        assert_eq!(counter.kind, FamilyKind::Counter);
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let labels = vec![label("x", "} \" \\ \n"), label("y", "")];
        assert_eq!(counter.series[0].labels, labels);
        assert_eq!(counter.series[0].value, SeriesValue::Number(3.0));
        assert_eq!(counter.series.len(), 2);
        assert_eq!(histogram.series.len(), 2);
        assert_eq!(histogram.series[0].labels, [label("s", "1")]);
        let value = HistogramValue {
            count: 2,
            sum: 2.5,
            buckets: vec![(1.0, 1), (f64::INFINITY, 2)],
            native: None,
        };
        assert_eq!(
            histogram.series[0].value,
            SeriesValue::Histogram(value),
            "the bound is no label"
        );
    }

    #[test]
    fn lines_that_are_broken_are_left_out() {
        let text = "# TYPE a gauge\na{x=\"1\na{x} 1\na\na{x=\"1\"}\na{x=\"1\"} q\na 2\n";
        let families = parse(text);
        assert_eq!(families[0].series.len(), 1);
    }
}
