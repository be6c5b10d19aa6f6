use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use myriad_base::task;
use myriad_model::{
    Abort, AbortAnswer, Delay, Fault, Kind, Listener, ListenerProtocol, Share, TlsSettings, Value,
};
use tokio::net::TcpStream;

use super::http2;
use super::world::{Backend, Client, PATIENCE, World, header, route, with_policy};
use crate::Settings;

#[tokio::test]
async fn a_drain_lets_requests_end_and_then_nothing_is_left() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[listener.local_addr().unwrap()]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let (plain, secure) = (world.address("http"), world.address("https"));
    let mut idle = world.client().await;
    let mut fresh = world.client().await;
    idle.send("GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n")
        .await;
    idle.response().await;
    let mut busy = world.client().await;
    busy.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    let mut endpoint = Client::new(listener.accept().await.unwrap().0);
    endpoint.read_until("\r\n\r\n").await;
    let mut streams = http2::connect(&world, "a.example").await;
    let draining = task::spawn("drain", world.proxy.drain());
    // The last answer says that it is, so that whoever asks on is never cut off.
    loop {
        fresh
            .send("GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n")
            .await;
        let (head, _) = fresh.response().await;
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        if header(&head, "connection") == Some("close") {
            break;
        }
    }
    assert_eq!(fresh.read_to_end().await, "");
    // Who asks no more is waited for, and not for long.
    assert_eq!(idle.read_to_end().await, "");
    endpoint
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    let (head, body) = busy.response().await;
    assert_eq!(body, "ok");
    assert_eq!(header(&head, "connection"), Some("close"));
    assert_eq!(busy.read_to_end().await, "");
    // The streams' connection is told to go.
    let gone = tokio::time::timeout(PATIENCE, async {
        loop {
            match streams.clone().ready().await {
                Ok(ready) => streams = ready,
                Err(error) => return error,
            }
            task::spawn("turn", std::future::ready(())).await.unwrap();
        }
    });
    assert!(gone.await.is_ok());
    tokio::time::timeout(PATIENCE, draining)
        .await
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(plain).await.is_err());
    assert!(TcpStream::connect(secure).await.is_err());
}

#[tokio::test]
async fn a_request_that_begins_during_a_drain_is_the_last_of_its_connection() {
    let backend = Backend::saying("ok").await;
    let mut world = World::start_with(Settings {
        workers: 1,
        drain_delay: Duration::from_millis(300),
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let address = world.address("http");
    let draining = task::spawn("drain", world.proxy.drain());
    // During the delay everything is served as before.
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    for _ in 0..2 {
        client
            .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            .await;
        assert_eq!(client.response().await.1, "ok");
    }
    assert_eq!(client.read_to_end().await, "");
    tokio::time::timeout(PATIENCE, draining)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn listeners_come_move_and_go_while_the_others_serve() {
    let mut world = World::start();
    world.put_route("r", route("a.example", "/", "none"));
    let mut kept = world.client().await;
    let listener = |tls| {
        Value::Listener(Box::new(Listener {
            address: ([127, 0, 0, 1], 0).into(),
            tls,
            default_certificate: None,
            protocol: ListenerProtocol::Http,
            capture: None,
        }))
    };
    world.put("extra", listener(false));
    let address = world.address("extra");
    let mut extra = Client::new(TcpStream::connect(address).await.unwrap());
    extra
        .send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    assert!(
        extra.response().await.0.starts_with("HTTP/1.1 404"),
        "no route is on it"
    );
    // Another kind on the same address needs no other socket.
    world.put("extra", listener(true));
    assert_eq!(world.address("extra"), address);
    world.remove(Kind::Listener, "extra");
    assert_eq!(world.proxy.addresses().len(), 2);
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            task::spawn("turn", std::future::ready(())).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.unwrap();
    kept.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(kept.response().await.0.starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn a_listener_whose_address_is_taken_is_refused_by_name() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    let listener = Listener {
        address: taken.local_addr().unwrap(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Http,
        capture: None,
    };
    let applied = world.put("extra", Value::Listener(Box::new(listener)));
    assert_eq!(applied.refused.len(), 1);
    assert_eq!(applied.refused[0].key.name.as_str(), "extra");
    assert_eq!(world.proxy.addresses().len(), 2);
}

#[tokio::test]
async fn a_refused_listener_is_worth_another_try_once_its_address_is_free() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start();
    let listener = || {
        Value::Listener(Box::new(Listener {
            address: taken.local_addr().unwrap(),
            tls: false,
            default_certificate: None,
            protocol: ListenerProtocol::Http,
            capture: None,
        }))
    };
    let value = listener();
    assert_eq!(world.put("extra", listener()).refused.len(), 1);
    assert!(!world.proxy.take_bindable());
    drop(taken);
    assert!(world.proxy.take_bindable());
    assert!(!world.proxy.take_bindable(), "it is said once");
    world.remove(Kind::Listener, "extra");
    assert!(world.put("extra", value).refused.is_empty());
    TcpStream::connect(world.address("extra")).await.unwrap();
}

#[tokio::test]
async fn connections_of_a_listener_that_goes_end_with_the_request_they_are_in() {
    let mut world = World::start();
    world.put_route("r", route("a.example", "/", "none"));
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: false,
        default_certificate: None,
        protocol: ListenerProtocol::Http,
        capture: None,
    };
    world.put("extra", Value::Listener(Box::new(listener)));
    let address = world.address("extra");
    let mut idle = Client::new(TcpStream::connect(address).await.unwrap());
    idle.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    idle.response().await;
    let mut kept = world.client().await;
    world.remove(Kind::Listener, "extra");
    let rest = tokio::time::timeout(PATIENCE, idle.read_to_end()).await;
    assert_eq!(rest.unwrap(), "", "it is closed while it is idle");
    kept.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    assert!(kept.response().await.0.starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn the_access_log_tells_of_every_request() {
    let log = Log::default();
    let backend = Backend::saying("ok").await;
    let mut world = World::start_with(Settings {
        workers: 2,
        access_log: Some(Box::new(log.clone())),
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    for (path, abort) in [("/late", None), ("/never", Some(AbortAnswer::Status(429)))] {
        let fault = Fault {
            delay: Some(Delay {
                share: Share::ALL,
                delay: Duration::from_millis(1),
            }),
            abort: abort.map(|answer| Abort {
                share: Share::ALL,
                answer,
            }),
        };
        let faulty = with_policy(route("a.example", path, "u"), |policy| {
            policy.fault = Some(Box::new(fault));
        });
        world.put_route(path, faulty);
    }
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let mut client = world.tls_client("a.example").await.unwrap();
    client
        .send("GET /x?y HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await;
    client.response().await;
    world
        .ask("GET / HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n")
        .await;
    for path in ["/late", "/never"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        world.ask(&request).await;
    }
    world.ask("nonsense\r\n\r\n").await;
    drop(client);
    world.proxy.drain().await;
    let lines = log.lines(5).await;
    let find = |part: &str| lines.iter().find(|line| line.contains(part)).unwrap();
    let served = find("\"path\":\"/x?y\"");
    for part in [
        "\"listener\":\"https\"",
        "\"host\":\"a.example\"",
        "\"status\":200",
        "\"bytes_sent\":2",
        "\"upstream\":\"u\"",
        "\"origin\":\"Ingress ns/story\"",
        "\"sni\":\"a.example\"",
        "\"tls\":\"1.3\"",
    ] {
        assert!(served.contains(part), "{part} in {served}");
    }
    assert!(find("\"flag\":\"fault_delay\"").contains("\"status\":200"));
    assert!(find("\"flag\":\"fault_abort\"").contains("\"status\":429"));
    assert!(find("\"flag\":\"no_host\"").contains("\"status\":404"));
    assert!(find("\"flag\":\"bad_request\"").contains("\"status\":400"));
}

/// A log in memory.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Waits until there are so many lines.
    pub(super) async fn lines(&self, count: usize) -> Vec<String> {
        let waited = async {
            loop {
                let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                if lines.len() >= count {
                    return lines;
                }
                task::spawn("turn", std::future::ready(())).await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waited).await.unwrap()
    }
}
