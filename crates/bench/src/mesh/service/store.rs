//! A database as a service has it: connections that are kept, and what was seen of it.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::Counter;
use crate::mesh::database::Connection;
use crate::mesh::topology::Query;

/// Connections to one database; who needs one more waits.
pub(in crate::mesh) const CONNECTIONS_MAX: usize = 8;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A database with idle connections to it.
pub(super) struct Store {
    address: SocketAddr,
    places: Semaphore,
    idle: Mutex<Vec<Connection<TcpStream>>>,
    counter: Mutex<Counter>,
}

impl Store {
    /// One that has not been asked.
    pub(super) fn new(address: SocketAddr) -> anyhow::Result<Store> {
        Ok(Store {
            address,
            places: Semaphore::new(CONNECTIONS_MAX),
            idle: Mutex::default(),
            counter: Mutex::new(Counter::new()?),
        })
    }

    /// Asks it, and counts the answer.
    pub(super) async fn ask(&self, query: &Query) -> anyhow::Result<()> {
        let begun = Instant::now();
        let rows = tokio::time::timeout(ANSWER_TIMEOUT, self.rows(&query.sql)).await;
        let rows = rows.context("no answer in time").flatten();
        let mut counter = self.counter();
        counter.seen.record(begun.elapsed());
        let (name, expected) = (&query.database, query.rows);
        let read = rows.and_then(|read| {
            counter.rows += read;
            ensure!(read == expected, "{read} rows, and {expected} expected");
            Ok(())
        });
        if let Err(error) = &read {
            counter.seen.errors += 1;
            counter.seen.last_error = Some(format!("{error:#}"));
        }
        read.with_context(|| name.clone())
    }

    /// The figures so far.
    pub(super) fn counter(&self) -> MutexGuard<'_, Counter> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn rows(&self, sql: &str) -> anyhow::Result<u64> {
        let _place = self.places.acquire().await?;
        let idle = self.idle().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                Connection::open(stream).await?
            }
        };
        // One that fails is closed here.
        let rows = connection.query(sql).await?;
        self.idle().push(connection);
        Ok(rows)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection<TcpStream>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
