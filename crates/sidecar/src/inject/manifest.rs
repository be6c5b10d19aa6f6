//! Objects in files: which of them hold Pods, and the same objects again with proxies in them.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::decision::{Decision, Labels, decide};
use super::pod::inject;
use super::sidecar::Sidecar;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The path to the Pod in an object of a kind; empty for the object itself.
const PODS: [(&str, &str); 8] = [
    ("Pod", ""),
    ("Deployment", "/spec/template"),
    ("StatefulSet", "/spec/template"),
    ("DaemonSet", "/spec/template"),
    ("ReplicaSet", "/spec/template"),
    ("ReplicationController", "/spec/template"),
    ("Job", "/spec/template"),
    ("CronJob", "/spec/jobTemplate/spec/template"),
];

/// Writes the objects of the files to standard output, with proxies; what is left as it is, and
/// why, is told on standard error.
///
/// # Errors
/// A file that cannot be read, or annotations that do not hold; nothing is written then.
pub(super) fn inject_files(files: &[PathBuf], sidecar: &Sidecar) -> anyhow::Result<()> {
    let mut out = String::new();
    for file in files {
        let text = read(file)?;
        inject_text(&text, sidecar, &mut out).with_context(|| file.display().to_string())?;
    }
    std::io::stdout().lock().write_all(out.as_bytes())?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "bounded by `take`")]
fn read(file: &Path) -> anyhow::Result<String> {
    let unreadable = || format!("{} cannot be read", file.display());
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin()
            .take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text),
        false => {
            let file = std::fs::File::open(file).with_context(unreadable)?;
            file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
        }
    };
    let bytes = read.with_context(unreadable)?;
    let is_small = u64::try_from(bytes).is_ok_and(|it| it <= FILE_BYTES_MAX);
    ensure!(is_small, "{} has more than 64 MiB", file.display());
    Ok(text)
}

/// The documents of one file.
fn inject_text(text: &str, sidecar: &Sidecar, out: &mut String) -> anyhow::Result<()> {
    let documents = serde_saphyr::from_multiple::<Value>(text)?;
    for mut document in documents.into_iter().filter(|it| !it.is_null()) {
        let is_list = document.get("kind").and_then(Value::as_str) == Some("List");
        let items = match is_list {
            true => document.get_mut("items").and_then(Value::as_array_mut),
            false => None,
        };
        match items {
            Some(items) => {
                for item in items {
                    inject_object(item, sidecar)?;
                }
            }
            None => inject_object(&mut document, sidecar)?,
        }
        out.push_str("---\n");
        out.push_str(&serde_saphyr::to_string(&document)?);
    }
    Ok(())
}

fn inject_object(object: &mut Value, sidecar: &Sidecar) -> anyhow::Result<()> {
    let kind = object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some((_, pointer)) = PODS.iter().find(|(known, _)| *known == kind) else {
        return Ok(());
    };
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default().to_owned();
    let namespace = text("/metadata/namespace").unwrap_or("default").to_owned();
    let object_name = format!("{kind} {namespace}/{name}");
    let Some(pod) = object.pointer_mut(pointer) else {
        bail!("{object_name} has no {pointer}");
    };
    // Whoever runs the command asks for it: what is known of the namespace is that it agrees.
    let asked = Labels::from([("istio-injection".to_owned(), "enabled".to_owned())]);
    match decide(pod, &namespace, &asked) {
        Decision::Leave(reason) => warn(&format!("{object_name} is left as it is: {reason}")),
        Decision::Inject => {
            let injected = inject(pod, &name, sidecar);
            let injected = injected.map_err(|it| anyhow::anyhow!("{object_name}: {it}"))?;
            for warning in &injected.warnings {
                warn(&format!("{object_name}: {warning}"));
            }
            *pod = injected.pod;
        }
    }
    Ok(())
}

fn warn(text: &str) {
    // Standard error may be closed; there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "myriad: {text}");
}
