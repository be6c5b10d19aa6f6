//! A slab in chunks: ids are stable, small and used again, and growth never moves a value.

const CHUNK: usize = 1024;
const NONE: u32 = u32::MAX;

/// Values by 32-bit id. Growing by whole chunks keeps one insertion among millions from copying
/// all values to a larger place.
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: u32,
    len: usize,
}

enum Slot<T> {
    Full(T),
    Free { next: u32 },
}

impl<T> Slab<T> {
    /// An empty slab.
    pub(crate) fn new() -> Self {
        Slab {
            chunks: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().filter_map(|slot| match slot {
            Slot::Full(value) => Some(value),
            Slot::Free { .. } => None,
        })
    }

    /// All values with their ids.
    pub(crate) fn iter_ids(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = (0..).zip(self.chunks.iter().flatten());
        slots.filter_map(|(id, slot)| match slot {
            Slot::Full(value) => Some((id, value)),
            Slot::Free { .. } => None,
        })
    }

    /// The value of an id.
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        match self
            .chunks
            .get(id as usize / CHUNK)?
            .get(id as usize % CHUNK)?
        {
            Slot::Full(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// The value of an id, for writing.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match self.slot_mut(id)? {
            Slot::Full(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Keeps a value and says under which id.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let reused = self.free;
        if let Some(slot) = self.slot_mut(reused) {
            let next = match slot {
                Slot::Free { next } => *next,
                Slot::Full(_) => NONE,
            };
            *slot = Slot::Full(value);
            self.free = next;
            return reused;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full_chunks = self.chunks.len() - 1;
        let chunk = &mut self.chunks[full_chunks];
        chunk.push(Slot::Full(value));
        (full_chunks * CHUNK + chunk.len() - 1) as u32
    }

    /// Takes the value of an id out.
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let next = self.free;
        let slot = self.slot_mut(id)?;
        match std::mem::replace(slot, Slot::Free { next }) {
            Slot::Full(value) => {
                self.free = id;
                self.len -= 1;
                Some(value)
            }
            free => {
                *slot = free;
                None
            }
        }
    }

    fn slot_mut(&mut self, id: u32) -> Option<&mut Slot<T>> {
        self.chunks
            .get_mut(id as usize / CHUNK)?
            .get_mut(id as usize % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Slab};

    #[test]
    fn ids_are_stable_and_used_again() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..CHUNK as u32 + 2).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.get(ids[CHUNK]), Some(&(CHUNK as u32)));
        assert_eq!(slab.remove(ids[3]), Some(3));
        assert_eq!(slab.remove(ids[3]), None);
        assert_eq!(slab.get(ids[3]), None);
        assert_eq!(slab.insert(77), ids[3]);
        assert_eq!(slab.len(), CHUNK + 2);
    }
}
