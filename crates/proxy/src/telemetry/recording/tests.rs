use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Literal, LogFormat, LogSink,
    Relation, Telemetry, TextForm,
};

use super::super::access_log::{AccessLogLine, LineFormatter};
use super::Recording;

fn line() -> AccessLogLine {
    AccessLogLine {
        time: Duration::from_millis(1_700_000_000_005),
        duration: Duration::from_micros(42_900),
        method: "GET".into(),
        host: "a.example".into(),
        target: "/a?b=c".into(),
        protocol: "HTTP/1.1",
        status: 503,
        flag: Some("no_endpoint"),
        headers: [Some("é\"".into())].into(),
        ..AccessLogLine::new("https".into(), ([192, 0, 2, 1], 4_000).into())
    }
}

fn recording(format: LogFormat, steps: &[ConditionStep]) -> Recording {
    let filter = (!steps.is_empty()).then(|| Condition {
        steps: steps.into(),
    });
    let log = AccessLog {
        sink: LogSink::Output,
        format,
        filter,
    };
    let telemetry = Telemetry {
        logs: Some([log].into()),
        ..Telemetry::default()
    };
    Recording::new(&telemetry).unwrap_or_else(|pattern| panic!("{pattern}"))
}

fn takes(steps: &[ConditionStep]) -> bool {
    recording(LogFormat::Own, steps).takers(&line()) == 1
}

#[test]
fn a_condition_that_takes_too_many_steps_hides_nothing() {
    let steps = |number: usize| {
        let regex = format!("(a{{1,200}}){{1,3}}b{number}").into();
        ConditionStep::Text(Attribute::Path, TextForm::Regex, regex)
    };
    let asked = |target: &str| {
        let line = AccessLogLine {
            target: target.into(),
            ..line()
        };
        recording(LogFormat::Own, &[steps(1)]).takers(&line)
    };
    assert_eq!(asked("/aab1"), 1);
    assert_eq!(asked("/aab2"), 0);
    assert_eq!(asked(&format!("/{}", "a".repeat(4_000))), 1);
}

#[test]
fn a_condition_says_of_which_requests_there_is_a_line() {
    use ConditionStep::{And, Compare, Constant, Has, Not, Or, Text};
    let status = |relation, number| Compare(Attribute::Status, relation, Literal::Number(number));
    assert!(takes(&[]));
    assert!(takes(&[status(Relation::AtLeast, 500)]));
    assert!(!takes(&[status(Relation::Less, 500)]));
    assert!(takes(&[status(Relation::Less, 500), Not]));
    assert!(takes(&[Constant(false), Constant(true), Or]));
    assert!(!takes(&[Constant(false), Constant(true), And]));
    let path = |form, text: &str| Text(Attribute::Path, form, text.into());
    assert!(takes(&[path(TextForm::End, "/a")]));
    assert!(!takes(&[path(TextForm::Contains, "b")]));
    assert!(takes(&[path(TextForm::Regex, "^/[a-c]$")]));
    // What is absent is neither equal nor unequal, and decides nothing beside what decides.
    let sni = |relation| Compare(Attribute::ServerName, relation, Literal::Text("x".into()));
    assert!(!takes(&[sni(Relation::Equal)]) && !takes(&[sni(Relation::Unequal)]));
    assert!(!takes(&[sni(Relation::Equal), Not]));
    assert!(takes(&[sni(Relation::Equal), Constant(true), Or]));
    assert!(!takes(&[Has(Attribute::ServerName)]));
    let mutual = Compare(Attribute::IsMutual, Relation::Equal, Literal::Flag(false));
    assert!(takes(&[mutual]));
}

#[test]
fn a_line_is_written_as_its_format_says() {
    let value = |attribute| FormatPart::Value {
        attribute,
        bytes_max: 0,
    };
    let text = |text: &str| FormatPart::Text(text.into());
    let short = FormatPart::Value {
        attribute: Attribute::Target,
        bytes_max: 3,
    };
    let parts = [
        value(Attribute::StartTime),
        text(" "),
        short,
        text(" "),
        value(Attribute::Flags),
        text(" "),
        value(Attribute::ServerName),
        text(" "),
        value(Attribute::Duration),
        text("\n"),
    ];
    let written = |format| {
        let mut lines = LineFormatter::default();
        let recording = recording(format, &[]);
        let recording = Arc::new(recording);
        let line = AccessLogLine {
            recording: Some((recording.clone(), 1)),
            ..line()
        };
        lines.format(&recording.logs()[0], &line);
        lines.text().to_owned()
    };
    assert_eq!(
        written(LogFormat::Text(parts.into())),
        "2023-11-14T22:13:20.005Z /a? UH - 42\n"
    );
    let header = Attribute::RequestHeader("a".into(), None);
    let members: [(Box<str>, Box<[FormatPart]>); 4] = [
        ("status".into(), [value(Attribute::Status)].into()),
        ("a".into(), [value(header)].into()),
        ("sni".into(), [value(Attribute::ServerName)].into()),
        ("both".into(), [text("x"), value(Attribute::Status)].into()),
    ];
    assert_eq!(
        written(LogFormat::Json(members.into())),
        "{\"status\":503,\"a\":\"é\\\"\",\"sni\":null,\"both\":\"x503\"}\n"
    );
}
