//! The descriptions of messages: each field once, with its number, its name and its codec.
//!
//! From a description follow how a message is written, how it is read, the schema that a value
//! needs, and the text of the .proto file:
//!
//! ```text
//! message! {
//!     /// When a request is sent again.
//!     Retry {
//!         /// 0 for none.
//!         2 try_timeout as try_timeout_ms: milliseconds(), since 2;
//!     }
//! }
//! ```
//!
//! Number, field of the type, name in the .proto file where it is another, codec, and the schema
//! that the field came with where older proxies must not ignore it: a value that sets the field
//! needs that schema. A type that is no list of its fields names the value (`Endpoint, value {`),
//! says what each field is made `of`, and behind the fields what is made of them (`} => ...`); that
//! is also where fields are checked against each other. `Header for (Box<str>, Box<str>), ...` is
//! the message of a type that has no name of its own. Fields are variables while a message is read,
//! so that none may be called as a codec of its message.

/// Describes a message; see the head of this module.
macro_rules! message {
    (
        $(#[doc = $about:literal])*
        $name:ident for $type:ty, $value:ident { $($fields:tt)* } => $built:expr
    ) => {
        $(#[doc = $about])*
        pub(super) struct $name;

        impl Message for $name {
            type Value = $type;
            message! { @methods [$($about)*] $name, $value { $($fields)* } => $built }
        }
    };
    (
        $(#[doc = $about:literal])*
        $name:ident, $value:ident { $($fields:tt)* } => $built:expr
    ) => {
        impl Message for $name {
            type Value = $name;
            message! { @methods [$($about)*] $name, $value { $($fields)* } => $built }
        }
    };
    (
        $(#[doc = $about:literal])*
        $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:literal $local:ident $(as $wire:ident)? : $codec:expr
                $(, since $since:literal)? $(, of $from:expr)? ;
            )*
        }
    ) => {
        impl Message for $name {
            type Value = $name;
            message! {
                @methods [$($about)*] $name, value {
                    $(
                        $(#[doc = $doc])*
                        $field $local $(as $wire)? : $codec $(, since $since)? $(, of $from)? ;
                    )*
                } => $name { $($local: $local.into()),* }
            }
        }
    };
    (
        @methods [$($about:literal)*] $name:ident, $value:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:literal $local:ident $(as $wire:ident)? : $codec:expr
                $(, since $since:literal)? $(, of $from:expr)? ;
            )*
        } => $built:expr
    ) => {
        fn write($value: &<Self as Message>::Value, out: &mut Encoder<'_>) {
            $(
                let before = out.written();
                ($codec).put($field, &message!(@from $value $local $($from)?), out);
                if out.written() > before {
                    out.needs(message!(@since $($since)?));
                }
            )*
        }

        fn read(mut fields: Reader<'_>) -> Result<<Self as Message>::Value, WireError> {
            $(let mut $local = Default::default();)*
            while let Some((met, raw)) = fields.field()? {
                $(
                    let codec = $codec;
                    if codec.owns($field, met) {
                        codec.take(met, raw, &mut $local)?;
                        continue;
                    }
                )*
            }
            $(let $local = ($codec).done($local)?;)*
            Ok($built)
        }

        fn describe(proto: &mut Proto) -> &'static str {
            proto.message(&[$($about),*], stringify!($name), |proto| {
                $(
                    let line = Line {
                        docs: &[$($doc),*],
                        field: $field,
                        name: message!(@name $local $($wire)?),
                        since: message!(@since $($since)?),
                    };
                    ($codec).describe(line, proto);
                )*
            })
        }
    };
    (@from $value:ident $local:ident) => { $value.$local };
    (@from $value:ident $local:ident $from:expr) => { $from };
    (@name $local:ident) => { stringify!($local) };
    (@name $local:ident $wire:ident) => { stringify!($wire) };
    (@since) => { 1 };
    (@since $since:literal) => { $since };
}

/// Describes the forms of an enum, each a field: number, name, codec unless the form is a mere
/// word, and the variant.
macro_rules! forms {
    (
        $type:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:literal $name:ident $(: $codec:expr)? => $form:ident
                $(, since $since:literal)? ;
            )*
        }
    ) => {
        impl Forms for $type {
            fn write(&self, out: &mut Encoder<'_>) {
                match self {
                    $(forms!(@pattern $type $form value $($codec)?) => {
                        forms!(@write $field value out $($codec)?);
                        out.needs(message!(@since $($since)?));
                    })*
                }
            }

            fn owns(field: u32) -> bool {
                [$($field),*].contains(&field)
            }

            fn read(field: u32, raw: Raw<'_>) -> Result<Self, WireError> {
                match field {
                    $($field => Ok(forms!(@read $type $form raw $($codec)?)),)*
                    _ => Err(WireError::Malformed),
                }
            }

            fn describe(proto: &mut Proto) {
                $(
                    let kind = forms!(@kind proto $($codec)?);
                    let line = Line {
                        docs: &[$($doc),*],
                        field: $field,
                        name: stringify!($name),
                        since: message!(@since $($since)?),
                    };
                    proto.field(line, kind);
                )*
            }
        }
    };
    (@pattern $type:ident $form:ident $value:ident) => { $type::$form };
    (@pattern $type:ident $form:ident $value:ident $codec:expr) => { $type::$form($value) };
    (@write $field:literal $value:ident $out:ident) => { $out.number($field, 1) };
    (@write $field:literal $value:ident $out:ident $codec:expr) => {
        ($codec).write($field, $value, $out)
    };
    (@read $type:ident $form:ident $raw:ident) => {{ $raw.number()?; $type::$form }};
    (@read $type:ident $form:ident $raw:ident $codec:expr) => {
        $type::$form(($codec).read($raw)?.into())
    };
    (@kind $proto:ident) => { "bool" };
    (@kind $proto:ident $codec:expr) => { ($codec).kind($proto) };
}

/// Names the variants of enums whose numbers are their form on the wire, and the schema that a
/// variant came with where older proxies must not ignore it.
macro_rules! choices {
    ($($type:ident { $($variant:ident $(since $since:literal)?),* })*) => {
        $(
            impl Choice for $type {
                const ALL: &'static [$type] = &[$($type::$variant),*];

                fn number(self) -> u32 {
                    self as u32
                }

                fn since(self) -> u32 {
                    match self {
                        $($type::$variant => message!(@since $($since)?),)*
                    }
                }
            }
        )*
    };
}
