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
";

/// Calls of `openssl`, one a line, in this order.
const OPENSSL_CALLS: [&str; 4] = [
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 \
     -config openssl.cnf -extensions authority -keyout ca.key -out ca.crt",
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 \
     -config openssl.cnf -extensions server -subj /CN=kube-apiserver \
     -CA ca.crt -CAkey ca.key -keyout server.key -out server.crt",
    // Most clusters sign the tokens of service accounts by RSA, so this one does.
    "genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out service-accounts.key",
    "pkey -in service-accounts.key -pubout -out service-accounts.pub",
];

/// Inside the network of the cluster.
const SERVER: &str = "https://127.0.0.1:6443";

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
    let (administrator, controllers) = (token()?, token()?);
    let tokens = tokens(&administrator, &controllers);
    lock.write(&path("tokens.csv"), &tokens, 0o600)?;
    let controllers = kubeconfig(folder, &controllers);
    lock.write(&path("controller-manager.kubeconfig"), &controllers, 0o600)?;
    let administrator = kubeconfig(folder, &administrator);
    lock.write(&folder.kubeconfig(), &administrator, 0o600)
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

/// Token, user, the user's id and groups. The second user has its rights by a role that every
/// cluster comes with.
fn tokens(administrator: &str, controllers: &str) -> String {
    format!(
        "{administrator},admin,admin,system:masters\n\
         {controllers},system:kube-controller-manager,system:kube-controller-manager\n"
    )
}

/// The format is YAML, and so is JSON, where no path needs a thought about quotes.
fn kubeconfig(folder: &Folder, token: &str) -> String {
    let authority = folder.path().join("ca.crt");
    let name = folder.name().to_string();
    let value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": name,
            "cluster": { "server": SERVER, "certificate-authority": authority },
        }],
        "users": [{ "name": name, "user": { "token": token } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "current-context": name,
    });
    format!("{value:#}\n")
}
