//! Codecs of the values that fields have, each with its bounds. `what` a value is called in the
//! error where it is out of them.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use ipnet::IpNet;

use super::super::WireError;
use super::super::proto::{Line, Proto};
use super::super::raw::{Encoder, Raw};
use super::{Codec, Formatted, Item, Number, bytes_as, formatted, number_as, text_as};
use crate::{Host, Name, Share, SourceRanges, is_lower_token};

/// True or false.
pub(crate) fn boolean() -> impl Item<Value = bool, Out = bool> {
    number_as("bool", |it: &bool| u64::from(*it), |it| Ok(it != 0))
}

/// A number of 32 bits, of which those beyond are cut off.
pub(crate) fn uint32() -> impl Item<Value = u32, Out = u32> {
    number_as("uint32", |it: &u32| u64::from(*it), |it| Ok(it as u32))
}

/// A number of 64 bits.
pub(crate) fn uint64() -> impl Item<Value = u64, Out = u64> {
    number_as("uint64", |it: &u64| *it, Ok)
}

/// A number up to a bound.
pub(crate) fn at_most<T>(most: T, what: &'static str) -> impl Item<Value = T, Out = T>
where
    T: Copy + PartialOrd + Into<u64> + TryFrom<u32>,
{
    number_as(
        "uint32",
        |it: &T| (*it).into(),
        move |it| {
            let number = T::try_from(it as u32).ok();
            let number = number.filter(|number| *number <= most);
            number.ok_or(WireError::Invalid(what))
        },
    )
}

/// A port, which is not 0.
pub(crate) fn port_number() -> impl Item<Value = u16, Out = u16> {
    number_as(
        "uint32",
        |it: &u16| u64::from(*it),
        |it| match u16::try_from(it as u32) {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(WireError::Invalid("port")),
        },
    )
}

/// A status of HTTP within these.
pub(crate) fn http_status(
    range: RangeInclusive<u16>,
    what: &'static str,
) -> Number<u16, impl Fn(&u16) -> u64, impl Fn(u64) -> Result<u16, WireError>> {
    number_as(
        "uint32",
        |it: &u16| u64::from(*it),
        move |it| {
            let status = u16::try_from(it as u32).ok();
            let status = status.filter(|it| range.contains(it));
            status.ok_or(WireError::Invalid(what))
        },
    )
}

/// Whole milliseconds, at most 2^32 - 1 (49 days), which stands for no limit.
pub(crate) fn milliseconds() -> impl Item<Value = Duration, Out = Duration> {
    number_as("uint32", whole_milliseconds, |it| {
        Ok(Duration::from_millis(it & u64::from(u32::MAX)))
    })
}

/// Milliseconds that are not 0.
pub(crate) fn positive(what: &'static str) -> impl Item<Value = Duration, Out = Duration> {
    number_as("uint32", whole_milliseconds, move |it| match it as u32 {
        0 => Err(WireError::Invalid(what)),
        number => Ok(Duration::from_millis(number.into())),
    })
}

fn whole_milliseconds(duration: &Duration) -> u64 {
    u32::try_from(duration.as_millis())
        .unwrap_or(u32::MAX)
        .into()
}

/// A share, in millionths.
pub(crate) fn millionths() -> impl Item<Value = Share, Out = Share> {
    number_as(
        "uint32",
        |it: &Share| it.ppm().into(),
        |it| Share::from_ppm(it as u32).ok_or(WireError::Invalid("share")),
    )
}

/// An enum whose variants have numbers. `choices!` implements it.
pub(crate) trait Choice: Copy + 'static {
    /// All variants.
    const ALL: &'static [Self];

    /// The number of a variant.
    fn number(self) -> u32;

    /// The schema that a variant came with.
    fn since(self) -> u32;
}

/// The variant of a number.
///
/// # Errors
/// [`WireError::Invalid`] where no variant has it.
pub(crate) fn find<T: Choice>(number: u64, what: &'static str) -> Result<T, WireError> {
    let mut all = T::ALL.iter().copied();
    all.find(|it| it.number() == number as u32)
        .ok_or(WireError::Invalid(what))
}

/// One of the variants of an enum.
pub(crate) fn choice<T: Choice>(what: &'static str) -> impl Item<Value = T, Out = T> {
    Chosen {
        what,
        of: PhantomData,
    }
}

/// A variant, or 0 for none.
pub(crate) fn optional_choice<T: Choice>(
    what: &'static str,
) -> impl Item<Value = Option<T>, Out = Option<T>> {
    number_as(
        "uint32",
        |it: &Option<T>| it.map_or(0, T::number).into(),
        move |it| match it as u32 {
            0 => Ok(None),
            _ => find(it, what).map(Some),
        },
    )
}

struct Chosen<T> {
    what: &'static str,
    of: PhantomData<T>,
}

impl<T: Choice> Item for Chosen<T> {
    type Value = T;
    type Out = T;

    fn write(&self, field: u32, value: &T, out: &mut Encoder<'_>) {
        out.number(field, value.number().into());
        out.needs(value.since());
    }

    fn read(&self, raw: Raw<'_>) -> Result<T, WireError> {
        find(raw.number()?, self.what)
    }

    fn is_default(&self, value: &T) -> bool {
        value.number() == 0
    }

    fn absent(&self) -> Result<T, WireError> {
        find(0, self.what)
    }

    fn kind(&self, proto: &mut Proto) -> &'static str {
        for variant in T::ALL {
            proto.needs(variant.since());
        }
        "uint32"
    }
}

/// Any text.
pub(crate) fn string() -> impl Item<Value = str, Out = Box<str>> {
    text_as(|it: &str| it, |it| Ok(it.into()))
}

/// Text that is not empty.
pub(crate) fn required_text(missing: &'static str) -> impl Item<Value = str, Out = Box<str>> {
    text_as(
        |it: &str| it,
        move |it| match it.is_empty() {
            true => Err(WireError::Missing(missing)),
            false => Ok(it.into()),
        },
    )
}

/// Text that goes into a header or request line: no control character may split it.
pub(crate) fn header_text(what: &'static str) -> impl Item<Value = str, Out = Box<str>> {
    text_as(
        |it: &str| it,
        move |it| match has_control(it) {
            true => Err(WireError::Invalid(what)),
            false => Ok(it.into()),
        },
    )
}

/// Whether a text has a control character, which might end a line.
pub(crate) fn has_control(text: &str) -> bool {
    text.bytes().any(|byte| byte < b' ' || byte == 0x7f)
}

/// The name of a header field in lower case (RFC 9110, section 5.1).
pub(crate) fn header_name(what: &'static str) -> impl Item<Value = str, Out = Box<str>> {
    text_as(
        |it: &str| it,
        move |it| match is_lower_token(it) {
            true => Ok(it.into()),
            false => Err(WireError::Invalid(what)),
        },
    )
}

/// The name of a resource, which is not empty.
pub(crate) fn resource_name(what: &'static str) -> impl Item<Value = Name, Out = Name> {
    text_as(Name::as_str, move |it| match it.is_empty() {
        true => Err(WireError::Missing(what)),
        false => Ok(Name::from(it)),
    })
}

/// The name of a resource; `None` where it is empty.
pub(crate) fn optional_name() -> impl Item<Value = Option<Name>, Out = Option<Name>> {
    text_as(
        |it: &Option<Name>| it.as_ref().map_or("", Name::as_str),
        |it| Ok((!it.is_empty()).then(|| Name::from(it))),
    )
}

/// A host pattern, in the one form that it has.
pub(crate) fn host_pattern() -> impl Item<Value = Host, Out = Host> {
    text_as(Host::as_str, |it| {
        let host = Host::of_name(it).ok().filter(|host| host.as_str() == it);
        host.ok_or(WireError::Invalid("host"))
    })
}

/// A block of addresses in CIDR notation.
pub(crate) fn network(what: &'static str) -> impl Item<Value = IpNet, Out = IpNet> {
    formatted(what)
}

/// Ranges of addresses, each in CIDR notation.
pub(crate) struct Ranges(Formatted<IpNet>);

/// Any number of ranges of addresses; `what` one is called where it cannot be read.
pub(crate) fn ranges(what: &'static str) -> Ranges {
    Ranges(formatted(what))
}

impl Codec for Ranges {
    type Value = SourceRanges;
    type Out = SourceRanges;
    type Slot = Vec<IpNet>;

    fn put(&self, field: u32, value: &SourceRanges, out: &mut Encoder<'_>) {
        for text in value.texts() {
            out.bytes(field, text.as_bytes());
        }
    }

    fn take(&self, _: u32, raw: Raw<'_>, slot: &mut Vec<IpNet>) -> Result<(), WireError> {
        slot.push(self.0.read(raw)?);
        Ok(())
    }

    fn done(&self, slot: Vec<IpNet>) -> Result<SourceRanges, WireError> {
        Ok(SourceRanges::new(slot))
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        let kind = self.0.kind(proto);
        proto.field(line, &format!("repeated {kind}"));
    }
}

/// Bytes, as a slice of what was received; `missing` is what lacks where there are none.
pub(crate) fn data(missing: &'static str) -> impl Item<Value = Bytes, Out = Bytes> {
    bytes_as(move |raw| {
        let bytes = raw.shared()?;
        match bytes.is_empty() {
            true => Err(WireError::Missing(missing)),
            false => Ok(bytes),
        }
    })
}

/// An IP address of 4 or 16 bytes.
pub(crate) fn ip() -> impl Item<Value = IpAddr, Out = IpAddr> {
    Address
}

struct Address;

impl Item for Address {
    type Value = IpAddr;
    type Out = IpAddr;

    fn write(&self, field: u32, value: &IpAddr, out: &mut Encoder<'_>) {
        match value {
            IpAddr::V4(ip) => out.bytes(field, &ip.octets()),
            IpAddr::V6(ip) => out.bytes(field, &ip.octets()),
        }
    }

    fn read(&self, raw: Raw<'_>) -> Result<IpAddr, WireError> {
        let bytes = raw.bytes()?;
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        let ip = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
        ip.map_err(|_| WireError::Invalid("address"))
    }

    fn is_default(&self, _: &IpAddr) -> bool {
        false
    }

    fn absent(&self) -> Result<IpAddr, WireError> {
        Err(WireError::Invalid("address"))
    }

    fn kind(&self, _: &mut Proto) -> &'static str {
        "bytes"
    }
}
