//! An example of what is recorded.

use std::time::Duration;

use crate::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Literal, LogFormat, LogSink,
    Metric, MetricAction, MetricRule, Relation, Share, SpanTag, TagValue, Telemetry, TextForm,
    TraceProtocol, Tracing,
};

/// Everything set.
pub(super) fn recorded() -> Telemetry {
    let header = || Attribute::RequestHeader("x-a".into(), Some("x-b".into()));
    let part = FormatPart::Value {
        attribute: Attribute::RequestHeader("x-c".into(), None),
        bytes_max: 9,
    };
    let filter = Condition {
        steps: [
            ConditionStep::Compare(Attribute::Status, Relation::AtLeast, Literal::Number(-4)),
            ConditionStep::Text(header(), TextForm::Regex, "a+".into()),
            ConditionStep::Has(Attribute::TraceId),
            ConditionStep::Constant(true),
            ConditionStep::Not,
            ConditionStep::Or,
            ConditionStep::And,
            ConditionStep::Compare(Attribute::IsMutual, Relation::Unequal, Literal::Flag(false)),
            ConditionStep::And,
            ConditionStep::And,
        ]
        .into(),
    };
    let log = |format, filter| AccessLog {
        sink: LogSink::Error,
        format,
        filter,
    };
    let parts: Box<[FormatPart]> = [FormatPart::Text("a".into()), part].into();
    Telemetry {
        logs: Some(
            [
                log(LogFormat::Own, None),
                log(LogFormat::Text(parts.clone()), Some(filter)),
                log(LogFormat::Json([("m".into(), parts)].into()), None),
            ]
            .into(),
        ),
        metrics: metrics(),
        tracing: Some(Box::new(Tracing {
            upstream: "ns/collector:4318".into(),
            authority: "collector:4318".into(),
            protocol: TraceProtocol::Http("/v1/traces".into()),
            timeout: Duration::from_secs(5),
            sampled: Share::from_ppm(12_500).unwrap(),
            service_name: "edge".into(),
            tags: [
                SpanTag::Text("a".into(), "b".into()),
                SpanTag::Attribute("c".into(), header(), "-".into()),
                SpanTag::Variable("d".into(), "HOME".into(), "".into()),
            ]
            .into(),
            is_silent: true,
            keeps_context: true,
            ignores_request_id: true,
            headers: [("x-key".into(), "k".into())].into(),
        })),
    }
}

fn metrics() -> Box<[MetricRule]> {
    let rule = |metric, action| MetricRule { metric, action };
    [
        rule(None, MetricAction::Disable),
        rule(Some(Metric::TcpReceived), MetricAction::Enable),
        rule(None, MetricAction::Remove("a".into())),
        rule(
            Some(Metric::Requests),
            MetricAction::Set("b".into(), TagValue::Text("c".into())),
        ),
        rule(
            None,
            MetricAction::Set("m".into(), TagValue::Attribute(Attribute::Method)),
        ),
    ]
    .into()
}

#[test]
fn a_condition_leaves_one_result() {
    let whole = |steps: &[ConditionStep]| {
        Condition {
            steps: steps.into(),
        }
        .is_whole()
    };
    let yes = || ConditionStep::Constant(true);
    assert!(whole(&[yes(), yes(), ConditionStep::And]));
    assert!(!whole(&[]));
    assert!(!whole(&[yes(), yes()]));
    assert!(!whole(&[yes(), ConditionStep::Or]));
    assert!(!whole(&[ConditionStep::Not, yes()]));
    let many = vec![yes(); Condition::DEPTH_MAX + 1];
    assert!(!whole(&many));
}

#[test]
fn the_numbers_of_attributes_follow_their_order() {
    for (at, attribute) in Attribute::ALL.iter().enumerate() {
        let other = Attribute::ALL.iter().position(|it| it == attribute);
        assert_eq!(other, Some(at));
    }
}
