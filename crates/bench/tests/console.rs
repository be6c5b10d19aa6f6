//! The measurement of the console works, whatever it says.

use std::process::Command;

use serde_json::Value;

const PAGES: [&str; 10] = [
    "/console",
    "/console/domains",
    "/console/domains?name=d0099&end=start",
    "/console/domains?name=99.many.example&end=end",
    "/console/domain?host=d000042.many.example",
    "/console/findings",
    "/console/findings?text=d000042",
    "/console/plots?of=traffic",
    "/console/mesh",
    "/console/memory",
];

#[test]
fn each_page_is_measured() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    let output = command.args(["console", "--short", "--json"]).output();
    let output = output.expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let pages: Vec<&str> = rows.iter().filter_map(|row| row["page"].as_str()).collect();
    assert_eq!(pages, PAGES);
    for row in rows {
        assert_eq!(row["domains"], 500);
        assert!(
            row["bytes"].as_u64().is_some_and(|bytes| bytes > 2_000),
            "{row}"
        );
    }
}
