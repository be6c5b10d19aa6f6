//! How fields are written and read: one codec for each form that a field may have.
//!
//! A codec is made where a message is described (see `describe`), and is known at compile time.

mod parts;
mod values;

use std::borrow::Borrow;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::str::FromStr;

use super::WireError;
use super::proto::{Line, Proto};
use super::raw::{Encoder, Raw, Reader};

pub(crate) use parts::{boxed, checked, defaulted, each, one_of, optional, part, some, some_of};
pub(crate) use values::{
    Choice, at_most, boolean, choice, data, find, has_control, header_name, header_text,
    host_pattern, http_status, ip, millionths, milliseconds, network, optional_choice,
    optional_name, port_number, positive, ranges, required_text, resource_name, string, uint32,
    uint64,
};

/// A message: a type's form on the wire. `message!` implements it.
pub(super) trait Message {
    /// The type that it is the form of.
    type Value;

    /// Writes the fields.
    fn write(value: &Self::Value, out: &mut Encoder<'_>);

    /// Reads the fields and checks them. Fields that are not known are passed over.
    ///
    /// # Errors
    /// See [`WireError`].
    fn read(fields: Reader<'_>) -> Result<Self::Value, WireError>;

    /// Describes the message, unless that has been done; its name.
    fn describe(proto: &mut Proto) -> &'static str;
}

/// A value of one of several forms, each with a field of its own. `forms!` implements it.
pub(super) trait Forms: Sized {
    /// Writes the field of the form that it has.
    fn write(&self, out: &mut Encoder<'_>);

    /// Whether a field is that of a form.
    fn owns(field: u32) -> bool;

    /// Reads a form from its field.
    ///
    /// # Errors
    /// See [`WireError`].
    fn read(field: u32, raw: Raw<'_>) -> Result<Self, WireError>;

    /// Describes the fields.
    fn describe(proto: &mut Proto);
}

/// How a field is written and read.
pub(super) trait Codec {
    /// The value that is written.
    type Value: ?Sized;
    /// The value that is read.
    type Out;
    /// The parts that have been read so far.
    type Slot: Default;

    /// Writes a field, unless it has the value that an absent field stands for.
    fn put(&self, field: u32, value: &Self::Value, out: &mut Encoder<'_>);

    /// Whether a field that was met is this one, which is described under `own`.
    fn owns(&self, own: u32, met: u32) -> bool {
        own == met
    }

    /// Reads the field where it is met.
    ///
    /// # Errors
    /// See [`WireError`].
    fn take(&self, met: u32, raw: Raw<'_>, slot: &mut Self::Slot) -> Result<(), WireError>;

    /// The value of the field, once the message has ended.
    ///
    /// # Errors
    /// See [`WireError`].
    fn done(&self, slot: Self::Slot) -> Result<Self::Out, WireError>;

    /// Describes the field.
    fn describe(&self, line: Line, proto: &mut Proto);
}

/// How one value is written and read: a field of its own, or one of many in a list.
pub(super) trait Item {
    /// The value that is written.
    type Value: ?Sized;
    /// The value that is read.
    type Out: Borrow<Self::Value>;

    /// Writes a value, whatever it is.
    fn write(&self, field: u32, value: &Self::Value, out: &mut Encoder<'_>);

    /// Reads a value and checks it.
    ///
    /// # Errors
    /// See [`WireError`].
    fn read(&self, raw: Raw<'_>) -> Result<Self::Out, WireError>;

    /// Whether an absent field stands for a value.
    fn is_default(&self, value: &Self::Value) -> bool;

    /// The value that an absent field stands for, checked.
    ///
    /// # Errors
    /// See [`WireError`].
    fn absent(&self) -> Result<Self::Out, WireError>;

    /// The type in the .proto file.
    fn kind(&self, proto: &mut Proto) -> &'static str;

    /// Whether a second field of the number is an error; otherwise it replaces the first.
    const IS_ONCE: bool = false;
}

impl<I: Item> Codec for I {
    type Value = I::Value;
    type Out = I::Out;
    type Slot = Option<I::Out>;

    fn put(&self, field: u32, value: &I::Value, out: &mut Encoder<'_>) {
        if !self.is_default(value) {
            self.write(field, value, out);
        }
    }

    fn take(&self, _: u32, raw: Raw<'_>, slot: &mut Self::Slot) -> Result<(), WireError> {
        if I::IS_ONCE && slot.is_some() {
            return Err(WireError::Malformed);
        }
        *slot = Some(self.read(raw)?);
        Ok(())
    }

    fn done(&self, slot: Self::Slot) -> Result<I::Out, WireError> {
        slot.map_or_else(|| self.absent(), Ok)
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        let kind = self.kind(proto);
        proto.field(line, kind);
    }
}

/// A value that is a number on the wire.
pub(super) struct Number<T, W, R> {
    kind: &'static str,
    write: W,
    read: R,
    of: PhantomData<fn() -> T>,
}

/// A value that is a number on the wire, by how it becomes one and comes back.
pub(super) fn number_as<T, W, R>(kind: &'static str, write: W, read: R) -> Number<T, W, R>
where
    W: Fn(&T) -> u64,
    R: Fn(u64) -> Result<T, WireError>,
{
    let of = PhantomData;
    Number {
        kind,
        write,
        read,
        of,
    }
}

impl<T, W, R> Item for Number<T, W, R>
where
    W: Fn(&T) -> u64,
    R: Fn(u64) -> Result<T, WireError>,
{
    type Value = T;
    type Out = T;

    fn write(&self, field: u32, value: &T, out: &mut Encoder<'_>) {
        out.number(field, (self.write)(value));
    }

    fn read(&self, raw: Raw<'_>) -> Result<T, WireError> {
        (self.read)(raw.number()?)
    }

    fn is_default(&self, value: &T) -> bool {
        (self.write)(value) == 0
    }

    fn absent(&self) -> Result<T, WireError> {
        (self.read)(0)
    }

    fn kind(&self, _: &mut Proto) -> &'static str {
        self.kind
    }
}

/// Numbers that follow each other in one field.
pub(super) struct Packed<N>(pub N);

impl<T, W, R> Codec for Packed<Number<T, W, R>>
where
    W: Fn(&T) -> u64,
    R: Fn(u64) -> Result<T, WireError>,
{
    type Value = [T];
    type Out = Vec<T>;
    type Slot = Vec<T>;

    fn put(&self, field: u32, values: &[T], out: &mut Encoder<'_>) {
        if !values.is_empty() {
            out.delimited(field, |out| {
                for value in values {
                    out.varint((self.0.write)(value));
                }
            });
        }
    }

    fn take(&self, _: u32, raw: Raw<'_>, slot: &mut Vec<T>) -> Result<(), WireError> {
        match raw {
            Raw::Delimited(mut numbers) => {
                while let Some(number) = numbers.packed()? {
                    slot.push((self.0.read)(number)?);
                }
            }
            one => slot.push((self.0.read)(one.number()?)?),
        }
        Ok(())
    }

    fn done(&self, slot: Vec<T>) -> Result<Vec<T>, WireError> {
        Ok(slot)
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        proto.field(line, &format!("repeated {}", self.0.kind));
    }
}

/// A value that is text or bytes on the wire, as it is held.
pub(super) struct Delimited<V: ?Sized, T, W, R> {
    kind: &'static str,
    write: W,
    read: R,
    of: PhantomData<fn(&V) -> T>,
}

/// A value that is text on the wire, by its text and by how it is read.
pub(super) fn text_as<V: ?Sized, T: Borrow<V>>(
    write: impl Fn(&V) -> &str,
    read: impl Fn(&str) -> Result<T, WireError>,
) -> impl Item<Value = V, Out = T> {
    delimited(
        "string",
        move |value: &V| write(value).as_bytes(),
        move |raw: Raw<'_>| read(raw.text()?),
    )
}

/// A value that is bytes on the wire, by how it is read.
pub(super) fn bytes_as<V: ?Sized + AsRef<[u8]>, T: Borrow<V>>(
    read: impl Fn(Raw<'_>) -> Result<T, WireError>,
) -> impl Item<Value = V, Out = T> {
    delimited("bytes", |value: &V| value.as_ref(), read)
}

fn delimited<V: ?Sized, T, W, R>(kind: &'static str, write: W, read: R) -> Delimited<V, T, W, R>
where
    W: Fn(&V) -> &[u8],
    R: Fn(Raw<'_>) -> Result<T, WireError>,
{
    let of = PhantomData;
    Delimited {
        kind,
        write,
        read,
        of,
    }
}

impl<V: ?Sized, T, W, R> Item for Delimited<V, T, W, R>
where
    T: Borrow<V>,
    W: Fn(&V) -> &[u8],
    R: Fn(Raw<'_>) -> Result<T, WireError>,
{
    type Value = V;
    type Out = T;

    fn write(&self, field: u32, value: &V, out: &mut Encoder<'_>) {
        out.bytes(field, (self.write)(value));
    }

    fn read(&self, raw: Raw<'_>) -> Result<T, WireError> {
        (self.read)(raw)
    }

    fn is_default(&self, value: &V) -> bool {
        (self.write)(value).is_empty()
    }

    fn absent(&self) -> Result<T, WireError> {
        (self.read)(Raw::empty())
    }

    fn kind(&self, _: &mut Proto) -> &'static str {
        self.kind
    }
}

/// A value that is written as text when it is sent, and parsed.
pub(super) struct Formatted<T> {
    what: &'static str,
    of: PhantomData<fn() -> T>,
}

/// A value by its text; `what` it is called where it cannot be parsed.
pub(super) fn formatted<T>(what: &'static str) -> Formatted<T> {
    let of = PhantomData;
    Formatted { what, of }
}

impl<T: std::fmt::Display + FromStr> Item for Formatted<T> {
    type Value = T;
    type Out = T;

    fn write(&self, field: u32, value: &T, out: &mut Encoder<'_>) {
        // The writer never fails, and nor does the text of an address.
        out.delimited(field, |out| _ = write!(out, "{value}"));
    }

    fn read(&self, raw: Raw<'_>) -> Result<T, WireError> {
        let parsed = raw.text()?.parse();
        parsed.map_err(|_| WireError::Invalid(self.what))
    }

    fn is_default(&self, _: &T) -> bool {
        false
    }

    fn absent(&self) -> Result<T, WireError> {
        Err(WireError::Invalid(self.what))
    }

    fn kind(&self, _: &mut Proto) -> &'static str {
        "string"
    }
}

/// Any number of values.
pub(super) struct List<I> {
    item: I,
    most: usize,
    what: &'static str,
    many_since: u32,
}

/// Any number of values, as many as there are bytes for.
pub(super) fn list<I: Item>(item: I) -> List<I> {
    list_of(usize::MAX, "", item)
}

/// A list of at most `most` values; `what` is not valid where there are more.
pub(super) fn list_of<I: Item>(most: usize, what: &'static str, item: I) -> List<I> {
    List {
        item,
        most,
        what,
        many_since: 1,
    }
}

impl<I> List<I> {
    /// Sets the schema that a list of more than one value needs.
    pub(super) fn many_since(self, many_since: u32) -> Self {
        List { many_since, ..self }
    }
}

impl<I: Item> Codec for List<I> {
    type Value = [I::Out];
    type Out = Vec<I::Out>;
    type Slot = Vec<I::Out>;

    fn put(&self, field: u32, values: &[I::Out], out: &mut Encoder<'_>) {
        if values.len() > 1 {
            out.needs(self.many_since);
        }
        for value in values {
            self.item.write(field, value.borrow(), out);
        }
    }

    fn take(&self, _: u32, raw: Raw<'_>, slot: &mut Self::Slot) -> Result<(), WireError> {
        if slot.len() >= self.most {
            return Err(WireError::Invalid(self.what));
        }
        slot.push(self.item.read(raw)?);
        Ok(())
    }

    fn done(&self, slot: Self::Slot) -> Result<Self::Out, WireError> {
        Ok(slot)
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        proto.needs(self.many_since);
        let kind = self.item.kind(proto);
        proto.field(line, &format!("repeated {kind}"));
    }
}
