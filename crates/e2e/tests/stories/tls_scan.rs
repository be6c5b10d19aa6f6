//! The verdict of a public scanner (testssl.sh) on our TLS.

use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};
use serde_json::{Value, json};
use tokio::process::Command;

/// The findings that the scan must have: the check, and how its finding begins.
const EXPECTED: [(&str, &str); 36] = [
    ("SSLv2", "not offered"),
    ("SSLv3", "not offered"),
    ("TLS1", "not offered"),
    ("TLS1_1", "not offered"),
    ("TLS1_2", "offered"),
    ("TLS1_3", "offered"),
    ("ALPN_HTTP2", "h2"),
    ("cipherlist_NULL", "not offered"),
    ("cipherlist_aNULL", "not offered"),
    ("cipherlist_EXPORT", "not offered"),
    ("cipherlist_LOW", "not offered"),
    ("cipherlist_3DES_IDEA", "not offered"),
    ("cipherlist_AVERAGE", "not offered"),
    ("cipherlist_STRONG", "offered"),
    ("PFS", "offered"),
    ("PFS_ciphers", "TLS_"),
    ("TLS_session_ticket", "valid for 43200 seconds only"),
    ("sessionresumption_ticket", "supported"),
    ("TLS_timestamp", "random"),
    ("heartbleed", "not vulnerable"),
    ("CCS", "not vulnerable"),
    ("ticketbleed", "not vulnerable"),
    // Nothing without forward secrecy, though the certificate has an RSA key.
    ("ROBOT", "not vulnerable, no RSA key transport cipher"),
    ("secure_renego", "supported"),
    ("secure_client_renego", "not vulnerable"),
    ("CRIME_TLS", "not vulnerable"),
    ("POODLE_SSL", "not vulnerable"),
    ("fallback_SCSV", "no protocol below TLS 1.2 offered"),
    ("SWEET32", "not vulnerable"),
    ("FREAK", "not vulnerable"),
    ("DROWN", "not vulnerable"),
    ("LOGJAM", "not vulnerable"),
    ("LOGJAM-common_primes", "no DH key"),
    ("BEAST", "not vulnerable"),
    ("LUCKY13", "not vulnerable"),
    ("RC4", "not vulnerable"),
];

/// Findings that the scanner thinks bad and that stand, each with its reason.
const ALLOWED: [(&str, &str); 6] = [
    (
        "engine_problem",
        "of the scanner's openssl, not of a server",
    ),
    (
        "cipher_order",
        "all suites are strong: clients choose what they are fast at",
    ),
    ("cert_chain_of_trust", "no store has the story's authority"),
    ("cert_revocation", "the story's authority revokes nothing"),
    ("cert_serialNumberLen", "the story's authority counts"),
    (
        "cert_validityPeriod",
        "the story's authority gives no short times",
    ),
];

/// More than the scan takes where other stories run beside it.
const SCAN_TIME_MAX: Duration = Duration::from_secs(400);

/// How often it is done at most, where the scanner says that a check of its own failed.
const SCANS_MAX: usize = 3;

#[tokio::test]
async fn a_public_scanner_finds_nothing_weak() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    // With an RSA key, what is only weak with RSA is not ruled out by the certificate.
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue_rsa(&["a.test"]));
    let world = World::serve_with(
        authority,
        &[("a.yaml", site.yaml())],
        // Some checks send no name; without an answer they would find nothing, whatever there is.
        &["--default-certificate=default/a-test"],
    )
    .await;
    let mut report = scan("a.test", world.https().port()).await;
    for _ in 1..SCANS_MAX {
        if !report.iter().any(could_not_look) {
            break;
        }
        report = scan("a.test", world.https().port()).await;
    }
    let wrong = judge(&report);
    assert!(wrong.is_empty(), "{}\nin {report:#?}", wrong.join("\n"));
    assert_eq!(world.get("https://a.test/").await.status, 200);
    world.stop().await;
}

/// Whether the scanner's own client gave up, as on a busy machine, so that nothing was found out.
fn could_not_look(finding: &Value) -> bool {
    let text = finding["finding"].as_str();
    text.is_some_and(|text| text.contains("check failed because of connect problem"))
}

/// The findings of a scan of a port of this machine.
async fn scan(name: &str, port: u16) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("report.json");
    let sections = [
        "--protocols",
        "--standard",
        "--pfs",
        "--server-preference",
        "--server-defaults",
        "--vulnerable",
    ];
    let scan = Command::new("testssl")
        .args(["--quiet", "--color=0", "--warnings=off"])
        .args(["--nodns=none", "--ip=127.0.0.1"])
        .args(["--connect-timeout=20", "--openssl-timeout=20"])
        .arg("--jsonfile")
        .arg(&file)
        .args(sections)
        .arg(format!("{name}:{port}"))
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(SCAN_TIME_MAX, scan).await;
    let output = output
        .expect("the scan ends")
        .expect("testssl is installed (package testssl.sh); `cargo xtask test` sees to it");
    let text = std::fs::read_to_string(&file).ok();
    let report = text.and_then(|text| serde_json::from_str(&text).ok());
    report.unwrap_or_else(|| {
        panic!(
            "no report, but {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// The faults in a report: findings that are bad, and checks that did not find what they must.
fn judge(report: &[Value]) -> Vec<String> {
    // Checks that failed themselves are `WARN`, `DEBUG` or `FATAL`: nothing is known by them.
    let bad = report.iter().filter(|finding| {
        let is_allowed = ALLOWED.iter().any(|(id, _)| finding["id"] == *id);
        !is_allowed && finding["severity"] != "OK" && finding["severity"] != "INFO"
    });
    let bad = bad.map(|finding| format!("the scanner complains: {finding}"));
    let unmet = EXPECTED.iter().filter_map(|(id, start)| {
        let found: Vec<&Value> = report.iter().filter(|it| it["id"] == *id).collect();
        let is_met = |it: &&Value| {
            it["finding"]
                .as_str()
                .is_some_and(|it| it.starts_with(start))
        };
        let is_unmet = found.is_empty() || !found.iter().all(is_met);
        is_unmet.then(|| format!("{id} is not \"{start}\": {found:?}"))
    });
    bad.chain(unmet).collect()
}

fn finding(id: &str, severity: &str, text: &str) -> Value {
    json!({"id": id, "severity": severity, "finding": text})
}

#[test]
fn a_weakness_and_a_check_left_out_are_told() {
    let good = EXPECTED.map(|(id, start)| finding(id, "OK", start));
    assert_eq!(judge(&good), Vec::<String>::new());
    assert_eq!(judge(&good[1..]).len(), 1, "one was not looked at");
    for severity in ["LOW", "MEDIUM", "HIGH", "CRITICAL", "WARN", "FATAL"] {
        let one = finding("new", severity, "something");
        let told = judge(&[&good[..], &[one]].concat());
        assert_eq!(told.len(), 1, "{severity}: {told:?}");
    }
    let mut offered = good.clone();
    offered[3] = finding("TLS1_1", "INFO", "offered");
    let told = judge(&offered).join("");
    assert!(told.contains("TLS1_1 is not"), "{told}");
    for (id, _) in ALLOWED {
        let told = judge(&[&good[..], &[finding(id, "HIGH", "")]].concat());
        assert_eq!(told, Vec::<String>::new());
    }
}
