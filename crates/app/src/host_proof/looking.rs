//! Questions whose a host is, to its zone. Whoever forges an answer over UDP changes nothing: an
//! answer that is not known yet is asked for once more over TCP.

use std::collections::BTreeSet;

use myriad_base::log::sparse::SparseLines;
use myriad_model::Host;
use myriad_translate::proof_record;

use super::record;
use crate::acme::TextFinder;

/// The lines about what is not confirmed.
static LINES: SparseLines = SparseLines::untold();

/// The namespaces that the records of a host name.
#[derive(Debug)]
pub(super) struct NamedOwners {
    /// The namespaces.
    pub named: BTreeSet<Box<str>>,
    /// Whether nothing of it was heard over UDP alone.
    is_confirmed: bool,
}

impl NamedOwners {
    /// The namespaces, where they are confirmed, or say what is known: that this namespace has
    /// proven the host, or none.
    pub(super) fn trusted(&self, proven: Option<&str>) -> Option<&BTreeSet<Box<str>>> {
        let is_trusted = self.is_confirmed || is_known(&self.named, proven);
        is_trusted.then_some(&self.named)
    }
}

/// Reads the records of a host, which a namespace has proven as far as is known, or none.
///
/// # Errors
/// Words about why nobody says.
pub(super) async fn look(
    finder: &TextFinder,
    installation: &str,
    host: &Host,
    proven: Option<&str>,
) -> Result<NamedOwners, String> {
    let Some(name) = proof_record(host) else {
        return Ok(NamedOwners {
            named: BTreeSet::new(),
            is_confirmed: true,
        });
    };
    let named = record::named(&finder.texts(&name).await?, installation);
    if is_known(&named, proven) {
        return Ok(NamedOwners {
            named,
            is_confirmed: false,
        });
    }
    let confirmed = finder.confirmed_texts(&name).await.inspect_err(|words| {
        if let Some(left_out) = LINES.admit() {
            tracing::warn!(%host, words, left_out, "whose a host is now is not confirmed");
        }
    });
    Ok(NamedOwners {
        named: record::named(&confirmed?, installation),
        is_confirmed: true,
    })
}

fn is_known(named: &BTreeSet<Box<str>>, proven: Option<&str>) -> bool {
    named.iter().map(|namespace| &**namespace).eq(proven)
}

#[cfg(test)]
mod tests {
    use super::NamedOwners;

    #[test]
    fn what_is_known_needs_no_confirmation_and_all_else_does() {
        let cases: [(&[&str], Option<&str>, bool); 6] = [
            (&[], None, true),
            (&["shop"], Some("shop"), true),
            (&["shop"], None, false),
            (&[], Some("shop"), false),
            (&["blog"], Some("shop"), false),
            (&["blog", "shop"], Some("shop"), false),
        ];
        for (named, proven, is_known) in cases {
            let named = named.iter().map(|namespace| Box::from(*namespace));
            let mut owners = NamedOwners {
                named: named.collect(),
                is_confirmed: false,
            };
            assert_eq!(owners.trusted(proven).is_some(), is_known, "{owners:?}");
            owners.is_confirmed = true;
            assert!(owners.trusted(proven).is_some());
        }
    }
}
