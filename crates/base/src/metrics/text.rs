//! The formats that scrapers accept: OpenMetrics, Prometheus' protobuf or its older text.

use std::borrow::Cow;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every scraper reads.
    Text,
    /// Prometheus' protobuf, which alone has native histograms.
    Protobuf,
}

/// The parameters of the protobuf that is written, without quotes and in lower case.
const PROTOBUF_PARAMETERS: [&str; 2] = [
    "proto=io.prometheus.client.metricfamily",
    "encoding=delimited",
];

impl Exposition {
    /// The one that an `Accept` field prefers; of several that it likes as much protobuf, then
    /// OpenMetrics; the older text where it names none.
    pub fn accepted(accept: &str) -> Self {
        let weight = |wanted: &str, parameters: &[&str]| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let is_wanted = parts.next()?.eq_ignore_ascii_case(wanted);
                let has = |wanted: &&str| {
                    let mut given = range.split(';').map(str::trim);
                    given.any(|it| it.replace('"', "").eq_ignore_ascii_case(wanted))
                };
                let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
                (is_wanted && parameters.iter().all(has)).then(|| weight.unwrap_or(1.0_f32))
            });
            ranges.fold(0.0, f32::max)
        };
        let open = weight("application/openmetrics-text", &[]);
        let protobuf = weight("application/vnd.google.protobuf", &PROTOBUF_PARAMETERS);
        let text = weight("text/plain", &[]);
        if protobuf > 0.0 && protobuf >= open && protobuf >= text {
            Exposition::Protobuf
        } else if open > 0.0 && open >= text {
            Exposition::OpenMetrics
        } else {
            Exposition::Text
        }
    }

    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

/// Writes OpenMetrics as Prometheus' text: there a counter's name has its suffix everywhere, and
/// units and the end are not written. There are no exemplars.
pub(super) fn older(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), said) => {
                help = Some((name, said.unwrap_or_default()));
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (name, kind) = named(name, kind);
                if let Some((_, said)) = help.take() {
                    push(&mut out, ["# HELP", &name, said]);
                }
                push(&mut out, ["# TYPE", &name, kind]);
            }
            (Some("#"), ..) => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

fn named<'a>(name: &'a str, kind: &'a str) -> (Cow<'a, str>, &'a str) {
    match kind {
        "counter" => (format!("{name}_total").into(), kind),
        "info" => (format!("{name}_info").into(), "gauge"),
        "stateset" => (name.into(), "gauge"),
        "unknown" => (name.into(), "untyped"),
        _ => (name.into(), kind),
    }
}

fn push(out: &mut String, words: [&str; 3]) {
    out.push_str(&words.join(" "));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::{Exposition, older};

    #[test]
    fn what_is_accepted_decides_and_weights_are_read() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;\
                      proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5";
        let other = "application/vnd.google.protobuf;proto=another.Message;encoding=delimited,\
                     text/plain;q=0.5";
        for (accept, expected) in [
            (prometheus, Exposition::OpenMetrics),
            (native, Exposition::Protobuf),
            (other, Exposition::Text),
            ("application/openmetrics-text", Exposition::OpenMetrics),
            ("", Exposition::Text),
            ("*/*", Exposition::Text),
            ("text/plain;version=0.0.4", Exposition::Text),
            ("application/openmetrics-text;q=0", Exposition::Text),
            (
                "text/plain, application/openmetrics-text;q=0.2",
                Exposition::Text,
            ),
        ] {
            assert_eq!(Exposition::accepted(accept), expected, "{accept}");
        }
    }

    #[test]
    fn the_older_text_has_the_names_of_its_samples() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\n# UNIT a_b bytes\n\
                    a_b_total{x=\"# y\"} 1\n# HELP g Some.\n# TYPE g gauge\ng 2\n\
                    # EOF\n";
        let expected = "# HELP a_b_total Things.\n# TYPE a_b_total counter\n\
                        a_b_total{x=\"# y\"} 1\n# HELP g Some.\n# TYPE g gauge\ng 2\n";
        assert_eq!(older(open), expected);
    }
}
