//! Credentials of the parts of a cluster: certificates, tokens and the keys that sign
//! service-account tokens. All of it is made anew for every cluster.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::folder::{Folder, Lock};

/// The settings of `openssl`. The names and addresses are those under which the API is
/// reached: as a service, through its first address or its endpoint, and on the spot.
const OPENSSL_CONFIGURATION: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = myriad-test-cluster
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc, \
DNS:kubernetes.default.svc.cluster.local, DNS:localhost, \
IP:127.0.0.1, IP:10.96.0.1, IP:10.244.255.1
[client]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
";

/// Calls of `openssl`, one a line, in this order.
const OPENSSL_CALLS: [&str; 5] = [
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 \
     -config openssl.cnf -extensions authority -keyout ca.key -out ca.crt",
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 \
     -config openssl.cnf -extensions server -subj /CN=kube-apiserver \
     -CA ca.crt -CAkey ca.key -keyout server.key -out server.crt",
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 \
     -config openssl.cnf -extensions client -subj /CN=front-proxy \
     -CA ca.crt -CAkey ca.key -keyout front-proxy.key -out front-proxy.crt",
    // Most clusters sign the tokens of service accounts by RSA, so this one does.
    "genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out service-accounts.key",
    "pkey -in service-accounts.key -pubout -out service-accounts.pub",
];

/// The API on the spot, and where machines of other networks reach it.
const SERVERS: [&str; 2] = ["https://127.0.0.1:6443", "https://10.244.255.1:6443"];

/// A user of the API, with its groups and its kubeconfig.
struct User {
    name: &'static str,
    groups: &'static str,
    kubeconfig: &'static str,
    server: &'static str,
}

/// The users. All but the administrator have their rights by roles that every cluster comes with.
const USERS: [User; 6] = [
    User::part(
        "system:kube-controller-manager",
        "controller-manager.kubeconfig",
    ),
    User::part("system:kube-scheduler", "kube-scheduler.kubeconfig"),
    User {
        server: SERVERS[1],
        ..User::part("system:kube-proxy", "kube-proxy.kubeconfig")
    },
    User::kubelet("system:node:node-1", "node-1.kubeconfig"),
    User::kubelet("system:node:node-2", "node-2.kubeconfig"),
    // Its file says that everything is there.
    User {
        name: "admin",
        groups: "system:masters",
        kubeconfig: "kubeconfig",
        server: SERVERS[0],
    },
];

impl User {
    const fn part(name: &'static str, kubeconfig: &'static str) -> User {
        User {
            name,
            groups: name,
            kubeconfig,
            server: SERVERS[0],
        }
    }

    const fn kubelet(name: &'static str, kubeconfig: &'static str) -> User {
        User {
            name,
            groups: "system:nodes",
            kubeconfig,
            server: SERVERS[1],
        }
    }

    /// Token, user, the user's id and groups.
    fn line(&self, token: &str) -> String {
        let User { name, groups, .. } = self;
        format!("{token},{name},{name},{groups}\n")
    }
}

/// Makes everything, unless it is there: the kubeconfig comes last.
pub(super) fn provide(folder: &Folder, lock: &Lock) -> Result<()> {
    if folder.kubeconfig().is_file() {
        return Ok(());
    }
    let path = |file: &str| folder.path().join(file);
    lock.write(&path("openssl.cnf"), OPENSSL_CONFIGURATION, 0o600)?;
    for call in OPENSSL_CALLS {
        run_openssl(folder, call)?;
    }
    let mut lines = String::new();
    let mut users = Vec::new();
    for user in &USERS {
        let token = token()?;
        lines += &user.line(&token);
        users.push((user, token));
    }
    lock.write(&path("tokens.csv"), &lines, 0o600)?;
    for (user, token) in users {
        let text = kubeconfig(folder, user.server, &token);
        lock.write(&path(user.kubeconfig), &text, 0o600)?;
    }
    Ok(())
}

fn run_openssl(folder: &Folder, call: &str) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(call.split_ascii_whitespace());
    command.current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().context("`openssl` does not start")?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("openssl {call}: {}", complaint.trim());
    }
    Ok(())
}

/// 128 bits that nobody can guess, in hexadecimal digits.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The format is YAML, and so is JSON, where no path needs a thought about quotes.
fn kubeconfig(folder: &Folder, server: &str, token: &str) -> String {
    let authority = folder.path().join("ca.crt");
    let name = folder.name().to_string();
    let value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": name,
            "cluster": { "server": server, "certificate-authority": authority },
        }],
        "users": [{ "name": name, "user": { "token": token } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "current-context": name,
    });
    format!("{value:#}\n")
}
