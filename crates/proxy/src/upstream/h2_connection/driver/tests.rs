use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::{
    AnswerTurns, Bounded, EndpointStream, HEAVY_TURNS_MAX, KEPT_FRAME_BYTES, KEPT_MAX, SLICE_BYTES,
};
use crate::admission::holdings::Holdings;
use crate::limits::Limits;
use crate::net::stream::Stream;

/// A connection on which nothing was said, and its endpoint.
async fn connected(turns: &Rc<AnswerTurns>, owner: u64) -> (Bounded, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connected = TcpStream::connect(address).await.unwrap();
    let (endpoint, _) = listener.accept().await.unwrap();
    let stream = EndpointStream::new(Stream::Plain(connected));
    let holdings = Rc::new(Holdings::new(&Limits::default(), &Arc::default()));
    let whose = (turns.clone(), owner, holdings.connection());
    (Bounded::new(stream, Rc::default(), whose), endpoint)
}

/// How many bytes are read in one turn, by who takes so many at once.
async fn read_turn(bounded: &mut Bounded, at_once: usize) -> usize {
    bounded.state.begin_turn();
    let mut room = vec![0; at_once];
    let mut read = 0;
    poll_fn(|context| {
        loop {
            let mut into = ReadBuf::new(&mut room);
            let polled = Pin::new(&mut *bounded).poll_read(context, &mut into);
            if polled.is_pending() && read == 0 {
                return Poll::Pending;
            }
            if polled.is_pending() {
                return Poll::Ready(());
            }
            read += into.filled().len();
        }
    })
    .await;
    read
}

#[tokio::test]
async fn reading_ends_for_one_turn_though_more_is_there() {
    LocalSet::new().run_until(read_in_slices()).await;
}

async fn read_in_slices() {
    let (mut bounded, mut endpoint) = connected(&Rc::default(), 1).await;
    // A frame of a body that is as long as a frame can be.
    endpoint.write_all(&[255, 255, 255]).await.unwrap();
    let mut turns = 0;
    let mut total = 0;
    while total < 3 * SLICE_BYTES {
        endpoint.write_all(&vec![0; 2 * SLICE_BYTES]).await.unwrap();
        let read = read_turn(&mut bounded, 4_096).await;
        assert!(read <= SLICE_BYTES, "{read}");
        turns += 1;
        total += read;
    }
    assert!(turns >= 3);
}

/// A frame of a body that is so long.
fn data(length: u8) -> Vec<u8> {
    let head = [0, 0, length, 0, 0, 0, 0, 0, 1];
    [&head[..], &[b'y'; 255][..length.into()]].concat()
}

/// How many frames of a body that are so long are read in each of three turns.
async fn read_frames(bounded: &mut Bounded, endpoint: &mut TcpStream, length: u8) -> Vec<usize> {
    let frame = data(length);
    let frames = frame.repeat(SLICE_BYTES / frame.len());
    endpoint.write_all(&frames).await.unwrap();
    let mut read = Vec::new();
    for _ in 0..3 {
        read.push(read_turn(bounded, 16 << 10).await / frame.len());
    }
    read
}

/// The library keeps a place of some 300 bytes for each of them, and 6,500 were read in one turn.
#[tokio::test]
async fn frames_of_one_byte_are_few_in_a_turn_and_count_as_held() {
    let story = async {
        let (mut bounded, mut endpoint) = connected(&Rc::default(), 1).await;
        let places = 2 * KEPT_MAX;
        for _ in 0..=HEAVY_TURNS_MAX {
            let read = read_frames(&mut bounded, &mut endpoint, 1).await;
            assert!(
                read.iter().all(|count| (1..places).contains(count)),
                "{read:?}"
            );
        }
        assert!(bounded.state.is_laden());
        assert_eq!(bounded.held.bytes(), places * KEPT_FRAME_BYTES);
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn messages_of_100_bytes_leave_a_connection_for_further_requests() {
    let story = async {
        let (mut bounded, mut endpoint) = connected(&Rc::default(), 1).await;
        let read = read_frames(&mut bounded, &mut endpoint, 100).await;
        assert!(
            read.iter().all(|count| (100..KEPT_MAX).contains(count)),
            "{read:?}"
        );
        assert!(!bounded.state.is_laden());
        assert!(bounded.held.bytes() <= KEPT_MAX * KEPT_FRAME_BYTES);
    };
    LocalSet::new().run_until(story).await;
}

/// A connection that has something to say, and its endpoint.
async fn saying(turns: &Rc<AnswerTurns>, owner: u64) -> (Bounded, TcpStream) {
    let (bounded, mut endpoint) = connected(turns, owner).await;
    // A frame of a kind that nobody knows.
    endpoint
        .write_all(&[0, 0, 3, 99, 0, 0, 0, 0, 0, 1, 2, 3])
        .await
        .unwrap();
    bounded.stream.tcp().readable().await.unwrap();
    (bounded, endpoint)
}

/// How much is read of a connection in one poll.
fn read_once(bounded: &mut Bounded, context: &mut Context<'_>) -> Poll<usize> {
    let mut room = [0; 64];
    let mut into = ReadBuf::new(&mut room);
    let polled = Pin::new(bounded).poll_read(context, &mut into);
    polled.map(|_| into.filled().len())
}

/// Each connection had a slice of its own, however many of one namespace had something to say.
#[tokio::test]
async fn a_namespace_that_has_had_its_turn_is_read_in_the_next_one() {
    let story = async {
        let turns = Rc::<AnswerTurns>::default();
        let mut all = Vec::new();
        for owner in [1, 1, 1, 2] {
            all.push(saying(&turns, owner).await);
        }
        let mut read = Vec::new();
        poll_fn(|context| {
            for (bounded, _) in &mut all {
                read.push(read_once(bounded, context));
                turns.spend_head(1, 2 * SLICE_BYTES);
            }
            Poll::Ready(())
        })
        .await;
        let ready = Poll::Ready(12);
        assert_eq!(read, [ready, ready, Poll::Pending, ready]);
        let (late, _) = &mut all[2];
        let count = poll_fn(|context| read_once(late, context)).await;
        assert_eq!(count, 12);
    };
    LocalSet::new().run_until(story).await;
}
