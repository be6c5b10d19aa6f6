//! Questions to a running process, through its admin address.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::{OutputForm, RawQuestion};

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// How long an answer may take: a controller reads through all that it holds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks for a page and reads its JSON.
///
/// # Errors
/// Nobody answers there, or not with such a page.
pub fn ask<T: DeserializeOwned>(
    question: &RawQuestion,
    path: &str,
    parameters: &[(&str, &str)],
) -> anyhow::Result<T> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters);
    exchange(question, "GET", &format!("{path}?{}", query.finish()))
}

/// Tells a process to do something and reads the JSON that it answers.
///
/// # Errors
/// Nobody answers there, or not to that.
pub fn tell<T: DeserializeOwned>(question: &RawQuestion, path: &str) -> anyhow::Result<T> {
    exchange(question, "POST", path)
}

fn exchange<T: DeserializeOwned>(
    question: &RawQuestion,
    method: &str,
    target: &str,
) -> anyhow::Result<T> {
    let address = address(&question.admin)?;
    let text = request(address, method, target)
        .with_context(|| format!("nothing answers at the admin address {address}"))?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("{address} does not speak HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => serde_json::from_str(body)
            .with_context(|| format!("the answer of {address} is not of this version")),
        "400" => bail!("{}", body.trim_end()),
        "404" => bail!("the process at {address} has no answer to that"),
        _ => bail!("{address} answers {status}"),
    }
}

/// Prints an answer in the form that was asked for.
///
/// # Errors
/// The errors of standard output.
pub fn print<T: Serialize + std::fmt::Display>(
    question: &RawQuestion,
    answer: &T,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match question.output {
        OutputForm::Text => write!(out, "{answer}")?,
        OutputForm::Json => {
            serde_json::to_writer_pretty(&mut out, answer)?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// The address as a client on this machine reaches it.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let parsed = match text.parse::<u16>() {
        Ok(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        Err(_) => text.parse().ok(),
    };
    let mut address =
        parsed.with_context(|| format!("--admin is {text:?}, not a port or ADDRESS:PORT"))?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Ok(address)
}

/// The whole response. HTTP/1.0, so that it ends with the connection.
fn request(address: SocketAddr, method: &str, target: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let head = format!("{method} {target} HTTP/1.0\r\nHost: {address}\r\n");
    let body = match method {
        "POST" => "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        _ => "\r\n",
    };
    stream.write_all((head + body).as_bytes())?;
    let mut text = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the reader ends behind ANSWER_BYTES_MAX"
    )]
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_admin_setting_is_an_address_to_ask() {
        for (text, asked) in [
            ("9901", "127.0.0.1:9901"),
            ("0.0.0.0:9901", "127.0.0.1:9901"),
            ("[::]:9901", "[::1]:9901"),
            ("10.1.2.3:99", "10.1.2.3:99"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), asked);
        }
        assert!(address("localhost").is_err());
    }
}
