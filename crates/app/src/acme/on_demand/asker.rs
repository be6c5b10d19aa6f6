//! Questions to the endpoint that says which names may have certificates on demand.

use std::time::Duration;

use myriad_base::log::sparse::SparseLines;

use super::AskAnswer;
use crate::acme::http::Client;

/// How long an answer may take: less than a handshake waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The lines about answers that did not come.
static LINES: SparseLines = SparseLines::untold();

/// Asks whether a name may have a certificate: status 200 says that it may, another one that it may
/// not, and whatever else happens says nothing.
pub(super) async fn ask(client: &Client, url: &str, name: &str) -> AskAnswer {
    let question = question(url, name);
    let asked = tokio::time::timeout(TIMEOUT, client.get(&question)).await;
    let problem = match asked {
        Ok(Ok(200)) => return AskAnswer::Yes,
        // It is there, and not well.
        Ok(Ok(status)) if status >= 500 => format!("status {status}"),
        Ok(Ok(_)) => return AskAnswer::No,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took 5 s".to_owned(),
    };
    if let Some(left_out) = LINES.admit() {
        tracing::warn!(name, %problem, left_out, "is not known to be allowed on demand");
    }
    AskAnswer::Silence
}

/// The URL of the question about a name, which has no byte that means anything there.
fn question(url: &str, name: &str) -> String {
    let separator = match url.contains('?') {
        true => '&',
        false => '?',
    };
    format!("{url}{separator}domain={name}")
}

#[cfg(test)]
mod tests {
    use super::question;

    #[test]
    fn the_name_is_a_part_of_the_query() {
        let asked = question("http://ask.example/check", "a.example");
        assert_eq!(asked, "http://ask.example/check?domain=a.example");
        let asked = question("http://ask.example/?key=1", "a.example");
        assert_eq!(asked, "http://ask.example/?key=1&domain=a.example");
    }
}
