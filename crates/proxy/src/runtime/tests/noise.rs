//! Clients of HTTP/2 that keep no rules: whatever frames come, in whatever order, the proxy ends
//! what it has to end and serves the next.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::floods::frame;
use super::world::{Backend, PATIENCE, World, route, trusting_config};

/// How many clients come.
const CLIENTS: u64 = 300;

/// GET of `/` at `a.example`, and POST.
const HEADS: [&[u8]; 2] = [
    b"\x82\x87\x84\x41\x09a.example",
    b"\x83\x87\x84\x01\x09a.example",
];

/// How often the code of HTTP/2 has panicked. Tasks outlive a panic, so it would not be seen.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Numbers that only look random (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// A frame that is right, or nearly so.
    fn frame(&mut self) -> Vec<u8> {
        let stream = [0, 1, 1, 3, 3, 5, 7, 2, 999][self.below(9)];
        let flags = [0, 1, 4, 5, 5, 8, 0x25, 0xff][self.below(8)];
        let mut payload = match self.below(9) {
            0 | 1 => HEADS[0].to_vec(),
            2 | 3 => HEADS[1].to_vec(),
            4 => vec![0, 0, 0, 8],
            5 => vec![0, 4, 0, 0, 0, 9, 0, 5, 0, 1, 0, 0],
            6 => vec![b'x'; self.below(20_000)],
            7 => vec![1; 8],
            _ => Vec::new(),
        };
        let kind = [0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 77][self.below(13)];
        for _ in 0..self.below(3) {
            if !payload.is_empty() {
                let at = self.below(payload.len());
                payload[at] ^= 1 << self.below(8);
            }
        }
        let mut bytes = frame(kind, flags, stream, &payload);
        if self.below(12) == 0 {
            // A length that is not so.
            bytes[1 + self.below(2)] = self.below(256) as u8;
        }
        bytes
    }

    /// All that a client says.
    fn words(&mut self) -> Vec<u8> {
        let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        said.extend(frame(4, 0, 0, &[]));
        if self.below(4) > 0 {
            said.extend(frame(1, 5, 1, HEADS[0]));
        }
        for _ in 0..=self.below(12) {
            said.extend(self.frame());
        }
        if self.below(16) == 0 {
            let at = self.below(said.len());
            said[at] ^= 1 << self.below(8);
        }
        said
    }
}

#[tokio::test]
async fn whatever_frames_come_the_next_client_is_served() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or("", |location| location.file());
        if ["http/h2", "codec/hpack", "codec/frame"]
            .iter()
            .any(|it| place.contains(it))
        {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }
        before(info);
    }));
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], Default::default());
    let mut config = trusting_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let mut numbers = Numbers(0x6d79_7269_6164);
    for number in 0..CLIENTS {
        let client = world.tls_client_with("a.example", &config).await.unwrap();
        let (mut reading, mut writing) = tokio::io::split(client.stream);
        let said = numbers.words();
        let talk = async {
            // The proxy may have ended the connection by now.
            let _ = writing.write_all(&said).await;
            let _ = writing.shutdown().await;
        };
        let listen = async {
            let mut bytes = [0; 4_096];
            while let Ok(1..) = reading.read(&mut bytes).await {}
        };
        let both = async { tokio::join!(talk, listen) };
        let ended = tokio::time::timeout(PATIENCE, both).await;
        assert!(ended.is_ok(), "client {number} is left without an end");
    }
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    let mut client = super::http2::connect(&world, "a.example").await;
    let request = http::Request::get("https://a.example/").body(()).unwrap();
    let (response, _) = super::http2::ask(&mut client, request, b"").await;
    assert_eq!(response.status(), 200);
}
