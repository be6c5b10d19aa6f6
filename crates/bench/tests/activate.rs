//! The command as people run it, at a size that takes seconds.

use std::process::Command;

use serde_json::Value;

/// Runs the command. Figures are for real runs to judge; here they must be there, and agree.
fn activate(arguments: &[&str]) -> Value {
    activate_among(40, arguments)
}

/// The same with another number of domains.
fn activate_among(domains: u64, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["activate", "--json", "--samples=4"]);
    command.arg(format!("--domains={domains}"));
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

#[test]
fn the_work_of_a_new_domain_of_gateway_api_is_the_same_at_every_number_of_domains() {
    for objects in ["listenersets", "httproutes"] {
        let objects = format!("--objects={objects}");
        let runs = [
            activate(&[objects.as_str(), "--source=inbox"]),
            activate(&[objects.as_str(), "--source=dir"]),
            activate_among(320, &[objects.as_str(), "--source=dir"]),
        ];
        for run in &runs {
            assert_eq!(run["activation_ms"]["samples"], 4, "{run}");
            assert_eq!(run["remove_ms"]["samples"], 4, "{run}");
            assert_eq!(run["live"]["errors"], 0, "{run}");
            for key in ["units_translated", "objects_visited", "resources_changed"] {
                assert!(run[key].as_u64() > Some(0), "{key} of {run}");
                assert_eq!(run[key], runs[0][key], "{key} of {run}");
            }
        }
    }
}

#[test]
fn domains_come_while_routes_of_others_change() {
    for arguments in [
        ["--objects=ingresses", "--source=dir"],
        ["--objects=listenersets", "--source=dir"],
        ["--objects=listenersets", "--source=inbox"],
        ["--objects=httproutes", "--source=inbox"],
    ] {
        // Samples are in four of ten sets.
        let run = activate_among(160, &[&arguments[..], &["--under-churn=50"][..]].concat());
        let beside = &run["live_under_churn"];
        assert!(beside["changes"].as_u64() > Some(5), "{run}");
        assert_eq!(beside["activation_ms"]["samples"], 4, "{run}");
        assert_eq!(beside["errors"], 0, "{run}");
    }
}

#[test]
fn one_listener_has_one_certificate() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-bench"));
    command.args(["activate", "--domains=40", "--objects=httproutes"]);
    let output = command.arg("--certificates=unique").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("--certificates wildcard"),
        "{errors}"
    );
}
