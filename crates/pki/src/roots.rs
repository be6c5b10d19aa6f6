//! The authorities of a cluster, of which one signs and up to three are trusted, and how one
//! follows another without anybody losing trust.
//!
//! Nothing has to be restarted, and no two replicas have to agree on more than what they keep
//! together:
//!
//! 1. when half of the life of the current authority is over, the next one is made;
//! 2. it is published beside the current one, and when that was done is written down;
//! 3. [`OVERLAP`] later everybody has read it, and it becomes the current one;
//! 4. the previous one stays published for as long again: a replica that has not noticed still
//!    shows a certificate that it signed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::authority::{Authority, AuthorityError, CLOCK_SKEW};

/// How long a root is published before certificates are signed with it, and after. Proxies read
/// what is published whenever they connect, and a kubelet brings them a changed ConfigMap within
/// minutes; a week leaves time for one that does not, and for its people.
pub const OVERLAP: Duration = Duration::from_secs(7 * 86_400);

/// Values by key, as a Secret keeps them.
pub type Texts = BTreeMap<String, String>;

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const NEXT_PUBLISHED: &str = "next.published";
const PREVIOUS_CERTIFICATE: &str = "previous.crt";
const PREVIOUS_UNTIL: &str = "previous.until";

/// All keys that belong to roots; others in the same Secret are none of theirs.
const KEYS: [&str; 7] = [
    CERTIFICATE,
    KEY,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    NEXT_PUBLISHED,
    PREVIOUS_CERTIFICATE,
    PREVIOUS_UNTIL,
];

/// The authorities of a cluster.
#[derive(Debug)]
pub struct Roots {
    current: Authority,
    next: Option<Next>,
    previous: Option<Previous>,
}

/// The authority that will be current.
#[derive(Debug)]
struct Next {
    authority: Authority,
    /// Since when it has been published, in seconds since the epoch.
    published: Option<i64>,
}

/// The authority that was current. Its key is not kept.
#[derive(Debug)]
struct Previous {
    certificate_pem: String,
    /// Until when it is published, in seconds since the epoch.
    until: i64,
}

/// A step in the replacement of the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next authority was made.
    Made,
    /// That it is published was written down.
    Published,
    /// The next authority has become the current one.
    Promoted,
    /// The previous authority is trusted no longer.
    Dropped,
}

/// Why roots that were kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// A key that has to be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A time that is no number.
    #[error("{0} is no number of seconds")]
    Time(&'static str),
    /// An authority.
    #[error("{0}: {1}")]
    Authority(&'static str, #[source] AuthorityError),
}

impl Roots {
    /// A first authority; `now` is in seconds since the epoch.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn new(now: i64) -> Result<Roots, AuthorityError> {
        Ok(Roots {
            current: Authority::new("myriad", now)?,
            next: None,
            previous: None,
        })
    }

    /// Roots that were kept. Other keys are passed over.
    ///
    /// # Errors
    /// See [`RootsError`].
    pub fn from_texts(texts: &Texts) -> Result<Roots, RootsError> {
        let text = |key: &'static str| {
            let text = texts.get(key).map(String::as_str);
            text.ok_or(RootsError::Missing(key))
        };
        let authority = |certificate, key| {
            let read = Authority::from_pem(text(certificate)?, text(key)?);
            read.map_err(|error| RootsError::Authority(certificate, error))
        };
        let time = |key| {
            let read = text(key)?.trim().parse();
            read.map_err(|_| RootsError::Time(key))
        };
        let next = match texts.contains_key(NEXT_CERTIFICATE) {
            true => Some(Next {
                authority: authority(NEXT_CERTIFICATE, NEXT_KEY)?,
                published: match texts.contains_key(NEXT_PUBLISHED) {
                    true => Some(time(NEXT_PUBLISHED)?),
                    false => None,
                },
            }),
            false => None,
        };
        let previous = match texts.get(PREVIOUS_CERTIFICATE) {
            Some(certificate_pem) => Some(Previous {
                certificate_pem: certificate_pem.clone(),
                until: time(PREVIOUS_UNTIL)?,
            }),
            None => None,
        };
        Ok(Roots {
            current: authority(CERTIFICATE, KEY)?,
            next,
            previous,
        })
    }

    /// Writes the roots into what is kept, private keys included; other keys stay as they are.
    pub fn expose_into(&self, texts: &mut Texts) {
        texts.retain(|key, _| !KEYS.contains(&&**key));
        let mut put = |key: &str, text: String| texts.insert(key.to_owned(), text);
        put(CERTIFICATE, self.current.certificate_pem().to_owned());
        put(KEY, self.current.expose_key_pem().to_owned());
        if let Some(next) = &self.next {
            let pem = next.authority.certificate_pem();
            put(NEXT_CERTIFICATE, pem.to_owned());
            put(NEXT_KEY, next.authority.expose_key_pem().to_owned());
            if let Some(published) = next.published {
                put(NEXT_PUBLISHED, published.to_string());
            }
        }
        if let Some(previous) = &self.previous {
            put(PREVIOUS_CERTIFICATE, previous.certificate_pem.clone());
            put(PREVIOUS_UNTIL, previous.until.to_string());
        }
    }

    /// The authority that signs.
    pub fn current(&self) -> &Authority {
        &self.current
    }

    /// All that shall be trusted, as PEM, the current one first.
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|it| it.authority.certificate_pem());
        let previous = self.previous.as_ref().map(|it| &*it.certificate_pem);
        let mut bundle = String::new();
        for pem in [Some(self.current.certificate_pem()), next, previous] {
            let pem = pem.unwrap_or_default();
            bundle.push_str(pem);
            if !pem.is_empty() && !pem.ends_with('\n') {
                bundle.push('\n');
            }
        }
        bundle
    }

    /// Does one step, if one is due; to be called until there is none. Before it is called the
    /// [`bundle`](Self::bundle) must have been published, and after a step what is kept must be
    /// written, and only if nobody else has written it meanwhile.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn step(&mut self, now: i64) -> Result<Option<Step>, AuthorityError> {
        let previous = self.previous.take_if(|it| it.until <= now);
        if previous.is_some() {
            return Ok(Some(Step::Dropped));
        }
        let Some(next) = &mut self.next else {
            // One at a time: what is trusted stays a short list.
            if self.previous.is_some() || !self.current.is_due(now) {
                return Ok(None);
            }
            self.next = Some(Next::new(now)?);
            return Ok(Some(Step::Made));
        };
        let skew = seconds(CLOCK_SKEW);
        if !next.authority.has_begun(now) {
            // A clock that was far ahead has made it; nobody could use it yet.
            *next = Next::new(now)?;
            return Ok(Some(Step::Made));
        }
        match next.published {
            Some(since) if since <= now + skew => {
                if now < since + seconds(OVERLAP) {
                    return Ok(None);
                }
                self.promote(now);
                Ok(Some(Step::Promoted))
            }
            // Not written down yet, or by a clock that was far ahead.
            _ => {
                next.published = Some(now);
                Ok(Some(Step::Published))
            }
        }
    }

    fn promote(&mut self, now: i64) {
        let Some(next) = self.next.take() else {
            return;
        };
        let former = std::mem::replace(&mut self.current, next.authority);
        self.previous = Some(Previous {
            certificate_pem: former.certificate_pem().to_owned(),
            until: now + seconds(OVERLAP),
        });
    }
}

impl Next {
    fn new(now: i64) -> Result<Self, AuthorityError> {
        Ok(Next {
            authority: Authority::new("myriad", now)?,
            published: None,
        })
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
