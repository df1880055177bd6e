//! Stores weights in fewer bytes: as 16-bit floats, or as 8-bit integers with a scale for each output.
//!
//! A fit computes weights as `f32` and sends rows through the tree with these weights. The weights are
//! converted when the fit ends. A prediction reads the converted weights and widens them one by one. It never
//! makes an array of wider weights.
//!
//! The error of a converted weight w is bounded:
//!
//! | stored as | bytes | error |
//! |---|---|---|
//! | `f32` | 4 | 0 |
//! | 16-bit float | 2 | at most \|w\| · 2⁻¹¹ or 2⁻²⁵, whichever is larger |
//! | 8-bit integer | 1 | at most half the scale of its output |
//!
//! 16-bit floats have the format binary16 of IEEE 754 and are stored as `u16`. An 8-bit integer q stands for
//! the weight q × scale. The scale of an output is its largest absolute weight divided by 127.

use crate::model::Model;
use crate::params::Precision;
use manylabel_base::range::ensure;
use manylabel_base::{Error, collected, copied, filled, reserved};
use manylabel_sparse::from_half;
use std::ops::Range;

/// The name of the weights in error messages.
const WEIGHTS: &str = "number of weights";

/// The largest finite 16-bit float.
const MOST_HALF: f32 = 65504.0;

/// The largest absolute value of an 8-bit integer that stands for a weight.
const MOST_CODE: f32 = 127.0;

/// The weights of all chunks, or of one chunk, feature after feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Weights<'a> {
    /// The weights themselves.
    Float32(&'a [f32]),
    /// The bits of 16-bit floats.
    Float16(&'a [u16]),
    /// Integers, which are multiplied by the scales of their outputs.
    Int8(&'a [i8]),
}

impl Weights<'_> {
    /// Returns the number of weights.
    pub fn len(&self) -> usize {
        match self {
            Self::Float32(weights) => weights.len(),
            Self::Float16(weights) => weights.len(),
            Self::Int8(weights) => weights.len(),
        }
    }

    /// Returns true if there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how the weights are stored.
    pub(crate) fn precision(&self) -> Precision {
        match self {
            Self::Float32(_) => Precision::Float32,
            Self::Float16(_) => Precision::Float16,
            Self::Int8(_) => Precision::Int8,
        }
    }

    /// Returns a copy of the weights as `f32`. 8-bit weights are not multiplied by their scales.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn unscaled(&self) -> Result<Vec<f32>, Error> {
        match self {
            Self::Float32(weights) => copied(WEIGHTS, weights),
            Self::Float16(halves) => collected(WEIGHTS, halves.iter().map(|&half| from_half(half))),
            Self::Int8(codes) => collected(WEIGHTS, codes.iter().map(|&code| f32::from(code))),
        }
    }

    /// Returns the weights at the positions in `range`.
    #[inline]
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::Float32(weights) => Self::Float32(&weights[range]),
            Self::Float16(weights) => Self::Float16(&weights[range]),
            Self::Int8(weights) => Self::Int8(&weights[range]),
        }
    }
}

/// The owned form of [`Weights`].
#[derive(Debug, Clone, PartialEq)]
pub enum WeightsOwned {
    /// The weights themselves.
    Float32(Vec<f32>),
    /// The bits of 16-bit floats.
    Float16(Vec<u16>),
    /// Integers, which are multiplied by the scales of their outputs.
    Int8(Vec<i8>),
}

impl WeightsOwned {
    /// Borrows the weights.
    pub fn view(&self) -> Weights<'_> {
        match self {
            Self::Float32(weights) => Weights::Float32(weights),
            Self::Float16(weights) => Weights::Float16(weights),
            Self::Int8(weights) => Weights::Int8(weights),
        }
    }
}

/// Returns the bits of the 16-bit float that is closest to `weight`. If two are equally close, the one with an
/// even last digit is returned. The absolute value of `weight` must be at most 65504.
pub(crate) fn to_half(weight: f32) -> u16 {
    /// The lowest normal number has the exponent −14. Below, numbers are multiples of 2⁻²⁴.
    const LOWEST_NORMAL: f32 = 1.0 / 16384.0;
    const STEPS: f32 = 16_777_216.0;
    let sign = (weight.to_bits() >> 16) as u16 & 0x8000;
    let size = weight.abs();
    let half = if size < LOWEST_NORMAL {
        (size * STEPS).round_ties_even() as u32
    } else {
        // Adds half of the last remaining digit, or slightly less if this digit is even. A carry goes to the
        // exponent.
        let bits = size.to_bits();
        ((bits + 0xFFF + ((bits >> 13) & 1)) >> 13) - ((127 - 15) << 10)
    };
    sign | half as u16
}

/// Returns the scale of an output with this largest absolute weight.
pub(crate) fn scale_of(largest: f32) -> f32 {
    if largest == 0.0 {
        0.0
    } else {
        // Subnormal scales would have few digits, and the largest weight would not fit.
        (largest / MOST_CODE).max(f32::MIN_POSITIVE)
    }
}

/// Returns the integer that stands for a weight of an output with this scale.
pub(crate) fn to_code(weight: f32, scale: f32) -> i8 {
    if scale == 0.0 {
        return 0;
    }
    (weight / scale).round().clamp(-MOST_CODE, MOST_CODE) as i8
}

impl Precision {
    /// Checks that weights can be stored.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a weight is too large for a 16-bit float.
    pub(crate) fn check(self, weights: &[f32]) -> Result<(), Error> {
        if self != Self::Float16 {
            return Ok(());
        }
        let largest = largest(weights.iter().copied());
        ensure(
            "weights",
            largest <= MOST_HALF,
            "\"float32\" or \"int8\" in `fit`, because float16 has no numbers above 65504",
            format_args!("\"float16\" and a fitted weight with the absolute value {largest}"),
        )
    }

    /// Rounds the weights of an output to numbers that can be stored exactly, and returns their scale.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a weight is too large for a 16-bit float.
    pub(crate) fn round(self, weights: &mut [f32]) -> Result<f32, Error> {
        self.check(weights)?;
        match self {
            Self::Float32 => Ok(1.0),
            Self::Float16 => {
                for weight in weights {
                    *weight = from_half(to_half(*weight));
                }
                Ok(1.0)
            }
            Self::Int8 => {
                let scale = scale_of(largest(weights.iter().copied()));
                for weight in weights {
                    *weight = f32::from(to_code(*weight, scale));
                }
                Ok(scale)
            }
        }
    }
}

/// Returns the largest absolute value, or 0 if there are no values.
fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.map(f32::abs).fold(0.0, f32::max)
}

impl Model {
    /// Converts the weights of a model with `f32` weights. [`Precision::check`] must have accepted the weights.
    /// Weights that become 0 are removed, except in complete chunks.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn narrow(&mut self, precision: Precision) -> Result<(), Error> {
        let WeightsOwned::Float32(weights) = &mut self.weights else {
            return Ok(());
        };
        let weights = std::mem::take(weights);
        self.weights = match precision {
            Precision::Float32 => WeightsOwned::Float32(weights),
            Precision::Float16 => {
                let is_zero = |half: &u16| half << 1 == 0; // of either sign
                let halves = self.converted(&weights, |_, weight| to_half(weight), is_zero)?;
                WeightsOwned::Float16(halves)
            }
            Precision::Int8 => {
                let scales = self.scales(&weights)?;
                let to_code = |output: usize, weight| to_code(weight, scales[output]);
                let codes = self.converted(&weights, to_code, |&code| code == 0)?;
                let (of_nodes, of_labels) = scales.split_at(self.node_intercept.len());
                self.node_scale = copied("number of nodes", of_nodes)?;
                self.label_scale = copied("number of labels", of_labels)?;
                WeightsOwned::Int8(codes)
            }
        };
        Ok(())
    }

    /// Converts `f32` weights that can be stored exactly, such as those that [`Precision::round`] rounded. The
    /// scales must be known already.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn pack(&mut self, precision: Precision) -> Result<(), Error> {
        let WeightsOwned::Float32(weights) = &self.weights else {
            return Ok(());
        };
        let weights = weights.iter().copied();
        self.weights = match precision {
            Precision::Float32 => return Ok(()),
            Precision::Float16 => WeightsOwned::Float16(collected(WEIGHTS, weights.map(to_half))?),
            Precision::Int8 => {
                WeightsOwned::Int8(collected(WEIGHTS, weights.map(|code| code as i8))?)
            }
        };
        Ok(())
    }

    /// Returns the position of the first output of a node in a list of all nodes, followed by the labels of
    /// all leaves.
    fn first_output(&self, node: usize) -> usize {
        if self.children[node] < self.children[node + 1] {
            self.children[node] as usize
        } else {
            self.node_intercept.len() + self.label_ends[node] as usize
        }
    }

    /// Returns the scale of each node, and then of each label of each leaf.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn scales(&self, weights: &[f32]) -> Result<Vec<f32>, Error> {
        let n_outputs = self.node_intercept.len() + self.label_intercept.len();
        let mut scales = filled("number of outputs", 0.0f32, n_outputs)?;
        for node in 0..self.node_intercept.len() {
            let first = self.first_output(node);
            let range = self.weight_ends[node] as usize..self.weight_ends[node + 1] as usize;
            for (&output, &weight) in self.outputs[range.clone()].iter().zip(&weights[range]) {
                let largest = &mut scales[first + usize::from(output)];
                *largest = largest.max(weight.abs());
            }
        }
        for scale in &mut scales {
            *scale = scale_of(*scale);
        }
        Ok(scales)
    }

    /// Converts weights and removes those that become 0, except from complete chunks. `convert` gets the position
    /// of the output of a weight, as in [`first_output`](Self::first_output), and the weight. Features without
    /// weights stay in the hash tables.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn converted<T>(
        &mut self,
        weights: &[f32],
        convert: impl Fn(usize, f32) -> T,
        is_zero: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Error> {
        // The loop below replaces `weight_ends`.
        let n_nodes = self.node_intercept.len();
        let is_complete = |node| self.arrays().is_complete(node);
        let are_complete = collected("number of nodes", (0..n_nodes).map(is_complete))?;
        let mut kept = reserved(WEIGHTS, weights.len())?;
        // The first weight of the node, before zeros are removed.
        let mut begin = 0;
        for node in 0..self.node_intercept.len() {
            let (first, first_kept) = (self.first_output(node), kept.len());
            let features = self.feature_ends[node] as usize..self.feature_ends[node + 1] as usize;
            let is_complete = are_complete[node];
            let mut at = begin;
            for row_end in &mut self.row_ends[features] {
                for from in at..begin + *row_end as usize {
                    let output = self.outputs[from];
                    let converted = convert(first + usize::from(output), weights[from]);
                    if is_complete || !is_zero(&converted) {
                        self.outputs[kept.len()] = output;
                        kept.push(converted);
                    }
                }
                at = begin + *row_end as usize;
                *row_end = (kept.len() - first_kept) as u32;
            }
            begin = self.weight_ends[node + 1] as usize;
            self.weight_ends[node + 1] = kept.len() as i64;
        }
        self.outputs.truncate(kept.len());
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the value of a 16-bit float by its definition.
    fn defined(half: u16) -> f64 {
        let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from(half >> 10) & 31, f64::from(half & 1023));
        if exponent == 0 {
            sign * fraction * 2f64.powi(-24)
        } else {
            sign * (1024.0 + fraction) * 2f64.powi(exponent - 25)
        }
    }

    #[test]
    fn every_half_is_read_exactly_and_written_back() {
        for half in 0..=u16::MAX {
            let value = from_half(half);
            assert!(value.is_finite());
            let defined = defined(half);
            assert_eq!(f64::from(value).to_bits(), defined.to_bits(), "{half:#x}");
            if half & 0x7C00 != 0x7C00 {
                assert_eq!(to_half(value), half, "{half:#x}");
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_the_closest_and_ties_to_even() {
        for half in 0..0x7BFF_u16 {
            let (low, high) = (from_half(half), from_half(half + 1));
            let middle = low.midpoint(high);
            let even = half + (half & 1);
            assert_eq!(to_half(middle), even, "{half:#x}");
            assert_eq!(to_half(middle.next_down()), half, "{half:#x}");
            assert_eq!(to_half(middle.next_up()), half + 1, "{half:#x}");
            assert_eq!(to_half(-middle), even | 0x8000, "{half:#x}");
        }
    }

    #[test]
    fn codes_are_within_half_a_scale() {
        for largest in [1e-45, 1e-40, 3e-37, 0.3, 1.0, 7e20, f32::MAX] {
            let scale = scale_of(largest);
            assert!(scale.is_finite() && scale > 0.0);
            for step in -100i16..=100 {
                let weight = largest * (f32::from(step) / 100.0);
                let code = to_code(weight, scale);
                let error = f64::from(weight) - f64::from(code) * f64::from(scale);
                assert!(
                    error.abs() <= 0.500_02 * f64::from(scale),
                    "{weight} {largest}"
                );
            }
        }
        assert_eq!(to_code(0.0, scale_of(0.0)), 0);
    }

    #[test]
    fn large_weights_are_no_halves() {
        let largest = [1.0, -MOST_HALF];
        assert!(Precision::Float16.check(&largest).is_ok());
        let too_large = [1.0, -65505.0];
        assert!(Precision::Float16.check(&too_large).is_err());
        assert!(Precision::Float32.check(&too_large).is_ok());
        assert!(Precision::Int8.check(&too_large).is_ok());
    }
}
