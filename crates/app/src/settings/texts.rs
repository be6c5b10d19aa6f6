//! How the texts of single settings are read.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_proxy::Workload;

use crate::cli::RawTraffic;

/// The longest path of a socket: the system has room for 107 bytes, of which `.new` takes four.
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// Labels as `KEY=VALUE`.
pub(super) fn labels(written: &[String], problems: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for text in written.iter().filter(|text| !text.is_empty()) {
        match text.split_once('=') {
            Some((key, value)) => {
                labels.insert(key.to_owned(), value.to_owned());
            }
            None => problems.push(format!(
                "--gateway-labels has {text:?}, which is no KEY=VALUE"
            )),
        }
    }
    labels
}

/// Ranges of ports as `FROM-TO`, or single ones.
pub(super) fn ranges(written: &[String], problems: &mut Vec<String>) -> Vec<RangeInclusive<u16>> {
    let mut ranges = Vec::new();
    for text in written.iter().filter(|text| !text.is_empty()) {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (from.trim().parse(), to.trim().parse()) {
            (Ok(from), Ok(to)) if from > 0 && from <= to => ranges.push(from..=to),
            _ => problems.push(format!(
                "--gateway-ports has {text:?}, which is no port or FROM-TO"
            )),
        }
    }
    ranges
}

/// A namespace and a name.
pub(super) fn name_pair(
    setting: &str,
    text: &str,
    problems: &mut Vec<String>,
) -> Option<(String, String)> {
    let parts = text.split_once('/');
    let parts = parts.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    if parts.is_none() {
        problems.push(format!("{setting} is {text:?}, not NAMESPACE/NAME"));
    }
    parts.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
}

/// The ConfigMap of an ingress-nginx, if one is named.
pub(super) fn config_map(written: Option<&str>, problems: &mut Vec<String>) -> Option<ObjectKey> {
    let (namespace, name) = name_pair("--nginx-configmap", written?, problems)?;
    Some(ObjectKey::new(ObjectKind::ConfigMap, &namespace, &name))
}

/// The path of the socket of a hot restart, if any.
pub(super) fn restart_socket(raw: &RawTraffic, problems: &mut Vec<String>) -> Option<PathBuf> {
    let path = raw.life.restart_socket.clone()?;
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        problems.push(format!(
            "--restart-socket {} is longer than {SOCKET_PATH_BYTES_MAX} bytes",
            path.display()
        ));
    }
    Some(path)
}

/// The workload of the proxy in the labels of standard metrics.
pub(super) fn workload(written: Option<&str>, problems: &mut Vec<String>) -> Option<Workload> {
    let written = written?;
    match written.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Some(Workload {
            name: name.into(),
            namespace: namespace.into(),
        }),
        _ => {
            problems.push(format!("--workload {written:?} is not NAMESPACE/NAME"));
            None
        }
    }
}
