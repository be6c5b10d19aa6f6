//! Parsers of bytes that anybody may send, each as a function that takes some and panics where
//! the parser breaks its word. `tests/replay.rs` feeds them the files of `corpus` and what comes
//! of changing those; cargo-fuzz can feed them too, by hand.
//!
//! **Does** call parsers, and asks of what they took whether it means one thing.
//! **Knows** the crates that read untrusted bytes.
//! **Never** reads a file or writes one, and lets no time pass.

pub mod change;

mod certificates;
mod documents;
mod first;
mod frames;
mod heads;
mod objects;
mod processes;
mod providers;
mod requests;
mod resources;
pub mod sessions;
mod tokens;
mod traces;

pub use tokens::is_believed;

/// A parser under test.
pub struct Target {
    /// The name of its folder in `corpus`.
    pub name: &'static str,
    /// Feeds it, and says whether it took the bytes for what they should be.
    ///
    /// It panics where the parser breaks its word.
    pub run: fn(&[u8]) -> bool,
    /// The most memory that it may have at a time.
    pub memory: Memory,
    /// How many changed inputs the tests feed it: what takes some seconds.
    pub changes: u32,
}

/// A bound on memory that depends on the length of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The most bytes for each byte that is read.
    pub per_byte: usize,
    /// The bytes beside them, whatever is read.
    pub beside: usize,
}

impl Memory {
    /// The memory that is enough for a parser that only reads.
    pub const SMALL: Memory = Memory {
        per_byte: 64,
        beside: 64 << 10,
    };

    /// The most bytes for an input of this length.
    pub fn bytes_max(self, length: usize) -> usize {
        self.per_byte * length + self.beside
    }
}

impl Target {
    /// A parser that only reads.
    const fn new(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
        Target {
            name,
            run,
            memory: Memory::SMALL,
            changes: 200_000,
        }
    }

    /// One with more around it, such as tables and sessions, which are there without any input.
    const fn beside(self, beside: usize) -> Target {
        let memory = Memory {
            beside,
            ..self.memory
        };
        Target { memory, ..self }
    }

    /// One that takes longer.
    const fn changed(self, changes: u32) -> Target {
        Target { changes, ..self }
    }
}

/// Every parser.
pub const TARGETS: [Target; 34] = [
    Target::new("request_head", heads::request_head),
    Target::new("request_head_2", heads::request_head_2),
    Target::new("response_head", heads::response_head),
    Target::new("chunked_body", heads::chunked_body),
    Target::new("trailers", heads::trailers),
    Target::new("path", heads::path),
    Target::new("guarded_path", requests::guarded_path),
    Target::new("authority", heads::authority),
    Target::new("proxy_header", heads::proxy_headers),
    Target::new("request_fields", requests::request_fields),
    Target::new("trace_context", traces::trace_context),
    Target::new("frames", frames::frames),
    Target::new("packed_head", frames::packed_head),
    Target::new("first_bytes", first::first_bytes),
    Target::new("client_hello", first::client_hello).changed(40_000),
    Target::new("check_grpc", providers::check_grpc),
    Target::new("check_http", providers::check_http),
    Target::new("processor", providers::processor),
    Target::new("resource", resources::resource),
    Target::new("workload_names", resources::workload_names),
    Target::new("log_record", resources::log_record),
    Target::new("proxy_messages", sessions::proxy_messages),
    Target::new("controller_messages", sessions::controller_messages).changed(50_000),
    Target::new("object", objects::object),
    Target::new("documents", documents::documents).changed(60_000),
    Target::new("translated", documents::translated)
        .beside(8 << 20)
        .changed(15_000),
    Target::new("pod", objects::pod),
    Target::new("key_set", tokens::key_set),
    Target::new("token", tokens::token),
    Target::new("ticket", tokens::ticket),
    Target::new("peer_certificate", certificates::peer_certificate),
    Target::new("sign_request", certificates::sign_request),
    Target::new("identity", certificates::identity),
    Target::new("restart_message", processes::restart_message),
];

/// Feeds the parser of this name, for those who know it by nothing else.
///
/// # Panics
/// Where the parser breaks its word, and where there is none of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("there is no target {name}"));
    (target.run)(bytes);
}
