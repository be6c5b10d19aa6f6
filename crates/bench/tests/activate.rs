//! The command as people run it, at a size that takes seconds.

use std::process::Command;

use serde_json::Value;

/// Runs the command. Figures are for real runs to judge; here they must be there, and agree.
fn activate(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["activate", "--json", "--domains=40", "--samples=4"]);
    command.args(["--samples-at-half=0", "--rate=20"]);
    let output = command.args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_work_of_a_new_domain_is_the_same_from_a_directory_and_through_the_inbox() {
    let runs = [
        activate(&["--source=inbox"]),
        activate(&["--source=dir"]),
        activate(&["--source=dir", "--domains-per-file=20"]),
    ];
    for run in &runs {
        assert_eq!(run["activation_ms"]["samples"], 4, "{run}");
        assert_eq!(run["live"]["errors"], 0, "{run}");
        for key in ["units_translated", "objects_visited", "resources_changed"] {
            assert!(run[key].as_u64() > Some(0), "{key} of {run}");
            assert_eq!(run[key], runs[0][key], "{key} of {run}");
        }
    }
}

#[test]
fn a_domain_with_a_shared_certificate_is_added_changed_and_removed() {
    let run = activate(&["--certificates=wildcard"]);
    for key in ["activation_ms", "change_ms", "remove_ms"] {
        assert_eq!(run[key]["samples"], 4, "{key} of {run}");
    }
}
