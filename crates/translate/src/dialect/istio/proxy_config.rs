//! ProxyConfig: what a proxy of Istio starts with, for which a proxy has settings of its own
//! here.

use myriad_api::istio::ProxyConfig;
use myriad_api::{Finding, Severity};

use crate::engine::{Output, Reader};
use crate::resolve::notes;

/// Says which setting stands in the place of each field.
pub(super) fn judge(reader: &Reader<'_>, config: &ProxyConfig) -> Output {
    let mut output = Output::default();
    let key = &config.meta.key;
    let mut tell = |severity, field: &str, message: &str, remedy| {
        let finding = Finding::new(severity, key, field, message, remedy);
        output.findings.push(finding);
    };
    let view = reader.view();
    let is_root = key.namespace() == reader.settings().root_namespace();
    let selector = config.spec.selector.as_ref();
    let is_selected = selector.is_none_or(|selector| view.has_labels(&selector.match_labels));
    if !(is_root || view.is_of(key.namespace())) || !is_selected {
        let message = "is for other workloads, which are not served here";
        let remedy = "compare it with --gateway-namespace and --gateway-labels";
        tell(Severity::Info, "", message, remedy);
        output.doubts.append(&mut output.findings);
        return output;
    }
    output.is_concerned = true;
    if config.spec.concurrency.is_some() {
        let message = "has no effect: a proxy has its threads before it knows any object";
        let remedy = "set --workers of the proxy";
        tell(Severity::Error, "spec.concurrency", message, remedy);
    }
    output.findings.extend(notes(key, &config.notes));
    output
}
