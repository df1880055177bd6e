//! Converts decimal text to numbers and numbers to decimal text.
//!
//! The two conversions are exact. Reading rounds correctly to `f32` or `f64`. Writing produces the
//! shortest decimal that reads back as the same value.
//!
//! Reading is fast for short decimals, which are the usual content of data files. The code loads eight bytes
//! at a time and converts up to eight digits by three multiplications. For a decimal `w · 10⁻ᵏ` with w ≤ 2⁵³
//! and k ≤ 22, the two numbers w and 10ᵏ are exact in `f64`. A single division then gives the correctly
//! rounded result (Clinger, *How to read floating point numbers accurately*, PLDI 1990). `fast_float2`
//! converts all other numbers. Writing uses the digits that `ryu` computes, and chooses the shorter of the
//! layouts with and without an exponent.
//!
//! The functions may read up to eight bytes after the text. Blocks of a file have eight bytes of padding for
//! this purpose.

use manylabel_sparse::Value;
use std::io::Write;

/// The powers of ten that are exact in `f64`.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The powers of ten that are exact in `f32`.
const SINGLE_POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// The powers of ten that fit in `u64`.
const INTEGER_POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// The value type of a feature matrix: `f32` or `f64`.
pub trait Real: Value + Default + PartialEq + From<u8> + fast_float2::FastFloat {
    /// Describes a finite number of this type, for error messages.
    const FINITE: &'static str;
    /// The value that represents a missing value: NaN.
    const MISSING: Self;

    /// Returns `mantissa · 10^−places`, correctly rounded. Returns `None` if a single division is not
    /// enough.
    fn from_decimal(mantissa: u64, places: usize) -> Option<Self>;

    /// Returns the shortest digits that read back as the same value, in the layout of `ryu`. The value
    /// must be finite.
    fn shortest(self, buffer: &mut ryu::Buffer) -> &str;
}

impl Real for f32 {
    const FINITE: &'static str = "a finite number in the range of 32-bit floats";
    const MISSING: Self = f32::NAN;

    #[inline]
    fn from_decimal(mantissa: u64, places: usize) -> Option<Self> {
        const BELOW_SINGLE: u64 = (1 << 29) - 1;
        if mantissa <= 1 << 24 && places < SINGLE_POWERS.len() {
            return Some(mantissa as f32 / SINGLE_POWERS[places]);
        }
        // Rounding to `f64` first gives the same result, unless the `f64` is halfway between two `f32`
        // numbers. No quotient here is so small that it is subnormal in `f32`, or so large that it
        // overflows.
        let quotient = f64::from_decimal(mantissa, places)?;
        (quotient.to_bits() & BELOW_SINGLE != 1 << 28).then_some(quotient as f32)
    }

    fn shortest(self, buffer: &mut ryu::Buffer) -> &str {
        buffer.format_finite(self)
    }
}

impl Real for f64 {
    const FINITE: &'static str = "a finite number in the range of 64-bit floats";
    const MISSING: Self = f64::NAN;

    #[inline]
    fn from_decimal(mantissa: u64, places: usize) -> Option<Self> {
        (mantissa <= 1 << 53 && places < POWERS.len()).then(|| mantissa as f64 / POWERS[places])
    }

    fn shortest(self, buffer: &mut ryu::Buffer) -> &str {
        buffer.format_finite(self)
    }
}

/// Reads the digits at `at`. Returns their value, which is at most `u64::MAX`, and the position after
/// them. If there are no digits, the position is `at`.
///
/// # Panics
///
/// Panics unless eight bytes follow the last digit.
#[inline]
pub(crate) fn digits(text: &[u8], at: usize) -> (u64, usize) {
    let (first, count) = up_to_eight_digits(text, at);
    if count < 8 {
        return (first, at + count);
    }
    let (mut value, mut at) = (first, at + 8);
    loop {
        let (more, count) = up_to_eight_digits(text, at);
        value = value
            .saturating_mul(10u64.pow(count as u32))
            .saturating_add(more);
        at += count;
        if count < 8 {
            return (value, at);
        }
    }
}

/// Reads up to eight digits at `at`. Returns their value and the number of digits.
///
/// # Panics
///
/// Panics unless at least eight bytes start at `at`.
#[inline]
fn up_to_eight_digits(text: &[u8], at: usize) -> (u64, usize) {
    let word = u64::from_le_bytes(text[at..at + 8].try_into().expect("eight bytes"));
    // The byte of a digit becomes the value of the digit. Adding 0x76 sets the high bit of every other
    // byte.
    let values = word ^ 0x3030_3030_3030_3030;
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // The digits move to the high bytes, and zeros fill the low bytes. In little-endian order, these zeros
    // are leading zeros. Then neighbouring digits are combined into pairs, and the pairs are combined into
    // the number.
    let padded = values << (64 - 8 * count);
    let pairs = padded.wrapping_mul(10).wrapping_add(padded >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    (low.wrapping_add(high) >> 32, count)
}

/// Reads the decimal number at `at`. Returns the number and the position after it. Returns `None` if
/// there is no number, or if the number is not finite in `V`.
///
/// Signs, exponents and a missing integer or fraction part are accepted as in Python's `float`. The
/// words "inf" and "nan" and underscores between digits are not accepted.
///
/// # Panics
///
/// Panics unless eight bytes follow the number.
#[inline]
pub(crate) fn decimal<V: Real>(text: &[u8], at: usize) -> Option<(V, usize)> {
    // Most values begin with one digit and a point.
    let (whole, point) = match (text[at], text[at + 1]) {
        (digit @ b'0'..=b'9', b'.') => (u64::from(digit - b'0'), at + 1),
        _ => digits(text, at),
    };
    let (mut mantissa, mut end, mut places) = (whole, point, 0);
    if text[point] == b'.' {
        let (fraction, behind) = digits(text, point + 1);
        places = behind - point - 1;
        let shift = INTEGER_POWERS.get(places).copied().unwrap_or(u64::MAX);
        mantissa = whole.saturating_mul(shift).saturating_add(fraction);
        end = behind;
    }
    // `unusual` reads signs, exponents and text without digits. Saturated values are out of the range
    // of `from_decimal`.
    let plain =
        end > at && end - at > usize::from(end > point) && !matches!(text[end], b'e' | b'E');
    if plain && let Some(value) = V::from_decimal(mantissa, places) {
        return Some((value, end));
    }
    unusual(text, at)
}

/// Reads a decimal number of any form, correctly rounded. This function is slower than the method for short
/// decimals.
#[cold]
fn unusual<V: Real>(text: &[u8], at: usize) -> Option<(V, usize)> {
    let (value, length) = fast_float2::parse_partial::<V, _>(&text[at..]).ok()?;
    value.f64().is_finite().then_some((value, at + length))
}

/// Appends the shortest decimal that reads back as the same `V`. The value must be finite.
///
/// Whole numbers below 10¹⁶ are written as integers. Other numbers have one of the layouts 0.00012 and
/// 1.2e-04. The shorter of the two layouts is used. If the lengths are equal, the first layout is used. At
/// most 24 bytes are written, for example for -2.2250738585072014e-308.
pub(crate) fn push_decimal<V: Real>(value: V, out: &mut Vec<u8>) {
    let wide = value.f64();
    let size = wide.abs();
    if wide.fract() == 0.0 && size < 1e16 {
        // Writing to a vector cannot fail, here and below.
        let _ = write!(out, "{}", wide as i64);
        return;
    }
    let mut buffer = ryu::Buffer::new();
    let shortest = value.shortest(&mut buffer);
    if (1e-3..1e16).contains(&size) {
        let _ = out.write_all(shortest.as_bytes());
    } else {
        push_very_small_or_large(shortest, out);
    }
}

/// Appends a number below 0.001 or from 10¹⁶ on, in the layout that [`push_decimal`] describes. `shortest`
/// is the number as `ryu` writes it. The layouts differ: `ryu` writes 2e-05 as "0.00002" and 1.5e-07 as
/// "1.5e-7".
fn push_very_small_or_large(shortest: &str, out: &mut Vec<u8>) {
    let unsigned = shortest.trim_start_matches('-');
    let (number, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let (first, others) = all.trim_matches('0').split_at(1);
    let exponent = exponent.parse::<i64>().unwrap_or(0) + whole.len() as i64 - 1 - leading as i64;
    // Only numbers with the exponent -4 and several digits are as short without an exponent. An example is
    // 0.00012.
    if exponent == -4 && !others.is_empty() {
        let _ = out.write_all(shortest.as_bytes());
        return;
    }
    let sign = if shortest.starts_with('-') { "-" } else { "" };
    let point = if others.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    let _ = write!(
        out,
        "{sign}{first}{point}{others}e{direction}{:02}",
        exponent.abs()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a number that is followed by a blank.
    fn read<V: Real>(text: &str) -> Option<(V, usize)> {
        decimal(format!("{text} \0\0\0\0\0\0\0\0").as_bytes(), 0)
    }

    /// Returns the text that is written for a number.
    fn written<V: Real>(value: V) -> String {
        let mut out = Vec::new();
        push_decimal(value, &mut out);
        String::from_utf8(out).expect("digits are ASCII")
    }

    #[test]
    fn layout_is_the_shorter_one() {
        let singles = [
            0.1,
            1e-3,
            0.001_2,
            1e-4,
            1.2e-4,
            9.3e-5,
            -6.854_009_4e-6,
            1e15,
            1e16,
            3.4e38,
            1e-45,
            -2.0,
            16_777_216.0,
            0.0,
        ];
        let expected = "0.1 0.001 0.0012 1e-04 0.00012 9.3e-05 -6.8540094e-06 999999986991104 1e+16 3.4e+38 1e-45 -2 16777216 0";
        assert_eq!(singles.map(written::<f32>).join(" "), expected);
        let doubles = [0.1, 1.0 / 3.0, 1e22, 1.5e-7, 123_456_789.25, 1e-100, 5e-324];
        let expected = "0.1 0.3333333333333333 1e+22 1.5e-07 123456789.25 1e-100 5e-324";
        assert_eq!(doubles.map(written::<f64>).join(" "), expected);
    }

    #[test]
    fn what_is_no_finite_number_is_refused() {
        for text in [
            "", ".", "-", "+", "nan", "inf", "-inf", "infinity", "1e999", "e5", "-.", ":1", "x",
        ] {
            assert_eq!(read::<f64>(text), None, "{text}");
        }
        assert_eq!(read::<f32>("1e39"), None);
        assert_eq!(read::<f64>("1e39"), Some((1e39, 4)));
        assert_eq!(read::<f32>("1_000"), Some((1.0, 1)));
    }

    proptest! {
        #[test]
        fn every_decimal_is_rounded_correctly(
            text in "[-+]?([0-9]{1,25}(\\.[0-9]{0,25})?|\\.[0-9]{1,25})([eE][-+]?[0-9]{1,2})?"
        ) {
            let wanted = text.parse::<f64>().expect("a number");
            prop_assert_eq!(read::<f64>(&text), Some((wanted, text.len())));
            let wanted = text.parse::<f32>().expect("a number");
            prop_assert_eq!(read::<f32>(&text), wanted.is_finite().then_some((wanted, text.len())));
        }

        // These numbers are at or near the midpoint of two `f32` numbers. For some of them, rounding to `f64`
        // and then to `f32` gives a wrong result.
        #[test]
        fn halfway_between_singles(bits in 0x3000_0000u32..0x4c00_0000, more in -1i64..2) {
            let half = f64::from(f32::from_bits(bits)).midpoint(f64::from(f32::from_bits(bits + 1)));
            let text = format!("{:.17}", f64::from_bits((half.to_bits() as i64 + more) as u64));
            let wanted = text.parse::<f32>().expect("a number");
            prop_assert_eq!(read::<f32>(&text), Some((wanted, text.len())));
        }

        #[test]
        fn writing_and_reading_returns_the_same(bits in any::<u64>()) {
            let double = f64::from_bits(bits);
            if double.is_finite() {
                let text = written(double);
                prop_assert_eq!(read::<f64>(&text), Some((double, text.len())));
                prop_assert!(text.len() <= 24);
            }
            let single = f32::from_bits(bits as u32);
            if single.is_finite() {
                let text = written(single);
                prop_assert_eq!(read::<f32>(&text), Some((single, text.len())));
            }
        }

        #[test]
        fn digits_saturate(text in "[0-9]{0,30}") {
            let (value, end) = digits(format!("{text}:\0\0\0\0\0\0\0\0").as_bytes(), 0);
            prop_assert_eq!(end, text.len());
            let wanted = if text.is_empty() { 0 } else { text.parse::<u128>().expect("digits") };
            prop_assert_eq!(u128::from(value), wanted.min(u128::from(u64::MAX)));
        }
    }
}
