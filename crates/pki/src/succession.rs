//! How one authority of a mesh follows another while workloads trust what both have signed.
//!
//! The roots that peers are known by are told to proxies over their streams, and a proxy that is
//! told has it within moments; one whose stream is broken has it when it is back. So a new root is
//! told for a while before anything is signed with it, and an old one until nothing that was signed
//! with it holds any more.

use std::time::Duration;

use rustls_pki_types::CertificateDer;

use crate::authority::CLOCK_SKEW;
use crate::mesh::MeshAuthority;

/// The most roots that are trusted at a time. Of more, those go first that are needed least long.
pub const ROOTS_MAX: usize = 16;

/// The authority that signs, what comes after it, and all that is to be trusted.
pub struct Succession {
    signer: MeshAuthority,
    next: Option<MeshAuthority>,
    roots: Vec<Root>,
    overlap: i64,
    lifetime: i64,
}

struct Root {
    certificate: CertificateDer<'static>,
    /// Since when it has been told, in seconds since the epoch.
    since: i64,
    /// Until when it is needed, once no authority names it any more.
    until: Option<i64>,
}

impl Succession {
    /// The first authority, which signs at once: nobody trusts another one. `overlap` is how long
    /// a root is told before anything is signed with it, and `lifetime` the longest life of what
    /// is signed.
    pub fn new(first: MeshAuthority, overlap: Duration, lifetime: Duration) -> Succession {
        let roots = first.roots().iter().map(|root| Root {
            certificate: root.clone(),
            since: i64::MIN,
            until: None,
        });
        Succession {
            roots: roots.collect(),
            signer: first,
            next: None,
            overlap: seconds(overlap),
            lifetime: seconds(lifetime + CLOCK_SKEW),
        }
    }

    /// Takes in the authority that is kept now; `now` is in seconds since the epoch.
    /// Returns whether what is to be trusted has changed.
    pub fn see(&mut self, newest: MeshAuthority, now: i64) -> bool {
        let before = self.roots.len();
        for root in newest.roots() {
            if !self.roots.iter().any(|it| it.certificate == *root) {
                self.roots.push(Root {
                    certificate: root.clone(),
                    since: now,
                    until: None,
                });
            }
        }
        let is_changed = self.roots.len() > before;
        if newest.is_like(&self.signer) {
            self.signer = newest;
            self.next = None;
        } else {
            self.next = Some(newest);
        }
        self.step(now) || is_changed
    }

    /// Lets the next authority sign if it is time, and forgets roots that are needed no more.
    /// Returns whether what is to be trusted has changed.
    pub fn step(&mut self, now: i64) -> bool {
        for root in &mut self.roots {
            // By a clock that was ahead.
            root.since = root.since.min(now);
        }
        let is_told = |it: &MeshAuthority| {
            let mut told = self.roots.iter().filter(|root| {
                let since = root.since.saturating_add(self.overlap);
                it.anchors().contains(&root.certificate) && since <= now
            });
            told.next().is_some()
        };
        if self.next.as_ref().is_some_and(is_told)
            && let Some(next) = self.next.take()
        {
            self.signer = next;
        }
        let before = self.roots.len();
        let named = [Some(&self.signer), self.next.as_ref()];
        for root in &mut self.roots {
            let mut authorities = named.iter().flatten();
            let is_named = authorities.any(|it| it.roots().contains(&root.certificate));
            root.until = match is_named {
                true => None,
                false => Some(root.until.unwrap_or(now.saturating_add(self.lifetime))),
            };
        }
        self.roots
            .retain(|it| it.until.is_none_or(|until| until > now));
        while self.roots.len() > ROOTS_MAX {
            let least = (0..self.roots.len()).min_by_key(|at| {
                let until = self.roots.get(*at).and_then(|it| it.until);
                until.unwrap_or(i64::MAX)
            });
            let Some(least) = least else { break };
            self.roots.remove(least);
        }
        self.roots.len() != before
    }

    /// The authority that signs.
    pub fn signer(&self) -> &MeshAuthority {
        &self.signer
    }

    /// Whether another authority waits until its root is known.
    pub fn is_changing(&self) -> bool {
        self.next.is_some()
    }

    /// All that is to be trusted.
    pub fn roots(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.roots.iter().map(|it| &it.certificate)
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
