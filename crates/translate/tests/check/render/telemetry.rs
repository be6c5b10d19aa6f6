//! The settings of what is recorded, as text.

use std::fmt::Write as _;

use myriad_model::{AccessLog, FormatPart, LogFormat, MetricAction, Telemetry};

/// One line for each log, change of metrics, and tracing.
pub(super) fn text(telemetry: &Telemetry) -> String {
    let mut text = String::new();
    match &telemetry.logs {
        None => {}
        Some(logs) if logs.is_empty() => text.push_str("\n  no log"),
        Some(logs) => logs.iter().for_each(|log| log_text(log, &mut text)),
    }
    for rule in &telemetry.metrics {
        let metric = rule.metric.map_or("all".to_owned(), |it| format!("{it:?}"));
        let action = match &rule.action {
            MetricAction::Disable => "off".to_owned(),
            MetricAction::Enable => "on".to_owned(),
            MetricAction::Remove(tag) => format!("without {tag}"),
            MetricAction::Set(tag, value) => format!("with {tag}={value:?}"),
        };
        let _ = write!(text, "\n  metric {metric} {action}");
    }
    if let Some(tracing) = &telemetry.tracing {
        let _ = write!(
            text,
            "\n  traces to {} as {} over {:?} in {:?} of {} ppm for {}",
            tracing.upstream,
            tracing.authority,
            tracing.protocol,
            tracing.timeout,
            tracing.sampled.ppm(),
            tracing.service_name
        );
        let marks = [
            (tracing.is_silent, " silent"),
            (tracing.keeps_context, " keeping context"),
            (tracing.ignores_request_id, " ignoring x-request-id"),
        ];
        let marks = marks.into_iter().filter(|(is_set, _)| *is_set);
        text.extend(marks.map(|(_, mark)| mark));
        for tag in &tracing.tags {
            let _ = write!(text, "\n    {tag:?}");
        }
        for (name, value) in &tracing.headers {
            let _ = write!(text, "\n    sent with {name}: {value}");
        }
    }
    text
}

fn log_text(log: &AccessLog, text: &mut String) {
    let _ = write!(text, "\n  log to {:?}", log.sink);
    let parts = |parts: &[FormatPart]| {
        let part = |part: &FormatPart| match part {
            FormatPart::Text(text) => format!("{text:?}"),
            FormatPart::Value {
                attribute,
                bytes_max,
            } => match bytes_max {
                0 => format!("{attribute:?}"),
                max => format!("{attribute:?}:{max}"),
            },
        };
        parts.iter().map(part).collect::<Vec<_>>().join(" ")
    };
    match &log.format {
        LogFormat::Own => text.push_str(" as its own"),
        // The usual one is long.
        LogFormat::Text(all) if all.len() > 20 => text.push_str(" as usual"),
        LogFormat::Text(all) => {
            let _ = write!(text, " as {}", parts(all));
        }
        LogFormat::Json(members) => {
            for (name, value) in members {
                let _ = write!(text, "\n    {name}: {}", parts(value));
            }
        }
    }
    if let Some(filter) = &log.filter {
        let steps = filter.steps.iter().map(|step| format!("{step:?}"));
        let _ = write!(text, " if {}", steps.collect::<Vec<_>>().join("; "));
    }
}
