//! Clients that show certificates which openssl made by the commands that people copy.

use std::path::Path;
use std::process::Stdio;

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::{TO, credential, free_port, gateway, rules, service};
use myriad_e2e::{Answer, Backend, Curl};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::commands::myriad;
use super::restart::{Lines, PATIENCE};

/// An authority and a request, as Istio's task for mutual TLS at gateways makes them.
const BEGIN: &str = "
openssl req -x509 -sha256 -nodes -days 365 -newkey rsa:2048 \
  -subj '/O=example Inc./CN=example.com' -keyout authority.key -out authority.crt
openssl req -newkey rsa:2048 -nodes -subj '/CN=client.example.com/O=client organization' \
  -keyout client.key -out client.csr
";

/// The signature of that task, which makes version 1 up to OpenSSL 3.1. Later ones are told to.
const VERSION_1: &str = "
openssl x509 -req -sha256 -days 365 -CA authority.crt -CAkey authority.key -set_serial 1 \
  -in client.csr -out first.crt
if ! openssl x509 -noout -text -in first.crt | grep -q 'Version: 1 '; then
  printf '[req]\ndistinguished_name = name\n[name]\n' > plain.cnf
  openssl req -x509 -x509v1 -config plain.cnf -days 365 -CA authority.crt \
    -CAkey authority.key -key client.key -subj '/CN=client.example.com' -out first.crt
fi
openssl x509 -noout -text -in first.crt | grep 'Version: 1 '
";

/// A certificate with a name beside the subject.
const VERSION_3: &str = "
echo 'subjectAltName = DNS:client.example.com' > names.cnf
openssl x509 -req -sha256 -days 365 -CA authority.crt -CAkey authority.key -set_serial 2 \
  -in client.csr -out third.crt -extfile names.cnf
openssl x509 -noout -text -in third.crt | grep 'Version: 3 '
";

/// Runs these commands in a directory.
async fn run(directory: &Path, commands: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-ec", commands]).current_dir(directory);
    let output = shell.output().await.expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}: {said}");
}

/// Waits for a line that contains a text.
async fn line(lines: &mut Lines, text: &str) -> String {
    let found = async {
        loop {
            let line = lines.next_line().await.expect("text");
            let line = line.expect("it goes on");
            if line.contains(text) {
                return line;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("{text:?} is not said"))
}

/// Asks `a.test` at a port with a certificate out of a directory.
async fn ask(directory: &Path, port: &str, certificate: &str) -> Answer {
    let path = |name: &str| directory.join(name).display().to_string();
    let url = format!("https://a.test:{port}/");
    let resolve = format!("a.test:{port}:127.0.0.1");
    let curl = Curl::new(&url, &[resolve], &directory.join("root.pem"));
    let (certificate, key) = (path(certificate), path("client.key"));
    curl.args(&["--cert", &certificate, "--key", &key])
        .ask()
        .await
}

#[tokio::test]
async fn a_client_of_version_1_is_refused_with_the_reason_and_one_of_version_3_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    run(at, &[BEGIN, VERSION_1, VERSION_3].concat()).await;
    let (backend, authority) = (Backend::start("a").await, Authority::new());
    std::fs::write(at.join("root.pem"), authority.root()).expect("a file");
    let clients = std::fs::read_to_string(at.join("authority.crt")).expect("a root");
    let own = authority.issue(&["a.test"]);
    let server = "port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.test], \
                  tls: {mode: MUTUAL, credentialName: own}";
    let objects = gateway("edge", &[server])
        + &credential("own", &own, &[("ca.crt", &clients)])
        + &service("api", &[backend.address()])
        + &rules(&[TO]);
    let served = at.join("served");
    std::fs::create_dir(&served).expect("a directory");
    std::fs::write(served.join("a.yaml"), objects).expect("a file");
    let admin = free_port();
    let mut child = myriad()
        .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .arg(format!("--admin=127.0.0.1:{admin}"))
        .arg(&served)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let greeting = line(&mut lines, "https on 127.0.0.1:").await;
    let (_, rest) = greeting.split_once("https on 127.0.0.1:").expect("a port");
    let port = rest.split(',').next().expect("a port");

    let refused = ask(at, port, "first.crt").await;
    assert_eq!(refused.status, 0, "{refused:?}");
    let told = line(&mut lines, "a client is not believed").await;
    assert!(told.contains("X.509 version 1"), "{told}");
    assert!(told.contains("-extfile"), "{told}");
    let metrics = format!("http://127.0.0.1:{admin}/metrics");
    let page = Curl::new(&metrics, &[], &at.join("root.pem")).ask().await;
    let counted = "myriad_peers_refused_total{side=\"client\"} 1\n";
    assert!(page.body.contains(counted), "{}", page.body);

    let passed = ask(at, port, "third.crt").await;
    assert_eq!(passed.status, 200, "{passed:?}");
    assert_eq!(backend.asked(), 1);
}
