//! Records that resources ask for.

use myriad_model::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Kind, Literal, LogFormat, LogSink,
    Relation, Telemetry, Value,
};

use super::life::Log;
use super::world::{Backend, World, route};
use crate::runtime::Settings;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Who: eve\r\nConnection: close\r\n\r\n")
}

fn telemetry(logs: &[AccessLog]) -> Value {
    Value::Telemetry(Box::new(Telemetry {
        logs: Some(logs.into()),
        ..Telemetry::default()
    }))
}

#[tokio::test]
async fn the_access_log_is_as_the_resource_says_for_as_long_as_it_is_there() {
    let log = Log::default();
    let backend = Backend::saying("ok").await;
    let mut world = World::start_with(Settings {
        workers: 1,
        access_log: Some(Box::new(log.clone())),
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/a", "u"));
    let value = |attribute| FormatPart::Value {
        attribute,
        bytes_max: 0,
    };
    let not_found =
        ConditionStep::Compare(Attribute::Status, Relation::Equal, Literal::Number(404));
    let failures = AccessLog {
        sink: LogSink::Output,
        format: LogFormat::Text(
            [
                value(Attribute::Status),
                FormatPart::Text(" ".into()),
                value(Attribute::RequestHeader("x-who".into(), None)),
                FormatPart::Text(" ".into()),
                value(Attribute::Flags),
                FormatPart::Text("\n".into()),
            ]
            .into(),
        ),
        filter: Some(Condition {
            steps: [not_found].into(),
        }),
    };
    world.put("t", telemetry(&[failures]));
    world.ask(&get("/a")).await;
    world.ask(&get("/b")).await;
    assert_eq!(log.lines(1).await, ["404 eve NR"]);
    world.put("t", telemetry(&[]));
    world.ask(&get("/b")).await;
    world.remove(Kind::Telemetry, "t");
    world.ask(&get("/a")).await;
    let lines = log.lines(2).await;
    assert_eq!(lines.len(), 2);
    assert!(lines[1].contains("\"path\":\"/a\""), "{lines:?}");
}
