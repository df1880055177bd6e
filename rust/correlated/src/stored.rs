//! Converts the state of a fit to bytes and back, so that a fit can continue after an interruption.
//!
//! Numbers are stored in little-endian order. Lists start with their length. There are no names and no types, so
//! only the version of the library that wrote the bytes can read them.

use crate::wide::Wide;
use manylabel_base::{Error, extend, push, reserved};
use std::collections::VecDeque;

/// Name of the bytes and of the numbers read from them in error messages about memory.
const STATE: &str = "the state of the fit";

/// A type that can be converted to bytes and back.
pub(crate) trait Stored: Sized {
    /// Appends the bytes of the value to `out`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error>;

    /// Reads a value from the start of `from`. `from` then starts after this value.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the bytes are not those of such a value. Returns [`Error::TooLarge`] if there is
    /// not enough memory.
    fn read(from: &mut &[u8]) -> Result<Self, Error>;
}

/// Returns the error for bytes that [`Stored::write`] has not written.
pub(crate) fn damaged() -> Error {
    Error::Param {
        name: "checkpoint",
        expected: "a folder with files of the same fit",
        got: "a file that is damaged or belongs to another fit".into(),
    }
}

/// Implements [`Stored`] for a struct, field by field. The generic parameters are in brackets.
macro_rules! stored {
    ([$($generics:tt)*] $name:ty { $($field:ident),* }) => {
        impl<$($generics)*> $crate::stored::Stored for $name {
            fn write(&self, out: &mut Vec<u8>) -> Result<(), manylabel_base::Error> {
                $($crate::stored::Stored::write(&self.$field, out)?;)*
                Ok(())
            }

            fn read(from: &mut &[u8]) -> Result<Self, manylabel_base::Error> {
                Ok(Self { $($field: $crate::stored::Stored::read(from)?),* })
            }
        }
    };
}
pub(crate) use stored;

/// Implements [`Stored`] for an enum. Each variant has a number, and its fields are in parentheses.
macro_rules! stored_variants {
    (
        [$($generics:tt)*] $name:ty {
            $($tag:literal $variant:ident $(($($field:ident),*))?,)*
        }
    ) => {
        impl<$($generics)*> $crate::stored::Stored for $name {
            fn write(&self, out: &mut Vec<u8>) -> Result<(), manylabel_base::Error> {
                match self {
                    $(Self::$variant $(($($field),*))? => {
                        $crate::stored::Stored::write(&$tag, out)?;
                        $($($crate::stored::Stored::write($field, out)?;)*)?
                    })*
                }
                Ok(())
            }

            fn read(from: &mut &[u8]) -> Result<Self, manylabel_base::Error> {
                match <u8 as $crate::stored::Stored>::read(from)? {
                    $($tag => {
                        $($(let $field = $crate::stored::Stored::read(from)?;)*)?
                        Ok(Self::$variant $(($($field),*))?)
                    })*
                    _ => Err($crate::stored::damaged()),
                }
            }
        }
    };
}
pub(crate) use stored_variants;

/// Implements [`Stored`] for numbers.
macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
                extend(STATE, out, self.to_le_bytes())
            }

            fn read(from: &mut &[u8]) -> Result<Self, Error> {
                let (bytes, rest) = from.split_first_chunk().ok_or_else(damaged)?;
                *from = rest;
                Ok(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}
numbers!(u8, u32, u64, f32, f64);

impl Stored for usize {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        (*self as u64).write(out)
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        Self::try_from(u64::read(from)?).map_err(|_| damaged())
    }
}

impl Stored for bool {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        u8::from(*self).write(out)
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damaged()),
        }
    }
}

impl<T: Stored + Copy + Default, const N: usize> Stored for [T; N] {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.iter().try_for_each(|item| item.write(out))
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::read(from)?;
        }
        Ok(items)
    }
}

impl<T: Stored + Copy + Default, const N: usize> Stored for Wide<T, N> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.0.write(out)
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        Stored::read(from).map(Self)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.0.write(out)?;
        self.1.write(out)
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<T: Stored> Stored for Box<T> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        T::write(self, out)
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        T::read(from).map(Self::new)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.is_some().write(out)?;
        self.iter().try_for_each(|value| value.write(out))
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        bool::read(from)?.then(|| T::read(from)).transpose()
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.len().write(out)?;
        self.iter().try_for_each(|item| item.write(out))
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        let n = usize::read(from)?;
        if n > from.len() {
            return Err(damaged()); // an item has at least one byte
        }
        let mut items = reserved(STATE, n)?;
        for _ in 0..n {
            push(STATE, &mut items, T::read(from)?)?;
        }
        Ok(items)
    }
}

impl<T: Stored> Stored for VecDeque<T> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.len().write(out)?;
        self.iter().try_for_each(|item| item.write(out))
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        Vec::read(from).map(Self::from)
    }
}

/// Overwrites numbers with numbers from the start of `from`, which [`write_all`] has written.
///
/// # Errors
///
/// Returns [`Error::Param`] if there are too few bytes.
pub(crate) fn read_all<T: Stored>(from: &mut &[u8], numbers: &mut [T]) -> Result<(), Error> {
    for number in numbers {
        *number = T::read(from)?;
    }
    Ok(())
}

/// Appends the bytes of numbers to `out`, without their count.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(crate) fn write_all<T: Stored>(numbers: &[T], out: &mut Vec<u8>) -> Result<(), Error> {
    numbers.iter().try_for_each(|number| number.write(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Value = (Vec<(u32, Option<f32>)>, ([f64; 2], bool));

    #[test]
    fn values_are_read_as_they_were_written_and_damage_is_an_error() {
        let value = (
            vec![(1u32, Some(-0.0f32)), (7, None)],
            ([1.5f64, f64::NAN], true),
        );
        let mut bytes = Vec::new();
        value.write(&mut bytes).expect("fits");
        let mut from = &bytes[..];
        let got = Value::read(&mut from).expect("whole");
        assert!(from.is_empty());
        let mut again = Vec::new();
        got.write(&mut again).expect("fits");
        assert_eq!(again, bytes);
        for end in 0..bytes.len() {
            assert!(Value::read(&mut &bytes[..end]).is_err());
        }
        bytes[0] = 0xff; // the length of the list
        bytes[7] = 0xff;
        assert!(Value::read(&mut &bytes[..]).is_err());
    }
}
