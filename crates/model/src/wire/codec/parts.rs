//! Messages within messages, and values of one of several forms.

use std::borrow::Borrow;
use std::marker::PhantomData;

use super::super::WireError;
use super::super::proto::{Line, Proto};
use super::super::raw::{Encoder, Raw};
use super::{Codec, Forms, Item, Message};

/// A message within a message, which has to be there.
pub(crate) struct Part<M> {
    missing: &'static str,
    of: PhantomData<M>,
}

/// A message; `missing` is what lacks where there is none.
pub(crate) fn part<M: Message>(missing: &'static str) -> Part<M> {
    let of = PhantomData;
    Part { missing, of }
}

impl<M: Message> Item for Part<M> {
    type Value = M::Value;
    type Out = M::Value;

    fn write(&self, field: u32, value: &M::Value, out: &mut Encoder<'_>) {
        out.delimited(field, |out| M::write(value, out));
    }

    fn read(&self, raw: Raw<'_>) -> Result<M::Value, WireError> {
        M::read(raw.message()?)
    }

    fn is_default(&self, _: &M::Value) -> bool {
        false
    }

    fn absent(&self) -> Result<M::Value, WireError> {
        Err(WireError::Missing(self.missing))
    }

    fn kind(&self, proto: &mut Proto) -> &'static str {
        M::describe(proto)
    }

    const IS_ONCE: bool = true;
}

/// A message that is left out where it says nothing but the default.
pub(crate) struct Defaulted<M>(PhantomData<M>);

/// A message that is left out where it says nothing but the default.
pub(crate) fn defaulted<M: Message>() -> Defaulted<M> {
    Defaulted(PhantomData)
}

impl<M: Message<Value: Default + PartialEq>> Item for Defaulted<M> {
    type Value = M::Value;
    type Out = M::Value;

    fn write(&self, field: u32, value: &M::Value, out: &mut Encoder<'_>) {
        out.delimited(field, |out| M::write(value, out));
    }

    fn read(&self, raw: Raw<'_>) -> Result<M::Value, WireError> {
        M::read(raw.message()?)
    }

    fn is_default(&self, value: &M::Value) -> bool {
        *value == M::Value::default()
    }

    fn absent(&self) -> Result<M::Value, WireError> {
        Ok(M::Value::default())
    }

    fn kind(&self, proto: &mut Proto) -> &'static str {
        M::describe(proto)
    }

    const IS_ONCE: bool = true;
}

/// A value that may be absent, held in a box, or whatever `P` is.
pub(crate) struct Optional<I, P> {
    item: I,
    of: PhantomData<fn() -> P>,
}

/// A value that may be absent.
pub(crate) fn optional<I: Item, P: Borrow<I::Value> + From<I::Out>>(item: I) -> Optional<I, P> {
    let of = PhantomData;
    Optional { item, of }
}

impl<I: Item, P: Borrow<I::Value> + From<I::Out>> Codec for Optional<I, P> {
    type Value = Option<P>;
    type Out = Option<P>;
    type Slot = Option<P>;

    fn put(&self, field: u32, value: &Option<P>, out: &mut Encoder<'_>) {
        if let Some(value) = value {
            self.item.write(field, value.borrow(), out);
        }
    }

    fn take(&self, _: u32, raw: Raw<'_>, slot: &mut Option<P>) -> Result<(), WireError> {
        if I::IS_ONCE && slot.is_some() {
            return Err(WireError::Malformed);
        }
        *slot = Some(self.item.read(raw)?.into());
        Ok(())
    }

    fn done(&self, slot: Option<P>) -> Result<Option<P>, WireError> {
        Ok(slot)
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        let kind = self.item.kind(proto);
        proto.field(line, kind);
    }
}

/// A message that may be absent.
pub(crate) fn some<M: Message>() -> Optional<Part<M>, M::Value> {
    optional(part(""))
}

/// A message that may be absent and is held in a box.
pub(crate) fn boxed<M: Message>() -> Optional<Part<M>, Box<M::Value>> {
    optional(part(""))
}

/// A message in a list or in a form, where it is always there.
pub(crate) fn each<M: Message>() -> Part<M> {
    part("")
}

/// A value that has to pass a test of its own.
pub(crate) struct Checked<I, F> {
    item: I,
    check: F,
}

/// A value that has to pass a test.
pub(crate) fn checked<I: Item, F: Fn(&I::Out) -> Result<(), WireError>>(
    item: I,
    check: F,
) -> Checked<I, F> {
    Checked { item, check }
}

impl<I: Item, F: Fn(&I::Out) -> Result<(), WireError>> Item for Checked<I, F> {
    type Value = I::Value;
    type Out = I::Out;

    fn write(&self, field: u32, value: &I::Value, out: &mut Encoder<'_>) {
        self.item.write(field, value, out);
    }

    fn read(&self, raw: Raw<'_>) -> Result<I::Out, WireError> {
        let value = self.item.read(raw)?;
        (self.check)(&value).map(|()| value)
    }

    fn is_default(&self, value: &I::Value) -> bool {
        self.item.is_default(value)
    }

    fn absent(&self) -> Result<I::Out, WireError> {
        let value = self.item.absent()?;
        (self.check)(&value).map(|()| value)
    }

    fn kind(&self, proto: &mut Proto) -> &'static str {
        self.item.kind(proto)
    }
}

/// A value of one of several forms, which has to be there.
pub(crate) struct OneOf<T> {
    missing: &'static str,
    of: PhantomData<T>,
}

/// A value of one of several forms; `missing` is what lacks where there is none.
pub(crate) fn one_of<T: Forms>(missing: &'static str) -> OneOf<T> {
    let of = PhantomData;
    OneOf { missing, of }
}

impl<T: Forms> Codec for OneOf<T> {
    type Value = T;
    type Out = T;
    type Slot = Option<T>;

    fn put(&self, _: u32, value: &T, out: &mut Encoder<'_>) {
        value.write(out);
    }

    fn owns(&self, _: u32, met: u32) -> bool {
        T::owns(met)
    }

    fn take(&self, met: u32, raw: Raw<'_>, slot: &mut Option<T>) -> Result<(), WireError> {
        if slot.is_some() {
            return Err(WireError::Malformed);
        }
        *slot = Some(T::read(met, raw)?);
        Ok(())
    }

    fn done(&self, slot: Option<T>) -> Result<T, WireError> {
        slot.ok_or(WireError::Missing(self.missing))
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        proto.forms(line, T::describe);
    }
}

/// A value of one of several forms that may be absent.
pub(crate) struct SomeOf<T>(PhantomData<T>);

/// A value of one of several forms that may be absent.
pub(crate) fn some_of<T: Forms>() -> SomeOf<T> {
    SomeOf(PhantomData)
}

impl<T: Forms> Codec for SomeOf<T> {
    type Value = Option<T>;
    type Out = Option<T>;
    type Slot = Option<T>;

    fn put(&self, _: u32, value: &Option<T>, out: &mut Encoder<'_>) {
        if let Some(value) = value {
            value.write(out);
        }
    }

    fn owns(&self, _: u32, met: u32) -> bool {
        T::owns(met)
    }

    fn take(&self, met: u32, raw: Raw<'_>, slot: &mut Option<T>) -> Result<(), WireError> {
        one_of::<T>("").take(met, raw, slot)
    }

    fn done(&self, slot: Option<T>) -> Result<Option<T>, WireError> {
        Ok(slot)
    }

    fn describe(&self, line: Line, proto: &mut Proto) {
        proto.forms(line, T::describe);
    }
}
