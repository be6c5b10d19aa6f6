//! The turns of namespaces that have something waiting.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The namespace whose turn it is after that of another one, among those with lanes that may have
/// one.
pub(super) fn next_after<'a, L>(
    lanes: &'a BTreeMap<Box<str>, L>,
    last: &str,
    may_run: &dyn Fn(&str) -> bool,
) -> Option<&'a str> {
    let beyond = (Bound::Excluded(last), Bound::Unbounded);
    let later = lanes.range::<str, _>(beyond);
    let mut all = later.chain(lanes).map(|(namespace, _)| &**namespace);
    all.find(|namespace| may_run(namespace))
}
