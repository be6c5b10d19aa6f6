//! An API server for tests, which answers by a function.

use std::sync::Arc;

use myriad_base::task;
use myriad_source::kubernetes::{Access, Client};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Begins to serve, and returns a client. The function is told the method, the path with its query
/// and the body, and says status and answer; none for a connection that breaks.
pub(crate) async fn serve<F>(answer: F) -> Client
where
    F: Fn(&str, &str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    drop(task::spawn("fake API", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let answer = answer.clone();
            drop(task::spawn("fake call", async move {
                // A client that hangs up is no failure of the server.
                drop(call(tcp, &*answer).await);
            }));
        }
    }));
    let access = Access::Plain(uri.parse().unwrap());
    Client::new(&access, Arc::default()).await.unwrap()
}

async fn call<F>(tcp: TcpStream, answer: &F) -> std::io::Result<()>
where
    F: Fn(&str, &str, &Value) -> Option<(u16, Value)>,
{
    let mut tcp = BufReader::new(tcp);
    let (mut line, mut length) = (String::new(), 0);
    tcp.read_line(&mut line).await?;
    loop {
        let mut field = String::new();
        tcp.read_line(&mut field).await?;
        if field.trim().is_empty() {
            break;
        }
        let field = field.to_ascii_lowercase();
        if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    tcp.read_exact(&mut body).await?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let Some((status, answer)) = answer(method, path, &body) else {
        return Ok(());
    };
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        answer.len()
    );
    tcp.write_all(head.as_bytes()).await?;
    tcp.write_all(answer.as_bytes()).await
}
