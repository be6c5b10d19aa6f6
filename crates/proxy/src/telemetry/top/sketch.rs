//! A sketch of who has most: the space-saving algorithm in sets of eight places. Who is not known
//! takes the place of the one of its set that has least, and its number as an error.

use std::time::Duration;

use myriad_base::clock::Instant;

/// The places of one set, which are looked through for each name.
const WAYS: usize = 8;

/// The sets.
const SETS: usize = 32;

/// All places: whoever has more than a two-hundredth of all that is counted has one.
pub(super) const PLACES: usize = WAYS * SETS;

/// The most bytes of a name that are kept: a host has no more, and an object rarely.
const NAME_BYTES_MAX: usize = 320;

/// How often numbers are halved, so that they are those of the last minutes.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// The names that have most, with their numbers. It takes memory once anything is counted.
#[derive(Default)]
pub(super) struct Sketch {
    places: Box<[Slot]>,
    /// The names, by place.
    names: Box<[u8]>,
    /// Everything that was ever counted.
    total: u64,
    /// When numbers were halved last.
    halved: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    count: u64,
    error: u64,
    /// The exact count since the name is here; 0 where the place is free.
    seen: u64,
    name_bytes: usize,
}

/// One that is known.
#[derive(Debug)]
pub(super) struct CountedName {
    pub(super) hash: u64,
    pub(super) name: String,
    /// Of late, and at most so much too many.
    pub(super) count: u64,
    pub(super) error: u64,
    /// Exactly, since it is known.
    pub(super) seen: u64,
}

impl Sketch {
    /// Counts so much for a name, which is given in parts and by its hash.
    pub(super) fn add(&mut self, hash: u64, by: u64, now: Instant, name: &[&str]) {
        if by == 0 {
            return;
        }
        if self.places.is_empty() {
            self.places = vec![Slot::default(); PLACES].into();
            self.names = vec![0; PLACES * NAME_BYTES_MAX].into();
        }
        self.halve(now);
        self.total = self.total.saturating_add(by);
        let first = usize::try_from(hash >> 32).unwrap_or_default() % SETS * WAYS;
        let Some(set) = self.places.get_mut(first..first + WAYS) else {
            return;
        };
        let mut known = set.iter_mut();
        if let Some(place) = known.find(|it| it.hash == hash && it.seen > 0) {
            place.count = place.count.saturating_add(by);
            place.seen = place.seen.saturating_add(by);
            return;
        }
        let places = set.iter_mut().enumerate();
        let Some((way, place)) = places.min_by_key(|(_, it)| (it.seen > 0, it.count)) else {
            return;
        };
        let least = place.count;
        *place = Slot {
            hash,
            count: least.saturating_add(by),
            error: least,
            seen: by,
            name_bytes: 0,
        };
        let start = (first + way) * NAME_BYTES_MAX;
        if let Some(mut room) = self.names.get_mut(start..start + NAME_BYTES_MAX) {
            for part in name {
                let count = part.len().min(room.len());
                let (taken, rest) = room.split_at_mut(count);
                taken.copy_from_slice(part.as_bytes().get(..count).unwrap_or_default());
                place.name_bytes += count;
                room = rest;
            }
        }
    }

    /// All that are known, and how much was counted in all.
    pub(super) fn read(&self) -> (Vec<CountedName>, u64) {
        let names = self.names.chunks_exact(NAME_BYTES_MAX);
        let known = self.places.iter().zip(names).filter(|(it, _)| it.seen > 0);
        let kept = known.map(|(place, name)| CountedName {
            hash: place.hash,
            name: String::from_utf8_lossy(name.get(..place.name_bytes).unwrap_or_default())
                .into_owned(),
            count: place.count,
            error: place.error,
            seen: place.seen,
        });
        (kept.collect(), self.total)
    }

    /// Halves all numbers once for each time that has passed.
    fn halve(&mut self, now: Instant) {
        let since = *self.halved.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < HALF_LIFE {
            return;
        }
        self.halved = Some(now);
        let times = passed.as_secs() / HALF_LIFE.as_secs();
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        for place in &mut self.places {
            place.count = place.count.checked_shr(times).unwrap_or_default();
            place.error = place.error.checked_shr(times).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_base::clock;

    use super::{HALF_LIFE, NAME_BYTES_MAX, Sketch};

    /// A hash whose upper half decides the set.
    fn hash(set: u64, number: u64) -> u64 {
        (set << 32) | number
    }

    #[test]
    fn who_has_most_stays_however_many_others_come_and_errors_are_told() {
        let (mut sketch, now) = (Sketch::default(), clock::now());
        for number in 0..10_000 {
            sketch.add(hash(3, 1), 1, now, &["often"]);
            sketch.add(hash(3, 10 + number), 1, now, &["once"]);
        }
        let (kept, total) = sketch.read();
        assert_eq!((kept.len(), total), (8, 20_000));
        let often = kept.iter().find(|it| it.name == "often").expect("kept");
        assert_eq!((often.count, often.error, often.seen), (10_000, 0, 10_000));
        let others = kept.iter().filter(|it| it.name == "once");
        for other in others {
            assert_eq!(other.count - other.error, other.seen);
            assert!(other.count <= 10_000 / 7 + 1, "{other:?}");
        }
    }

    #[test]
    fn numbers_are_halved_with_time_but_not_what_was_seen() {
        let (mut sketch, now) = (Sketch::default(), clock::now());
        sketch.add(1, 80, now, &["a"]);
        sketch.add(1, 1, now + HALF_LIFE * 3, &["a"]);
        let (kept, total) = sketch.read();
        assert_eq!((kept[0].count, kept[0].seen, total), (11, 81, 81));
        sketch.add(1, 1, now + HALF_LIFE * 300, &["a"]);
        assert_eq!(sketch.read().0[0].count, 1);
    }

    #[test]
    fn a_name_is_cut_at_its_room_and_nothing_takes_no_place() {
        let (mut sketch, now) = (Sketch::default(), clock::now());
        sketch.add(1, 0, now, &["a"]);
        assert!(sketch.read().0.is_empty());
        sketch.add(1, 1, now, &[&"x".repeat(300), "/", &"y".repeat(300)]);
        let name = &sketch.read().0[0].name;
        assert_eq!(name.len(), NAME_BYTES_MAX);
        assert!(name.starts_with("xxx") && name.ends_with("yyy"));
    }
}
