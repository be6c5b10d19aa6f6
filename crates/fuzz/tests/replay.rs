//! Every file of the corpora, and what comes of changing it, with a fixed seed: the same on every
//! machine, in bounded time, and within a bound on memory.

#[path = "replay/allocation.rs"]
mod allocation;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use myriad_base::clock;
use myriad_fuzz::change::Numbers;
use myriad_fuzz::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

/// The most changes that pile up, and lead away from what is well-formed, before a file is begun
/// anew.
const PILE: u32 = 4;

/// Seeds whose names begin so are refused, as they should be; all others are taken.
const REFUSED: &str = "no_";

/// A file of a corpus.
struct Seed {
    name: String,
    bytes: Vec<u8>,
}

/// The results of a target.
#[derive(Default)]
struct Tally {
    /// Inputs.
    fed: u32,
    /// Inputs that were taken.
    taken: u32,
    /// The most bytes that it had at a time.
    bytes_max: usize,
}

fn corpus(target: &Target) -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folder = fs::read_dir(folder.join(target.name)).expect(target.name);
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no corpus", target.name);
    let read = |file: &std::path::PathBuf| Seed {
        name: file.file_name().unwrap().to_string_lossy().into_owned(),
        #[expect(clippy::disallowed_methods, reason = "our own files, of a known size")]
        bytes: fs::read(file).unwrap(),
    };
    files.iter().map(read).collect()
}

impl Tally {
    /// Feeds a target, which keeps its word within its memory.
    fn feed(&mut self, target: &Target, input: &[u8]) -> bool {
        let run = target.run;
        let (done, bytes) = allocation::most(|| catch_unwind(|| run(input)));
        let text = || input.escape_ascii();
        let Ok(is_taken) = done else {
            panic!("{} breaks on \"{}\"", target.name, text());
        };
        assert!(
            bytes <= target.memory.bytes_max(input.len()),
            "{} takes {bytes} bytes for {} of input: \"{}\"",
            target.name,
            input.len(),
            text()
        );
        self.fed += 1;
        self.taken += u32::from(is_taken);
        self.bytes_max = self.bytes_max.max(bytes);
        is_taken
    }
}

fn replay(target: &Target) {
    let seeds = corpus(target);
    let begun = clock::now();
    let mut tally = Tally::default();
    // What is made once for all inputs is none of the memory of one.
    let _ = (target.run)(&seeds[0].bytes);
    let mut wrong = Vec::new();
    for Seed { name, bytes } in &seeds {
        let is_taken = tally.feed(target, bytes);
        if is_taken == name.starts_with(REFUSED) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "taken or refused: {wrong:?}");
    let mut numbers = Numbers::new(0x6d79_7269_6164);
    let share = target.changes / u32::try_from(seeds.len()).unwrap();
    for seed in &seeds {
        let mut bytes = seed.bytes.clone();
        for round in 0..share {
            if round % PILE == 0 {
                bytes.clone_from(&seed.bytes);
            }
            let other = &seeds[numbers.below(seeds.len())];
            numbers.change(&mut bytes, &other.bytes);
            tally.feed(target, &bytes);
        }
    }
    let took = clock::now() - begun;
    let Tally {
        fed,
        taken,
        bytes_max,
    } = tally;
    eprintln!(
        "{:20} {fed:6} inputs, {taken:6} taken, at most {bytes_max:8} bytes, {took:.1?}",
        target.name
    );
}

#[test]
fn no_parser_breaks_its_word() {
    let (next, broken) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(|| replay(target)).is_err() {
                        broken.lock().unwrap().push(target.name);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn every_corpus_has_a_target_and_cargo_fuzz_knows_every_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(folder.join("corpus")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let mut targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    targets.sort_unstable();
    assert_eq!(names, targets);
    let manifest = include_str!("../cargo-fuzz/Cargo.toml");
    let bins = manifest.split("[[bin]]").skip(1);
    let mut bins: Vec<&str> = bins.filter_map(|bin| bin.split('"').nth(1)).collect();
    bins.sort_unstable();
    assert_eq!(bins, targets);
}

#[test]
fn the_signed_token_of_the_corpus_is_believed() {
    let token = include_str!("../corpus/token/signed");
    assert!(myriad_fuzz::is_believed(token));
    assert!(!myriad_fuzz::is_believed(&token.replace("DtEh", "DtEi")));
}
