//! How often memory is asked for to serve one request, counted on the thread that serves it.
//!
//! Clocks differ from machine to machine and from minute to minute; this does not.
#![allow(
    unsafe_code,
    reason = "a global allocator is an unsafe trait; each call is passed on"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use myriad_model::{PathRewrite, Rewrite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::floods::frame;
use super::memory::{read_frame, serve_by, worker};
use super::world::{World, route, with_policy};
use crate::Limits;
use crate::codec::frame::PREFACE;

/// The allocator of the system, with a count for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    // A thread that is ending has no count any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// The requests before those that are counted: pools and tables have grown by then.
const WARM: u32 = 20;

/// The requests that are counted.
const COUNTED: u32 = 100;

/// The answer of the endpoint.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";

/// A client, and the endpoint that its requests are rewritten for.
async fn ends() -> (World, TcpStream, TcpListener) {
    let backend = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut world = World::start();
    world.put_upstream("u", &[backend.local_addr().unwrap()]);
    let rewritten = with_policy(route("a.example", "/x", "u"), |policy| {
        policy.rewrite = Some(Box::new(Rewrite {
            authority: Box::default(),
            path: Some(PathRewrite::Matched("/".into())),
        }));
    });
    world.put_route("r", rewritten);
    let client = serve_by(&worker(&world, Limits::default())).await;
    (world, client, backend)
}

async fn more(stream: &mut TcpStream, to: &mut [u8]) -> usize {
    let count = stream.read(to).await.unwrap();
    assert!(count > 0, "the other end is gone");
    count
}

/// Has the endpoint answer one request.
async fn answer(endpoint: &mut TcpStream) {
    let mut read = [0; 1_024];
    let mut length = 0;
    while !read[..length].ends_with(b"\r\n\r\n") {
        length += more(endpoint, &mut read[length..]).await;
    }
    endpoint.write_all(ANSWER).await.unwrap();
}

/// The plan, and the rewritten path.
#[tokio::test]
async fn a_request_of_http1_is_served_with_two_allocations() {
    let story = async {
        let (_world, mut client, backend) = ends().await;
        let mut endpoint = None;
        let mut before = 0;
        for number in 0..WARM + COUNTED {
            if number == WARM {
                before = COUNT.get();
            }
            let head = b"GET /x/y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n";
            client.write_all(head).await.unwrap();
            if endpoint.is_none() {
                endpoint = Some(backend.accept().await.unwrap().0);
            }
            answer(endpoint.as_mut().unwrap()).await;
            let mut read = [0; 1_024];
            let mut length = 0;
            while !read[..length].ends_with(b"ok") {
                length += more(&mut client, &mut read[length..]).await;
            }
        }
        assert_eq!(COUNT.get() - before, 2 * u64::from(COUNTED));
    };
    LocalSet::new().run_until(story).await;
}

/// The task and its future beside these.
#[tokio::test]
async fn a_request_of_http2_is_served_with_four_allocations() {
    let story = async {
        let (_world, mut client, backend) = ends().await;
        client
            .write_all(&[PREFACE, &frame(4, 0, 0, &[])[..]].concat())
            .await
            .unwrap();
        // GET of `/x/y` at `a.example` as HPACK has it.
        let ask = b"\x82\x86\x04\x04/x/y\x01\x09a.example";
        let asks: Vec<_> = (0..WARM + COUNTED)
            .map(|number| frame(1, 5, number * 2 + 1, ask))
            .collect();
        let mut endpoint = None;
        let mut before = 0;
        let mut own = 0;
        for (number, ask) in (0..).zip(asks) {
            if number == WARM {
                (before, own) = (COUNT.get(), 0);
            }
            client.write_all(&ask).await.unwrap();
            if endpoint.is_none() {
                endpoint = Some(backend.accept().await.unwrap().0);
            }
            answer(endpoint.as_mut().unwrap()).await;
            loop {
                let (kind, flags, payload) = read_frame(&mut client).await;
                // What the frame is read into here.
                own += u64::from(!payload.is_empty());
                if kind == 0 && flags & 1 == 1 {
                    break;
                }
            }
        }
        assert_eq!(COUNT.get() - before - own, 4 * u64::from(COUNTED));
    };
    LocalSet::new().run_until(story).await;
}
