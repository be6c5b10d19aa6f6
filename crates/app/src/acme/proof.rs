//! Whether names lead here: each is asked over HTTP, as an authority will, for a token that nobody
//! else knows.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use myriad_base::task;
use myriad_model::Reach;
use myriad_pki::acme::StepTrouble;
use myriad_proxy::Names;
use tokio::net::TcpStream;

/// The most bytes of an answer: more than any token's.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// How long one address may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most addresses of a name that are asked.
const ADDRESSES_MAX: usize = 4;

/// How names are asked.
#[derive(Clone)]
pub(super) struct Proof {
    /// The port at which names are asked; none to ask this process alone.
    pub port: Option<u16>,
    /// The address where this process serves plain HTTP.
    pub own: SocketAddr,
    /// Finds addresses.
    pub names: Names,
    /// The addresses that names may lead to: whoever writes a name chooses which are asked.
    pub reach: Reach,
}

/// A name that does not give the answer.
pub(super) struct Unproven {
    /// Why, and what is to be done.
    pub trouble: StepTrouble,
    /// Whether it may give it in a moment: somebody answers, for whom it may be too early.
    pub may_come: bool,
}

/// Why an address does not give the answer.
#[derive(Debug, thiserror::Error)]
enum Miss {
    #[error("nobody answers: {0}")]
    Silent(String),
    #[error("the answer has status {0}")]
    Status(u16),
    #[error("the answer is another one")]
    Other,
}

impl Proof {
    /// Asks a name for a token.
    ///
    /// # Errors
    /// Why it does not give the text, and what is to be done.
    pub(super) async fn ask(&self, name: &str, token: &str, text: &str) -> Result<(), Unproven> {
        let Some(port) = self.port else {
            let asked = fetch(self.own, name, token, text).await;
            return asked.map_err(|miss| {
                let own = self.own;
                let trouble = StepTrouble::Unproven(
                    format!("cannot be proven: this process does not answer on {own}: {miss}"),
                    "see that --http is open to this machine".to_owned(),
                );
                miss.into_unproven(trouble)
            });
        };
        let found = self.names.look_up(owner(name), None, name).await;
        let found = found.map_err(|error| Unproven {
            trouble: StepTrouble::Unproven(
                format!("waits, since {name} cannot be looked up in DNS: {error}"),
                format!("point {name} at the gateway by an A, AAAA or CNAME record"),
            ),
            may_come: false,
        })?;
        for ip in found.addresses.into_iter().take(ADDRESSES_MAX) {
            if !self.reach.admits(ip) {
                let trouble = StepTrouble::Unproven(
                    format!("waits, since {name} leads to {ip}, which endpoints may not have"),
                    format!("point {name} at the gateway, or admit {ip} by --endpoint-allow"),
                );
                return Err(Unproven {
                    trouble,
                    may_come: false,
                });
            }
            // An authority may ask any of them.
            if let Err(miss) = fetch(SocketAddr::new(ip, port), name, token, text).await {
                let trouble = astray(name, ip, port, &miss);
                return Err(miss.into_unproven(trouble));
            }
        }
        Ok(())
    }
}

impl Miss {
    fn into_unproven(self, trouble: StepTrouble) -> Unproven {
        Unproven {
            trouble,
            may_come: !matches!(self, Miss::Silent(_)),
        }
    }
}

fn astray(name: &str, ip: IpAddr, port: u16, miss: &Miss) -> StepTrouble {
    let message = format!("waits, since {name} leads to {ip}, where on port {port} {miss}");
    let remedy = match miss {
        Miss::Silent(_) => format!(
            "point {name} at the gateway, or let connections through to port {port} of {ip}"
        ),
        Miss::Status(_) | Miss::Other => format!(
            "point {name} at the gateway, or let whatever is in front of it pass on \
             /.well-known/acme-challenge/ over plain HTTP"
        ),
    };
    StepTrouble::Unproven(message, remedy)
}

/// The one who asks about a name, as a number: names that nobody answers do not hold up those of
/// others.
pub(super) fn owner(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let first = hash.as_bytes().first_chunk::<8>();
    first.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

async fn fetch(at: SocketAddr, name: &str, token: &str, text: &str) -> Result<(), Miss> {
    let asked = tokio::time::timeout(TIMEOUT, ask(at, name, token)).await;
    let answered = asked.unwrap_or_else(|_| Err("it took 5 s".into()));
    let (status, body) = answered.map_err(|error| Miss::Silent(error.to_string()))?;
    match (status, body.trim_ascii() == text.as_bytes()) {
        (200, true) => Ok(()),
        (200, false) => Err(Miss::Other),
        (status, _) => Err(Miss::Status(status)),
    }
}

async fn ask(
    at: SocketAddr,
    name: &str,
    token: &str,
) -> Result<(u16, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let tcp = TcpStream::connect(at).await?;
    let (mut sender, connection) = handshake(TokioIo::new(tcp)).await?;
    let connection = task::spawn("proof of a name", async move {
        // Who waits for the answer is told as well.
        let _ = connection.await;
    });
    let request = Request::get(format!("/.well-known/acme-challenge/{token}"));
    let host = match name.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => name.to_owned(),
    };
    let request = request.header(HOST, host).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await?.to_bytes();
    connection.abort();
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use myriad_base::metrics::Metrics;
    use myriad_model::{Extent, Reach};
    use myriad_pki::acme::StepTrouble;
    use myriad_proxy::{NameSettings, Names};
    use tokio::net::TcpListener;

    use super::Proof;

    #[tokio::test]
    async fn an_address_that_endpoints_may_not_have_is_not_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let proof = |extent| Proof {
            port: Some(own.port()),
            own,
            names: Names::new(NameSettings::default(), &Metrics::new()),
            reach: Reach {
                extent,
                ..Reach::default()
            },
        };
        let kept_out = proof(Extent::Elsewhere).ask("127.0.0.1", "t", "x").await;
        let kept_out = kept_out.expect_err("it is loopback");
        assert!(!kept_out.may_come);
        let StepTrouble::Unproven(words, _) = kept_out.trouble else {
            panic!("another trouble")
        };
        assert!(words.contains("endpoints may not have"), "{words}");
        // Where it may be asked, it is the first that comes.
        let asking = proof(Extent::Everywhere);
        let (accepted, _) = tokio::join!(listener.accept(), async {
            let asked = asking.ask("127.0.0.1", "t", "x");
            let _ = tokio::time::timeout(std::time::Duration::from_millis(200), asked).await;
        });
        accepted.unwrap();
        let more = tokio::time::timeout(std::time::Duration::from_millis(20), listener.accept());
        assert!(more.await.is_err(), "nobody else has come");
    }
}
