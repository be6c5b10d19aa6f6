//! Access to the console: by the token of its file, or by one whose owner the API server allows
//! it. Passwords of HTTP's own dialogue and bearer tokens are taken alike, so that browsers
//! need no page to sign in at, and no cookie, which would go to every port of the host.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake3::Hash;
use http::{HeaderValue, header};
use myriad_admin::server::{self, Answer, Question, text};
use myriad_admin::site::SiteGuard;
use myriad_base::clock::{self, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::reviews::{Reviews, Verdict};
use crate::settings::console_token;

/// The longest `Authorization` that is read.
const AUTHORIZATION_BYTES_MAX: usize = 16 << 10;

/// How old what was read of the file may be.
const AGE_MAX: Duration = Duration::from_secs(1);

/// How long is waited for the file.
const READ_MAX: Duration = Duration::from_secs(3);

/// The words of a browser's dialogue. The name that is given there says nothing.
const CHALLENGE: &str = "Basic realm=\"Myriad console: any name, the token as the password\", \
                         charset=\"UTF-8\"";

/// The guard of the console.
pub(super) struct Access {
    file: Option<TokenFile>,
    reviews: Option<Reviews>,
}

/// The file of the token, which may be replaced at any time.
struct TokenFile {
    path: PathBuf,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    /// The hash of the token, none where the file has none, and when it was read.
    read: Option<(Instant, Option<Hash>)>,
    /// A file system that hangs holds one thread and no more.
    reading: Option<JoinHandle<Option<Hash>>>,
}

impl Access {
    /// A guard that takes the token of a file, and what the API server says where it is asked.
    pub(super) fn new(file: Option<PathBuf>, reviews: Option<Reviews>) -> Access {
        let file = file.map(|path| TokenFile {
            path,
            state: Mutex::default(),
        });
        Access { file, reviews }
    }

    /// The same as a site asks it.
    pub(super) fn into_guard(self) -> SiteGuard {
        let access = Arc::new(self);
        Box::new(move |question| {
            let access = access.clone();
            let (shown, address) = (shown(question), server::source(question));
            Box::pin(async move { access.admit(shown, address).await })
        })
    }

    async fn admit(&self, shown: Option<String>, address: IpAddr) -> Result<(), Answer> {
        let Some(shown) = shown.filter(|shown| !shown.is_empty()) else {
            return Err(refusal(Verdict::Unknown));
        };
        let hash = blake3::hash(shown.as_bytes());
        if let Some(file) = &self.file
            && file.has(hash).await
        {
            return Ok(());
        }
        let verdict = match &self.reviews {
            Some(reviews) => reviews.review(shown, hash, address).await,
            None => Verdict::Unknown,
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            other => Err(refusal(other)),
        }
    }
}

impl TokenFile {
    /// Whether the token has this hash. Hashes are compared in constant time.
    async fn has(&self, hash: Hash) -> bool {
        let known = tokio::time::timeout(READ_MAX, self.current()).await;
        known.is_ok_and(|known| known.is_some_and(|known| known == hash))
    }

    async fn current(&self) -> Option<Hash> {
        let mut state = self.state.lock().await;
        let now = clock::now();
        if let Some((at, hash)) = state.read
            && now.saturating_duration_since(at) < AGE_MAX
        {
            return hash;
        }
        let reading = state.reading.get_or_insert_with(|| {
            let path = self.path.clone();
            tokio::task::spawn_blocking(move || read(&path))
        });
        let hash = reading.await.ok().flatten();
        state.reading = None;
        if hash.is_none() && !matches!(state.read, Some((_, None))) {
            let path = self.path.display();
            tracing::warn!(%path, "the console's token cannot be read: it lets nobody in");
        }
        state.read = Some((now, hash));
        hash
    }
}

fn read(path: &std::path::Path) -> Option<Hash> {
    let token = console_token(path).ok()?;
    Some(blake3::hash(token.as_bytes()))
}

/// The token that a request shows, if it shows one and no more.
fn shown(question: &Question) -> Option<String> {
    let mut values = question.headers().get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() || value.len() > AUTHORIZATION_BYTES_MAX {
        return None;
    }
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    let (_, password) = pair.split_once(':')?;
    Some(password.to_owned())
}

fn refusal(verdict: Verdict) -> Answer {
    let (status, words) = match verdict {
        Verdict::Unknown => (401, "show the token of the console\n"),
        Verdict::Forbidden | Verdict::Allowed => (
            403,
            "whoever this token is of may not get /myriad/console\n",
        ),
        Verdict::Unanswered => (503, "the API server does not say whose the token is\n"),
    };
    let mut answer = text(status, words);
    if verdict == Verdict::Unknown {
        let challenge = HeaderValue::from_static(CHALLENGE);
        let headers = answer.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::Access;

    const TOKEN: &str = "0123456789abcdefghij";

    /// The status that whoever shows these is answered with; 200 where it is let in.
    async fn status(access: &super::SiteGuard, values: &[&str]) -> u16 {
        let mut question = http::Request::get("/console");
        for value in values {
            question = question.header("authorization", *value);
        }
        let question = question.body(bytes::Bytes::new()).unwrap();
        match access(&question).await {
            Ok(()) => 200,
            Err(answer) => {
                let has_challenge = answer.headers().contains_key("www-authenticate");
                assert_eq!(has_challenge, answer.status() == 401);
                answer.status().as_u16()
            }
        }
    }

    #[tokio::test]
    async fn whoever_shows_the_token_is_let_in_and_nobody_else() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{TOKEN}").unwrap();
        let access = Access::new(Some(file.path().to_owned()), None).into_guard();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for value in [
            format!("Bearer {TOKEN}"),
            format!("bearer  {TOKEN} "),
            basic(&format!("anybody:{TOKEN}")),
            basic(&format!(":{TOKEN}")),
        ] {
            assert_eq!(status(&access, &[&value]).await, 200, "{value}");
        }
        for value in [
            "Bearer ".to_owned(),
            "Bearer".to_owned(),
            TOKEN.to_owned(),
            format!("Bearer {TOKEN}x"),
            format!("Bearer {}", TOKEN.to_uppercase()),
            format!("Digest {TOKEN}"),
            basic(TOKEN),
            basic(&format!("{TOKEN}:")),
            "Basic !".to_owned(),
            format!("Bearer {}", "a".repeat(64 << 10)),
        ] {
            assert_eq!(status(&access, &[&value]).await, 401, "{value:.40}");
        }
        assert_eq!(status(&access, &[]).await, 401);
        let right = format!("Bearer {TOKEN}");
        assert_eq!(status(&access, &[&right, &right]).await, 401);
    }

    #[tokio::test]
    async fn without_a_sound_file_nobody_is_let_in() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let access = Access::new(Some(file.path().to_owned()), None).into_guard();
        assert_eq!(status(&access, &["Bearer "]).await, 401);
        assert_eq!(status(&access, &["Basic Og=="]).await, 401);
        assert_eq!(status(&access, &["Bearer 0123456789abcdef"]).await, 401);
    }
}
