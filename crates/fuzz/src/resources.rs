//! Resources as proxies are sent them, and as they keep them.

use bytes::Bytes;
use myriad_model::wire::{decode, encode};
use myriad_model::workload::WorkloadNames;
use myriad_sync::Logged;

/// A resource that is accepted is written as one that is accepted, and the same.
pub(crate) fn resource(bytes: &[u8]) -> bool {
    let Ok(resource) = decode(&Bytes::copy_from_slice(bytes)) else {
        return false;
    };
    assert_written(&resource);
    true
}

/// A resource is written as one that is taken, and the same.
pub(crate) fn assert_written(resource: &myriad_model::Resource) {
    let mut written = Vec::new();
    encode(resource, &mut written);
    let again = decode(&Bytes::from(written.clone()));
    let mut rewritten = Vec::new();
    match again {
        Ok(again) => encode(&again, &mut rewritten),
        Err(error) => panic!("what was written is not taken: {error}"),
    }
    assert_eq!(written, rewritten);
}

/// Names in a certificate are bounded, and written as they were read.
pub(crate) fn workload_names(bytes: &[u8]) -> bool {
    let Some(names) = WorkloadNames::from_der(bytes) else {
        return false;
    };
    let again = WorkloadNames::from_der(&names.to_der());
    assert!(again.is_some_and(|again| again == names));
    true
}

/// A commit of the log is written as it was read.
pub(crate) fn log_record(bytes: &[u8]) -> bool {
    let Ok(logged) = Logged::decode(Bytes::copy_from_slice(bytes)) else {
        return false;
    };
    let again = Logged::decode(Bytes::from(logged.encode()));
    assert!(again.is_ok_and(|again| again == logged));
    true
}
