//! The roots of the mesh's succession as they outlive a process: a Secret of the controllers' own
//! namespace, with certificates alone and never a key. It is a Secret since whoever writes it says
//! what workloads trust, and ConfigMaps are often written by more people.
//!
//! Every write rests on what was read, and all replicas write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_pki::{KeptRoot, ROOTS_MAX};
use myriad_source::kubernetes::{CallError, Client, Secret, Texts};

/// The Secret.
pub(super) const SECRET_NAME: &str = "myriad-mesh-roots";

/// The key in it. A line for each root: since when it is told, until when it is needed or `-`,
/// both in seconds since the epoch, and the certificate, DER in base64.
const KEY: &str = "roots";

/// The longest text that is read or written; sixteen roots have some 30 KiB.
const TEXT_BYTES_MAX: usize = 512 << 10;

/// Where the roots are kept.
pub(super) struct Store {
    pub client: Client,
    pub namespace: String,
}

/// The content of the Secret as it was read.
pub(super) struct Read {
    secret: Option<Secret>,
    /// The roots that are kept; absent where nothing ever was.
    pub roots: Option<Vec<KeptRoot>>,
    /// How many lines are no roots. They are not believed.
    pub unread: usize,
}

impl Store {
    /// Reads what is kept.
    ///
    /// # Errors
    /// The API server cannot be asked or refuses, or the Secret has values that are no text.
    pub(super) async fn read(&self) -> Result<Read, CallError> {
        match self.client.secret(&self.namespace, SECRET_NAME).await {
            Ok(secret) => {
                let (roots, unread) = read(text(&secret));
                let is_kept = !text(&secret).trim().is_empty();
                Ok(Read {
                    secret: Some(secret),
                    roots: is_kept.then_some(roots),
                    unread,
                })
            }
            Err(CallError::NotFound) => Ok(Read {
                secret: None,
                roots: None,
                unread: 0,
            }),
            Err(error) => Err(error),
        }
    }

    /// Writes what is to be kept, where it is not what was read.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody else has written it since; the API server cannot be
    /// asked or refuses, or it is too much to be kept.
    pub(super) async fn write(&self, read: &Read, roots: &[KeptRoot]) -> Result<(), CallError> {
        let wanted = write(roots);
        if wanted.len() > TEXT_BYTES_MAX {
            let text = format!(
                "the roots have {} bytes, over {TEXT_BYTES_MAX}",
                wanted.len()
            );
            return Err(CallError::Rejected(text));
        }
        if wanted == read.secret.as_ref().map_or("", text) {
            return Ok(());
        }
        let mut texts = read
            .secret
            .as_ref()
            .map_or_else(Texts::new, |it| it.texts.clone());
        texts.insert(KEY.to_owned(), wanted);
        let (client, namespace) = (&self.client, &self.namespace);
        match &read.secret {
            Some(secret) => {
                let written = client.update_secret(namespace, SECRET_NAME, secret, &texts);
                written.await
            }
            None => client.create_secret(namespace, SECRET_NAME, &texts).await,
        }
    }
}

fn text(secret: &Secret) -> &str {
    secret.texts.get(KEY).map_or("", String::as_str)
}

fn write(roots: &[KeptRoot]) -> String {
    let line = |root: &KeptRoot| {
        let until = root
            .until()
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        let certificate = STANDARD.encode(root.certificate());
        format!("{} {until} {certificate}\n", root.since())
    };
    roots.iter().map(line).collect()
}

/// Reads a text, and counts the lines in it that are no roots.
fn read(text: &str) -> (Vec<KeptRoot>, usize) {
    if text.len() > TEXT_BYTES_MAX {
        return (Vec::new(), 1);
    }
    let (mut roots, mut unread) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match read_line(line) {
            Some(root) if roots.len() < ROOTS_MAX => roots.push(root),
            _ => unread += 1,
        }
    }
    (roots, unread)
}

fn read_line(line: &str) -> Option<KeptRoot> {
    let mut words = line.split_whitespace();
    let since = words.next()?.parse().ok()?;
    let until = match words.next()? {
        "-" => None,
        until => Some(until.parse().ok()?),
    };
    let certificate = STANDARD.decode(words.next()?).ok()?;
    match words.next() {
        None => KeptRoot::new(&certificate, since, until),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_pki::{Authority, MeshAuthority, ROOTS_MAX, Succession};

    use super::{TEXT_BYTES_MAX, read, write};

    const NOW: i64 = 1_800_000_000;

    /// The text of so many roots.
    fn text(roots: usize) -> String {
        (0..roots)
            .map(|_| {
                let root = Authority::new("mesh", NOW).unwrap();
                let mut succession = Succession::new(Duration::ZERO, Duration::ZERO);
                succession.learn(Some(&[]), NOW);
                succession.see(MeshAuthority::of_root(&root).unwrap(), NOW);
                write(&succession.kept())
            })
            .collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let one = text(1);
        assert!(one.starts_with("1800000000 - MII"), "{one}");
        let ending = one.replace(" - ", " 1800003900 ");
        for text in [one, ending] {
            let (roots, unread) = read(&text);
            assert_eq!((roots.len(), unread), (1, 0));
            assert_eq!(write(&roots), text);
        }
    }

    #[test]
    fn what_is_no_root_is_counted_and_adds_nothing() {
        let one = text(1);
        let certificate = one.split_whitespace().nth(2).unwrap();
        for line in [
            "garbage".to_owned(),
            "0 - ".to_owned(),
            "0 - AAAA".to_owned(),
            "0 - ????".to_owned(),
            "\u{0}\u{fffd} ♥ ♥ ♥".to_owned(),
            format!("-1 - {certificate}"),
            format!("0 -1 {certificate}"),
            format!("99999999999999999999 - {certificate}"),
            format!("soon - {certificate}"),
            format!("0 later {certificate}"),
            format!("0 - {certificate} more"),
            format!("0 - {}", &certificate[..certificate.len() - 8]),
            format!("0 - {certificate}{certificate}"),
            format!("- {certificate}"),
        ] {
            assert_eq!(read(&line), (Vec::new(), 1), "{line}");
            let (roots, unread) = read(&format!("{line}\n\n{one}"));
            assert_eq!((roots.len(), unread), (1, 1), "{line}");
        }
    }

    #[test]
    fn what_is_too_much_is_not_read() {
        let (roots, unread) = read(&text(ROOTS_MAX + 1));
        assert_eq!((roots.len(), unread), (ROOTS_MAX, 1));
        let long = format!("{}{}", text(1), " ".repeat(TEXT_BYTES_MAX));
        assert_eq!(read(&long), (Vec::new(), 1));
    }
}
