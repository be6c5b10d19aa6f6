//! How one authority of a mesh follows another while workloads trust what both have signed.
//!
//! The roots that peers are known by are told to proxies over their streams, and a proxy that is
//! told has it within moments; one whose stream is broken has it when it is back. So a new root is
//! told for a while before anything is signed with it, and an old one until nothing that was signed
//! with it holds any more.
//!
//! All that is told is kept beyond the process, as [`KeptRoot`]s that all replicas read and write:
//! one that starts knows what others tell, and since when.

use std::time::Duration;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::authority::CLOCK_SKEW;
use crate::mesh::{LIFETIME_MAX, MeshAuthority};

/// The most roots that are trusted at a time. Of more, those go first that are needed least long.
pub const ROOTS_MAX: usize = 16;

/// The beginning of a root that nobody has to be told of first, since nothing was trusted before.
const EVER: i64 = 0;

/// The authority that signs, what comes after it, and all that is to be trusted.
pub struct Succession {
    /// The authority that signs; absent until the root of the first one that was found is told.
    signer: Option<MeshAuthority>,
    next: Option<MeshAuthority>,
    roots: Vec<Root>,
    /// Whether nobody has ever trusted anything.
    is_new: bool,
    /// The last look at what there is, in seconds since the epoch.
    looked: i64,
    overlap: i64,
    lifetime: i64,
}

struct Root {
    certificate: CertificateDer<'static>,
    /// The last look that did not find it: nobody can have told it before.
    missed: i64,
    /// Since when it has been told, in seconds since the epoch.
    since: i64,
    /// Until when it is needed, once no authority names it any more.
    until: Option<i64>,
}

/// A root as it is kept: the certificate, which is public, and never a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRoot {
    certificate: CertificateDer<'static>,
    since: i64,
    until: Option<i64>,
}

impl KeptRoot {
    /// A root that has been told since then, and is needed until then if no authority names it any
    /// more; both in seconds since the epoch. None of bytes that are no certificate, and of times
    /// before the epoch.
    pub fn new(certificate: &[u8], since: i64, until: Option<i64>) -> Option<KeptRoot> {
        let (rest, _) = X509Certificate::from_der(certificate).ok()?;
        let is_sound = rest.is_empty() && since >= EVER && until.is_none_or(|it| it >= EVER);
        is_sound.then(|| KeptRoot {
            certificate: CertificateDer::from(certificate.to_vec()),
            since,
            until,
        })
    }

    /// The certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Since when it has been told.
    pub fn since(&self) -> i64 {
        self.since
    }

    /// Until when it is needed, if no authority names it any more.
    pub fn until(&self) -> Option<i64> {
        self.until
    }
}

impl Succession {
    /// One in which nothing is trusted and nobody signs. `overlap` is how long a root is told
    /// before anything is signed with it, and `lifetime` the longest life of what is signed.
    pub fn new(overlap: Duration, lifetime: Duration) -> Succession {
        Succession {
            signer: None,
            next: None,
            roots: Vec::new(),
            is_new: true,
            looked: EVER,
            overlap: seconds(overlap),
            lifetime: seconds(lifetime + CLOCK_SKEW),
        }
    }

    /// Takes in what is kept; none if nothing ever was, in which case the first authority signs at
    /// once. `now` is in seconds since the epoch. To be followed by [`see`](Self::see) or
    /// [`step`](Self::step), which judge what of it is needed.
    ///
    /// All replicas come to the same times: the latest beginning that is possible, and the latest
    /// end. A beginning in the future is not possible, nor one before this process looked and did
    /// not find the root; and no end is later than that of what is signed at this moment.
    pub fn learn(&mut self, kept: Option<&[KeptRoot]>, now: i64) {
        self.is_new &= kept.is_none();
        let until_max = now.saturating_add(seconds(LIFETIME_MAX + CLOCK_SKEW));
        for root in kept.unwrap_or_default() {
            let until = root.until.map(|it| it.min(until_max));
            if until.is_some_and(|it| it <= now) {
                continue;
            }
            let mut known = self.roots.iter_mut();
            let known = known.find(|it| it.certificate == root.certificate);
            if let Some(known) = known {
                if root.since <= now {
                    known.since = root.since.max(known.missed);
                }
                if let (Some(known), Some(until)) = (&mut known.until, until) {
                    *known = until.max(*known);
                }
                continue;
            }
            self.roots.push(Root {
                certificate: root.certificate.clone(),
                missed: self.looked,
                since: root.since.max(self.looked).min(now),
                until,
            });
        }
    }

    /// Takes in the authority that is found now; `now` is in seconds since the epoch.
    /// Returns whether what is to be trusted has changed.
    pub fn see(&mut self, newest: MeshAuthority, now: i64) -> bool {
        let before = self.roots.len();
        let since = match std::mem::take(&mut self.is_new) {
            true => EVER,
            false => now,
        };
        for root in newest.roots() {
            if !self.roots.iter().any(|it| it.certificate == *root) {
                self.roots.push(Root {
                    certificate: root.clone(),
                    missed: self.looked.min(since),
                    since,
                    until: None,
                });
            }
        }
        let is_changed = self.roots.len() > before;
        if self.signer.as_ref().is_some_and(|it| newest.is_like(it)) {
            self.signer = Some(newest);
            self.next = None;
        } else {
            self.next = Some(newest);
        }
        self.step(now) || is_changed
    }

    /// Lets the next authority sign if it is time, and forgets roots that are needed no more.
    /// Returns whether what is to be trusted has changed.
    pub fn step(&mut self, now: i64) -> bool {
        self.looked = now;
        for root in &mut self.roots {
            // By a clock that was ahead.
            root.since = root.since.min(now);
            root.missed = root.missed.min(now);
        }
        let is_told = |it: &MeshAuthority| self.told_in(it, now) == 0;
        if self.next.as_ref().is_some_and(is_told)
            && let Some(next) = self.next.take()
        {
            self.signer = Some(next);
        }
        let before = self.roots.len();
        let named = [self.signer.as_ref(), self.next.as_ref()];
        for root in &mut self.roots {
            if is_named(named, root) {
                root.until = None;
            } else if self.signer.is_some() {
                // Before that another replica may sign with it still.
                let until = now.saturating_add(self.lifetime);
                root.until = Some(root.until.unwrap_or(until));
            }
        }
        self.roots
            .retain(|it| it.until.is_none_or(|until| until > now));
        if self.roots.len() > ROOTS_MAX {
            self.shorten();
        }
        self.roots.len() != before
    }

    /// Lets those go of too many that are needed least long; all replicas choose alike.
    fn shorten(&mut self) {
        let named = [self.signer.as_ref(), self.next.as_ref()];
        let is_named = |root: &Root| is_named(named, root);
        let order = |it: &Root| {
            let until = it.until.unwrap_or(i64::MAX);
            (
                !is_named(it),
                std::cmp::Reverse(until),
                it.certificate.to_vec(),
            )
        };
        self.roots.sort_by_cached_key(order);
        self.roots.truncate(ROOTS_MAX);
    }

    /// The seconds until what an authority signs is trusted, by one of its roots at least.
    fn told_in(&self, authority: &MeshAuthority, now: i64) -> i64 {
        let anchors = authority.anchors();
        let told = self.roots.iter();
        let told = told.filter(|root| anchors.contains(&root.certificate));
        let left = told.map(|root| match root.since <= EVER {
            true => 0,
            false => root.since.saturating_add(self.overlap).saturating_sub(now),
        });
        left.min().unwrap_or(self.overlap).max(0)
    }

    /// The authority that signs.
    pub fn signer(&self) -> Option<&MeshAuthority> {
        self.signer.as_ref()
    }

    /// The seconds until another authority signs, which waits until its root is known.
    pub fn waits(&self, now: i64) -> Option<i64> {
        self.next.as_ref().map(|next| self.told_in(next, now))
    }

    /// All that is to be trusted.
    pub fn roots(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.roots.iter().map(|it| &it.certificate)
    }

    /// All that is to be kept, in an order that is the same for all replicas.
    pub fn kept(&self) -> Vec<KeptRoot> {
        let kept = self.roots.iter().map(|it| KeptRoot {
            certificate: it.certificate.clone(),
            since: it.since,
            until: it.until,
        });
        let mut kept: Vec<KeptRoot> = kept.collect();
        kept.sort_by(|a, b| a.certificate.as_ref().cmp(b.certificate.as_ref()));
        kept
    }
}

fn is_named(authorities: [Option<&MeshAuthority>; 2], root: &Root) -> bool {
    let mut authorities = authorities.into_iter().flatten();
    authorities.any(|it| it.roots().contains(&root.certificate))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
