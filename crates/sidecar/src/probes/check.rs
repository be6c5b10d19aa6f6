//! The checks of a workload, as injection writes them.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::Deserialize;

/// The most checks of a Pod.
const CHECKS_MAX: usize = 256;

/// Checks of the workload, by the path under which the kubelet asks for them.
pub type Checks = BTreeMap<String, Check>;

/// A check of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    #[serde(flatten)]
    pub(super) form: Form,
    pub(super) timeout_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Form {
    HttpGet(HttpGet),
    TcpSocket(TcpSocket),
    Grpc(Grpc),
}

/// The check over HTTP as in a Pod; the port is a number and there is no other host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HttpGet {
    #[serde(default)]
    pub(super) path: String,
    pub(super) port: u16,
    /// HTTP if it is empty.
    #[serde(default)]
    pub(super) scheme: String,
    #[serde(default)]
    pub(super) http_headers: Vec<HttpHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct HttpHeader {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TcpSocket {
    pub(super) port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Grpc {
    pub(super) port: u16,
    #[serde(default)]
    pub(super) service: String,
}

/// Reads the checks as injection writes them.
///
/// # Errors
/// They are no such JSON, or too many.
pub fn read(json: &str) -> anyhow::Result<Checks> {
    if json.is_empty() {
        return Ok(Checks::new());
    }
    let checks: Checks = serde_json::from_str(json)?;
    ensure!(checks.len() <= CHECKS_MAX, "there are over {CHECKS_MAX}");
    Ok(checks)
}
