use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A row, the end of an answer, and a greeting of PostgreSQL.
const ROW: &[u8] = b"D\0\0\0\x06\0\0";
const READY: &[u8] = b"Z\0\0\0\x05I";
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0";

/// A database whose answers have as many rows as the statement is long; beside it how many
/// connections it has had.
async fn database() -> (SocketAddr, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            *counted.lock().unwrap() += 1;
            tokio::spawn(async move {
                let length = stream.read_u32().await.unwrap();
                let mut body = vec![0; usize::try_from(length).unwrap() - 4];
                stream.read_exact(&mut body).await.unwrap();
                let welcome = [WELCOME, READY].concat();
                stream.write_all(&welcome).await.unwrap();
                while let Ok(b'Q') = stream.read_u8().await {
                    let length = stream.read_u32().await.unwrap();
                    let mut sql = vec![0; usize::try_from(length).unwrap() - 4];
                    stream.read_exact(&mut sql).await.unwrap();
                    // So that others come meanwhile.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let answer = [&ROW.repeat(sql.len() - 1)[..], READY].concat();
                    stream.write_all(&answer).await.unwrap();
                }
            });
        }
    });
    (address, count)
}

fn query(sql: &str, rows: u64) -> Query {
    Query {
        database: "store".to_owned(),
        sql: sql.to_owned(),
        rows,
    }
}

#[tokio::test]
async fn queries_share_connections_and_their_rows_are_counted() {
    let (address, connections) = database().await;
    let store = Store::new(address).unwrap();
    let asked = query("SELECT", 6);
    let all = (0..40).map(|_| store.ask(&asked));
    try_join_all(all).await.unwrap();
    let counter = store.counter();
    assert_eq!((counter.seen.latency.len(), counter.seen.errors), (40, 0));
    assert_eq!(counter.rows, 240);
    assert_eq!(*connections.lock().unwrap(), CONNECTIONS_MAX);
}

#[tokio::test]
async fn an_answer_of_other_rows_is_an_error() {
    let (address, _) = database().await;
    let store = Store::new(address).unwrap();
    let error = store.ask(&query("SELECT", 7)).await.unwrap_err();
    assert_eq!(format!("{error:#}"), "store: 6 rows, and 7 expected");
    store.ask(&query("SELECT x", 8)).await.unwrap();
    let counter = store.counter();
    assert_eq!((counter.seen.latency.len(), counter.seen.errors), (2, 1));
    assert_eq!(counter.rows, 14);
}

#[tokio::test]
async fn a_database_that_is_not_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let store = Store::new(address).unwrap();
    assert!(store.ask(&query("SELECT", 6)).await.is_err());
    assert_eq!(store.counter().seen.errors, 1);
}

#[test]
fn processes_are_counted_together() {
    let mut all = Counter::new().unwrap();
    let mut told = Counted {
        latency: vec![(2_000_000, 3), (5_000_000, 1)],
        errors: 1,
        last_error: Some("first".to_owned()),
        rows: 40,
    };
    all.add(&told);
    (told.errors, told.last_error) = (0, None);
    all.add(&told);
    assert_eq!(
        (all.seen.latency.len(), all.seen.errors, all.rows),
        (8, 1, 80)
    );
    assert_eq!(all.seen.last_error.as_deref(), Some("first"));
    let again = Counted::of(&all.seen, all.rows);
    let count: u64 = again.latency.iter().map(|(_, count)| count).sum();
    assert_eq!((count, again.rows), (8, 80));
}
