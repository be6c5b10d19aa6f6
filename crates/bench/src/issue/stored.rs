//! `issue --stored`: a start of `serve` with very many certificates that were kept, the memory that
//! they take, and what it costs to know when each is to be renewed.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indicatif::ProgressBar;
use myriad_lab::port::free_port;
use serde::Serialize;
use serde_json::{Value, json};

use super::{IssueArgs, objects, progress};
use crate::backend;
use crate::cluster::process::Process;
use crate::domains::{Certificates, Domain, Generator, NAMESPACE, pem};

/// Ingresses of one file.
const INGRESSES_PER_FILE: u64 = 1_000;

/// The directory that certificates say they are of. The issuer has another one, so that nobody is
/// asked when they are to be renewed: what is measured is the process alone.
const FORMER_DIRECTORY: &str = "https://former.example/dir";

/// The directory of the issuer, where nobody listens.
const DIRECTORY: &str = "https://127.0.0.1:9/dir";

/// How long a process may take to serve, and to know all certificates.
const START_TIMEOUT: Duration = Duration::from_secs(1_800);

/// Between two looks at that.
const START_PAUSE: Duration = Duration::from_millis(20);

/// How long the heap is left alone before memory is looked at: freed pages go back after a second.
const SETTLING: Duration = Duration::from_secs(3);

/// How long nothing happens while processor time is taken.
const IDLE: Duration = Duration::from_secs(20);

/// The file that says how many certificates a folder has.
const COUNT_FILE: &str = "count";

/// The figures of a run.
#[derive(Serialize)]
struct StoredReport {
    /// Certificates that were kept, each wanted by an Ingress.
    stored: u64,
    /// From the start of the process to its readiness.
    start_s: f64,
    /// To the moment at which it knows of all certificates that they are wanted and there, of which
    /// it tells every 5 s.
    restored_s: f64,
    /// Resident memory then, and at its peak.
    rss_mib: f64,
    rss_peak_mib: f64,
    /// Memory of each certificate with its domain, beyond that of a process without any.
    kib_per_certificate: f64,
    /// Processor time per second while nothing is due, and that of a process without any.
    idle_ms_per_s: f64,
    idle_empty_ms_per_s: f64,
}

/// A process at rest.
struct AtRest {
    start: Duration,
    restored: Duration,
    rss_mib: f64,
    rss_peak_mib: f64,
    idle_ms_per_s: f64,
}

/// Runs it. Certificates are made in a folder, or found there.
///
/// # Errors
/// Files that cannot be written, a process that ends or takes too long.
pub(super) fn run(args: &IssueArgs, stored: u64) -> anyhow::Result<()> {
    ensure!(stored > 0, "there is a certificate");
    let temporary = tempfile::tempdir()?;
    let folder = args.stored_in.as_deref().unwrap_or(temporary.path());
    let endpoints = backend::start(Ipv4Addr::LOCALHOST.into())?;
    let bar = progress(args.json, stored).with_message("certificates made");
    provide(folder, stored, endpoints, &bar)?;
    bar.finish_and_clear();
    let bare = temporary.path().join("empty");
    write_shared(&bare, endpoints[0])?;
    let empty = measure(args, &bare, 0).context("without certificates")?;
    let full = measure(args, folder, stored)?;
    let beyond = full.rss_mib - empty.rss_mib;
    let report = StoredReport {
        stored,
        start_s: full.start.as_secs_f64(),
        restored_s: full.restored.as_secs_f64(),
        rss_mib: full.rss_mib,
        rss_peak_mib: full.rss_peak_mib,
        kib_per_certificate: beyond * 1_024.0 / stored as f64,
        idle_ms_per_s: full.idle_ms_per_s,
        idle_empty_ms_per_s: empty.idle_ms_per_s,
    };
    super::print(args, &report)
}

/// Makes as many certificates in a folder, unless it has them from before.
fn provide(
    folder: &Path,
    stored: u64,
    endpoints: [SocketAddr; 2],
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let count = folder.join(COUNT_FILE);
    let known = std::fs::read_to_string(&count).ok();
    if let Some(known) = known {
        ensure!(
            known.trim().parse() == Ok(stored),
            "{} has {} certificates: name another folder",
            folder.display(),
            known.trim()
        );
        // The endpoint is another one each time.
        return write_shared(folder, endpoints[0]);
    }
    let generator = Generator::new(Certificates::Unique, endpoints)?;
    let certificates = state(folder).join("certificates");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&certificates)?;
    write_shared(folder, endpoints[0])?;
    for first in (0..stored).step_by(INGRESSES_PER_FILE as usize) {
        let last = stored.min(first + INGRESSES_PER_FILE);
        let mut ingresses = Vec::new();
        for index in first..last {
            let domain = generator.domain(Generator::existing(index), 0)?;
            let name = domain.name();
            let secret = secret(&domain, generator.issuer())?.to_string();
            let file = certificates.join(format!("{NAMESPACE}+{name}.json"));
            std::fs::write(file, secret)?;
            ingresses.push(objects::ingress(NAMESPACE, None, &name, &domain.host));
            bar.inc(1);
        }
        let file = served(folder).join(format!("ingresses-{first}.yaml"));
        std::fs::write(file, objects::documents(&ingresses))?;
    }
    Ok(std::fs::write(count, stored.to_string())?)
}

fn served(folder: &Path) -> PathBuf {
    folder.join("served")
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state")
}

/// Writes what all domains share.
fn write_shared(folder: &Path, endpoint: SocketAddr) -> anyhow::Result<()> {
    let served = served(folder);
    std::fs::create_dir_all(&served)?;
    let service = objects::service(NAMESPACE);
    let shared = [service, objects::slice(NAMESPACE, endpoint)];
    let text = objects::documents(&shared);
    Ok(std::fs::write(served.join("issued.yaml"), text)?)
}

/// The Secret of a certificate, as it is kept.
fn secret(domain: &Domain, issuer: &[u8]) -> anyhow::Result<Value> {
    let pair = domain.own.as_ref().context("it has a certificate")?;
    let chain = pem("CERTIFICATE", &pair.leaf) + &pem("CERTIFICATE", issuer);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "namespace": NAMESPACE,
            "name": domain.name(),
            "annotations": {
                "myriad.dev/issuer": "default",
                "myriad.dev/acme-directory": FORMER_DIRECTORY,
                "myriad.dev/acme-placed-at": "1",
            },
        },
        "data": {
            "tls.crt": STANDARD.encode(chain),
            "tls.key": STANDARD.encode(pem("PRIVATE KEY", &pair.key)),
        },
    }))
}

/// Starts a process with what is in a folder, and looks at it once it knows everything.
fn measure(args: &IssueArgs, folder: &Path, stored: u64) -> anyhow::Result<AtRest> {
    let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let [http, https, admin] = [(); 3].map(|()| local(free_port()));
    let arguments = [
        "serve".to_owned(),
        served(folder).display().to_string(),
        format!("--http={http}"),
        format!("--https={https}"),
        format!("--workers={}", args.workers),
        format!("--acme-directory={DIRECTORY}"),
        format!("--acme-state-dir={}", state(folder).display()),
        "--log=warn".to_owned(),
    ];
    let began = Instant::now();
    let process = Process::start(admin, &arguments, &[], &folder.join("log"))?;
    let until = |is_met: &dyn Fn() -> bool| -> anyhow::Result<Duration> {
        while !is_met() {
            // One that has ended has no memory.
            process.memory_mib().context("the process has ended")?;
            ensure!(began.elapsed() < START_TIMEOUT, "it takes too long");
            std::thread::sleep(START_PAUSE);
        }
        Ok(began.elapsed())
    };
    let start = until(&|| process.page("/readyz").is_ok())?;
    let is_held = || {
        let held = process.figures().and_then(|it| it.gauge("acme_held"));
        held.is_ok_and(|held| held >= stored as f64)
    };
    let restored = until(&is_held)?;
    std::thread::sleep(SETTLING);
    let (rss_mib, rss_peak_mib) = process.memory_mib()?;
    let before = process.processor_time()?;
    std::thread::sleep(IDLE);
    let worked = process.processor_time()?.saturating_sub(before);
    ensure!(
        process.figures()?.counter("acme_failures")? == 0,
        "an order was begun: some certificates are over"
    );
    process.kill()?;
    Ok(AtRest {
        start,
        restored,
        rss_mib,
        rss_peak_mib,
        idle_ms_per_s: worked.as_secs_f64() * 1_000.0 / IDLE.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use indicatif::ProgressBar;
    use myriad_api::{Object, ObjectKind};

    use super::{provide, served, state};

    #[test]
    fn a_folder_has_a_certificate_for_each_ingress_and_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let endpoints = [SocketAddr::from(([127, 0, 0, 1], 1)); 2];
        let bar = ProgressBar::hidden();
        provide(folder.path(), 3, endpoints, &bar).unwrap();
        let certificates = state(folder.path()).join("certificates");
        let mut names = Vec::new();
        for entry in certificates.read_dir().unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let Ok(Object::Secret(secret)) = Object::from_json(ObjectKind::Secret, &text) else {
                panic!("no Secret: {text}")
            };
            assert_eq!(secret.meta.annotation("myriad.dev/issuer"), Some("default"));
            assert_eq!(secret.tls.as_ref().unwrap().chain.len(), 2);
            names.push(secret.meta.key.name().to_owned());
        }
        let file = served(folder.path()).join("ingresses-0.yaml");
        let ingresses = std::fs::read_to_string(file).unwrap();
        assert_eq!((names.len(), ingresses.matches("---\n").count()), (3, 3));
        assert!(names.iter().all(|name| ingresses.contains(name.as_str())));
        // It is not made again, and not taken for another one.
        assert!(provide(folder.path(), 3, endpoints, &bar).is_ok());
        assert!(provide(folder.path(), 4, endpoints, &bar).is_err());
    }
}
