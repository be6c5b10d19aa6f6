//! Texts, lists, maps and numbers within the bounds of their definitions.
//!
//! An API server refuses all that is beyond them. Files have no API server before them.

use serde::Deserializer;
use serde::de::Error;

use crate::istio::note::Notes;
use crate::istio::reading::{Read, Wire};
use crate::istio::{Labels, Map};

/// A value of at least `MIN` and at most `MAX` parts: characters of a text, entries of a list or
/// of a map.
pub(crate) struct Bounded<C, const MIN: usize, const MAX: usize>(C);

/// A list of at most `MAX` entries.
pub(crate) type List<T, const MAX: usize> = Bounded<Box<[T]>, 0, MAX>;

/// A text of at most `MAX` characters, which may be empty.
pub(crate) type Text<const MAX: usize> = Bounded<Box<str>, 0, MAX>;

/// A text of at most `MAX` characters that is not empty.
pub(crate) type FilledText<const MAX: usize> = Bounded<Box<str>, 1, MAX>;

/// At most `MAX` texts by name, each of at most `LENGTH_MAX` characters.
pub(crate) type BoundedLabels<const MAX: usize, const LENGTH_MAX: usize> =
    Bounded<Map<Text<LENGTH_MAX>>, 0, MAX>;

/// The name of an object, of a listener or of a port.
pub(crate) type Name = FilledText<253>;

/// A group of kinds; empty for the core group.
pub(crate) type GroupName = Text<253>;

/// The name of a kind or of a namespace.
pub(crate) type ShortName = FilledText<63>;

/// A host or a wildcard such as `*.example.com`.
pub(crate) type Hostname = FilledText<253>;

/// The name of a header field or a query parameter.
pub(crate) type HeaderName = FilledText<256>;

impl<C, const MIN: usize, const MAX: usize> Wire<C> for Bounded<C, MIN, MAX> {
    fn into_kept(self) -> C {
        self.0
    }
}

impl<const LOW: usize, const HIGH: usize, const MIN: usize, const MAX: usize> Wire<Box<[Box<str>]>>
    for Bounded<Box<[Bounded<Box<str>, LOW, HIGH>]>, MIN, MAX>
{
    fn into_kept(self) -> Box<[Box<str>]> {
        self.0.into_iter().map(Wire::into_kept).collect()
    }
}

impl<const LOW: u32, const HIGH: u32, const MIN: usize, const MAX: usize> Wire<Box<[u16]>>
    for Bounded<Box<[Number<LOW, HIGH>]>, MIN, MAX>
{
    fn into_kept(self) -> Box<[u16]> {
        self.0.into_iter().map(Wire::into_kept).collect()
    }
}

impl<const LOW: usize, const HIGH: usize, const MIN: usize, const MAX: usize> Wire<Labels>
    for Bounded<Map<Bounded<Box<str>, LOW, HIGH>>, MIN, MAX>
{
    fn into_kept(self) -> Labels {
        self.0.map_values(Wire::into_kept)
    }
}

/// A value that has so many parts.
pub(crate) trait Measured {
    /// The parts, in the plural.
    const PARTS: &'static str;

    /// How many there are.
    fn measure(&self) -> usize;
}

impl Measured for Box<str> {
    const PARTS: &'static str = "characters";

    fn measure(&self) -> usize {
        self.chars().count()
    }
}

impl<T> Measured for Box<[T]> {
    const PARTS: &'static str = "entries";

    fn measure(&self) -> usize {
        self.len()
    }
}

impl<T> Measured for Map<T> {
    const PARTS: &'static str = "entries";

    fn measure(&self) -> usize {
        self.len()
    }
}

impl<C: Read + Measured, const MIN: usize, const MAX: usize> Read for Bounded<C, MIN, MAX> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let value = C::read(d, notes)?;
        let (size, parts) = (value.measure(), C::PARTS);
        if size < MIN {
            return Err(D::Error::custom("the value is empty"));
        }
        if size > MAX {
            return Err(D::Error::custom(format_args!(
                "the value has {size} {parts}, of which there may be {MAX}"
            )));
        }
        Ok(Bounded(value))
    }
}

/// A whole number from `MIN` to `MAX`.
pub(crate) struct Number<const MIN: u32, const MAX: u32>(u32);

/// A whole number from 1 to the greatest of 32 bits with a sign.
pub(crate) type Positive = Number<1, 2_147_483_647>;

/// A port.
pub(crate) type PortNumber = Number<1, 65_535>;

impl<const MIN: u32, const MAX: u32> Wire<u32> for Number<MIN, MAX> {
    fn into_kept(self) -> u32 {
        self.0
    }
}

/// Of numbers that are at most 65535; the greatest stands for others.
impl<const MIN: u32, const MAX: u32> Wire<u16> for Number<MIN, MAX> {
    fn into_kept(self) -> u16 {
        self.0.try_into().unwrap_or(u16::MAX)
    }
}

impl<const MIN: u32, const MAX: u32> Read for Number<MIN, MAX> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let number = u32::read(d, notes)?;
        if (MIN..=MAX).contains(&number) {
            return Ok(Number(number));
        }
        Err(D::Error::custom(format_args!(
            "the value is not a whole number from {MIN} to {MAX}"
        )))
    }
}
