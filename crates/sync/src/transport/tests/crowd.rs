//! Many proxies at once: their views, their return after a restart, and those who never say who
//! they are.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use myriad_base::{clock, task};
use myriad_model::{Certificate, Form, KeyEncoding, Kind, PrivateKey, Snapshot, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use super::super::Views;
use super::super::client::TcpConnect;
use super::super::server::{Event, ServerSettings};
use super::{Following, Movable, Serving, settings, tls, within};
use crate::SessionError;
use crate::tests::pair::World;

fn plain(address: &str) -> Arc<TcpConnect> {
    Arc::new(TcpConnect {
        address: address.to_owned(),
        tls: None,
    })
}

fn world(name: &str) -> (World, watch::Sender<Snapshot>) {
    let mut world = World::new(Form::Encoded);
    world.put(name, 1);
    let (sender, _) = watch::channel(world.snapshot().clone());
    (world, sender)
}

#[tokio::test]
async fn a_change_of_a_view_wakes_the_streams_of_that_view_and_no_others() {
    let (mut one, one_newest) = world("one");
    let (mut two, two_newest) = world("two");
    let views = Views::one("one", one_newest.subscribe());
    views.put("two", two_newest.subscribe()).unwrap();
    let (serving, server) = Serving::server_of(views.clone(), settings(None));
    let (serving, address) = serving.listen(server).await;
    let mut ones = [(); 3].map(|()| Following::start(plain(&address), "good:one"));
    let mut twos = [(); 2].map(|()| Following::start(plain(&address), "good:two"));
    for proxy in &mut ones {
        proxy.reaches(one.snapshot().digest()).await;
    }
    for proxy in &mut twos {
        proxy.reaches(two.snapshot().digest()).await;
    }
    let counters = serving.counters.clone();
    let counts = || (counters.views_touched.get(), counters.streams_woken.get());
    assert_eq!(counts(), (0, 0));

    one.put("one", 2);
    one_newest.send_replace(one.snapshot().clone());
    for proxy in &mut ones {
        proxy.reaches(one.snapshot().digest()).await;
    }
    assert_eq!(counts(), (1, 3));
    two.put("more", 2);
    two_newest.send_replace(two.snapshot().clone());
    for proxy in &mut twos {
        proxy.reaches(two.snapshot().digest()).await;
    }
    assert_eq!(counts(), (2, 5));
    for proxy in ones {
        let (held, _) = proxy.stop().await;
        assert_eq!(held.digest(), one.snapshot().digest());
    }
    for proxy in twos {
        let (held, _) = proxy.stop().await;
        assert!(held.iter().all(|it| it.name().as_str() != "one"));
    }
    serving.stop().await;
}

/// A certificate whose key tells one from another.
fn certificate(key: &'static [u8]) -> Value {
    Value::Certificate(Box::new(Certificate {
        chain: [Bytes::from_static(b"chain")].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from_static(key)),
    }))
}

#[tokio::test]
async fn a_secret_of_one_view_reaches_no_proxy_of_another() {
    let (mut one, one_newest) = world("one");
    let (mut two, two_newest) = world("two");
    two.put_value("ns/tls", certificate(b"first"));
    two_newest.send_replace(two.snapshot().clone());
    let views = Views::one("one", one_newest.subscribe());
    views.put("two", two_newest.subscribe()).unwrap();
    let (serving, server) = Serving::server_of(views.clone(), settings(None));
    let (serving, address) = serving.listen(server).await;
    let mut of_one = Following::start(plain(&address), "good:one");
    let mut of_two = Following::start(plain(&address), "good:two");
    of_two.reaches(two.snapshot().digest()).await;
    of_one.reaches(one.snapshot().digest()).await;
    // Each of both is told of a commit in which the other's view changed too.
    two.put_value("ns/tls", certificate(b"second"));
    two_newest.send_replace(two.snapshot().clone());
    one.put("one", 2);
    one_newest.send_replace(one.snapshot().clone());
    of_two.reaches(two.snapshot().digest()).await;
    of_one.reaches(one.snapshot().digest()).await;
    let keys = |held: &Snapshot| held.count(Kind::Certificate);
    assert_eq!(keys(&of_one.stop().await.0), 0);
    assert_eq!(keys(&of_two.stop().await.0), 1);
    serving.stop().await;
}

#[tokio::test]
async fn a_proxy_whose_view_is_not_there_gets_nothing_until_it_is() {
    let (one, one_newest) = world("one");
    let views = Views::new();
    let (serving, server) = Serving::server_of(views.clone(), settings(None));
    let (serving, address) = serving.listen(server).await;
    let mut proxy = Following::start(plain(&address), "good:one");
    let error = within(proxy.errors.recv()).await.expect("an error");
    assert!(error.contains("its view is not there yet"), "{error}");
    assert_eq!(serving.counters.bytes_sent.get(), 0);
    views.put("one", one_newest.subscribe()).unwrap();
    proxy.reaches(one.snapshot().digest()).await;
    views.remove("one");
    drop(one_newest);
    let error = within(proxy.errors.recv()).await.expect("its stream ends");
    assert!(error.contains("closed"), "{error}");
    proxy.stop().await;
    serving.stop().await;
}

#[tokio::test]
async fn who_never_says_who_they_are_is_sent_away_and_holds_nobody_up_for_long() {
    let (one, one_newest) = world("one");
    let (server_tls, client_tls) = tls();
    let patience = Duration::from_millis(500);
    let strict = ServerSettings {
        unauthenticated_max: 2,
        greeting_timeout: patience,
        ..settings(Some(server_tls))
    };
    let views = Views::one("gateway", one_newest.subscribe());
    let (serving, server) = Serving::server_of(views, strict);
    let (mut serving, address) = serving.listen(server).await;
    // Both places are taken by those who do not even begin a handshake.
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let connect = Movable {
        address: Arc::new(Mutex::new(address.clone())),
        tls: client_tls,
    };
    let mut proxy = Following::start(Arc::new(connect), "good");
    proxy.reaches(one.snapshot().digest()).await;
    for mut stream in silent {
        let read = within(stream.read(&mut [0; 16])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    assert!(serving.counters.refused.get() >= 2);
    assert!(matches!(serving.next().await, Event::Connected { .. }));
    // Who has proved it stays, however long nothing happens: here, many times the patience of
    // others, which three more silent connections wait out one after the other.
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let read = within(stream.read(&mut [0; 16])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    assert_eq!(proxy.counters.disconnections.get(), 0);
    proxy.stop().await;
    serving.stop().await;
}

#[tokio::test]
async fn connections_of_another_address_that_prove_nothing_make_room_for_a_proxy() {
    let (one, one_newest) = world("one");
    let (server_tls, client_tls) = tls();
    // Longer than a test waits: nobody's time is up.
    let strict = ServerSettings {
        unauthenticated_max: 2,
        greeting_timeout: Duration::from_secs(600),
        ..settings(Some(server_tls))
    };
    let views = Views::one("gateway", one_newest.subscribe());
    let (serving, server) = Serving::server_of(views, strict);
    let (serving, address) = serving.listen(server).await;
    let mut flood = Vec::new();
    for _ in 0..20 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        // The first byte of a handshake, of which no more comes.
        stream.write_all(&[22]).await.unwrap();
        flood.push(stream);
    }
    let connect = Movable {
        address: Arc::new(Mutex::new(address)),
        tls: client_tls,
    };
    let mut proxy = Following::start(Arc::new(connect), "good");
    proxy.reaches(one.snapshot().digest()).await;
    assert_eq!(serving.counters.refused.get(), 1, "one of them went for it");
    proxy.stop().await;
    drop(flood);
    serving.stop().await;
}

#[tokio::test]
async fn a_third_stream_of_a_pod_ends_its_first_and_takes_no_other_room() {
    let (one, one_newest) = world("one");
    let views = Views::one("gateway", one_newest.subscribe());
    let (serving, server) = Serving::server_of(views, settings(None));
    let (mut serving, address) = serving.listen(server).await;
    let mut proxies = Vec::new();
    let (mut streams, mut gone) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut proxy = Following::start(plain(&address), "pod0");
        proxy.reaches(one.snapshot().digest()).await;
        proxies.push(proxy);
        while streams.len() < proxies.len() {
            match serving.next().await {
                Event::Connected { stream, .. } => streams.push(stream),
                Event::Gone { stream, .. } => gone.push(stream),
                _ => {}
            }
        }
    }
    while gone.is_empty() {
        if let Event::Gone { stream, .. } = serving.next().await {
            gone.push(stream);
        }
    }
    assert_eq!(gone[0], streams[0]);
    assert!(within(proxies[0].errors.recv()).await.is_some());
    for proxy in proxies {
        proxy.stop().await;
    }
    serving.stop().await;
}

/// How many proxies come back at once; the bench has thousands, in processes of their own.
const CROWD: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_in_step_comes_back_within_ten_seconds_for_less_than_ten_kilobytes_each() {
    let (server_tls, client_tls) = tls();
    let mut world = World::new(Form::Encoded);
    for number in 0..500 {
        world.put(&format!("e{number}"), 1);
    }
    let (newest, _) = watch::channel(world.snapshot().clone());
    let crowd = |tls: &Arc<rustls::ServerConfig>| ServerSettings {
        streams_max: CROWD,
        unauthenticated_max: 32,
        ..settings(Some(tls.clone()))
    };
    let views = || Views::one("gateway", newest.subscribe());
    let (first, server) = Serving::server_of(views(), crowd(&server_tls));
    let (first, address) = first.listen(server).await;
    let events = drain_events(first.events);
    let address = Arc::new(Mutex::new(address));
    let connect = Arc::new(Movable {
        address: address.clone(),
        tls: client_tls,
    });
    let start = |_| Following::start(connect.clone(), "good");
    let mut proxies: Vec<Following> = (0..CROWD).map(start).collect();
    for proxy in &mut proxies {
        proxy.reaches(world.snapshot().digest()).await;
    }
    first.drain.start();
    within(first.drain.finished()).await;
    drop(events);

    let (second, server) = Serving::server_of(views(), crowd(&server_tls));
    let (mut second, moved) = second.listen(server).await;
    *address.lock().unwrap() = moved;
    let begun = clock::now();
    let mut in_step = 0;
    while in_step < CROWD {
        if let Event::Acked { is_in_step, .. } = second.next().await {
            in_step += usize::from(is_in_step);
        }
    }
    let took = clock::now() - begun;
    eprintln!("{CROWD} proxies in {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let counters = &second.counters;
    assert_eq!(counters.resources.get(), 0, "nothing is sent again");
    assert_eq!(counters.steps_made.get(), 1);
    let each = counters.bytes_sent.get() / CROWD as u64;
    assert!(each < 10_000, "{each} bytes each");
    for proxy in proxies {
        proxy.stop().await;
    }
    second.stop().await;
}

/// Reads events of which a test needs none, so that streams do not wait.
fn drain_events(
    mut events: tokio::sync::mpsc::Receiver<Event>,
) -> tokio::task::JoinHandle<Option<()>> {
    let read = async move { while events.recv().await.is_some() {} };
    task::spawn("test events", read)
}

#[tokio::test]
async fn who_never_acknowledges_a_commit_is_sent_away_and_counted() {
    let (mut one, one_newest) = world("one");
    let hasty = ServerSettings {
        answer_timeout: Duration::from_millis(200),
        ..settings(None)
    };
    let views = Views::one("gateway", one_newest.subscribe());
    let (serving, server) = Serving::server_of(views, hasty);
    let (mut serving, address) = serving.listen(server).await;
    let (stuck, hold) = watch::channel(false);
    let mut proxy = Following::start_stuck(plain(&address), "good", hold);
    proxy.reaches(one.snapshot().digest()).await;
    assert!(matches!(serving.next().await, Event::Connected { .. }));
    assert!(matches!(serving.next().await, Event::Acked { .. }));
    // It has answered everything, and may be silent for as long as it likes.
    stuck.send_replace(true);
    one.put("one", 2);
    one_newest.send_replace(one.snapshot().clone());
    let gone = serving.next().await;
    let is_why = matches!(
        &gone,
        Event::Gone {
            error: Some(SessionError::NoAnswer),
            ..
        }
    );
    assert!(is_why, "{gone:?}");
    assert_eq!(serving.counters.unanswered.get(), 1);
    // Once it answers again it is served as before.
    stuck.send_replace(false);
    proxy.reaches(one.snapshot().digest()).await;
    assert!(matches!(serving.next().await, Event::Connected { .. }));
    proxy.stop().await;
    serving.stop().await;
}
