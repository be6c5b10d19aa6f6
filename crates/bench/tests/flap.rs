//! The command that measures an endpoint which fails half of the time, for a second.

use std::process::Command;

use serde_json::Value;

#[test]
fn failures_of_an_endpoint_are_seen_and_counted_both_ways() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["flap", "--json", "--seconds=2", "--period=1", "--rps=100"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().map(serde_json::from_str);
    let rows: Vec<Value> = rows.collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 2, "{text}");
    for row in &rows {
        assert_eq!(
            (&row["requests"], &row["endpoints"]),
            (&200.into(), &4.into())
        );
        // Nothing is tried twice: each failure of the endpoint is an error of a client.
        assert_eq!(row["errors"], row["failures"], "{row}");
    }
    assert!(rows[0]["errors"].as_u64() > Some(0), "{text}");
}
