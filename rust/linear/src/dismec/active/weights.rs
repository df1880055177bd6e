//! Stores the weights of a label and reads the rows of its working set.
//!
//! The working set of most labels has a few hundred rows, which have entries in few of the features. *Compact*
//! weights belong only to these features, in the order in which the features first occur in the rows. The rows are
//! copied, and the numbers of features are replaced by positions in this list. So coordinate descent reads a few
//! kilobytes again and again, which stay in the first two levels of the cache. Weights for all features would be
//! spread over much more memory.
//!
//! *Full* weights belong to all features, and rows are read from X. A label has full weights if its working set has
//! more entries than X has features, or if it has unknown rows, because the mean row of its known rows has all features.
//! A label keeps full weights until its fit ends.

use manylabel_base::{Error, extend, filled, push};
use manylabel_simd::{add_scaled, total, wide};
use manylabel_sparse::CsrRef;

/// Marks features that are not in the list of a label.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Name of growing vectors in error messages about memory.
const ENTRIES: &str = "number of entries of the working set";

/// The weights of one label. They are sums of rows of the working set.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// The weight of each feature in `features`, or of all features.
    values: Vec<f32>,
    /// The features of compact weights. Empty if weights are full.
    features: Vec<u32>,
    /// The rows of the working set.
    rows: Rows,
}

/// The rows of a working set. They are copied if weights are compact, and are those of X otherwise.
#[derive(Debug, Default)]
struct Rows {
    /// Whether all features have a weight.
    is_full: bool,
    /// For compact weights, the range of each row of the working set in `cols` and `entries`.
    spans: Vec<(usize, usize)>,
    /// Positions in [`Weights::features`].
    cols: Vec<u32>,
    /// The values of the rows.
    entries: Vec<f32>,
}

impl Rows {
    /// Returns the row at a position of the working set, as positions in [`Weights::values`] and values. `row` is
    /// the number of this row in X.
    #[inline]
    fn get<'a>(&'a self, x: CsrRef<'a>, at: usize, row: u32) -> (&'a [u32], &'a [f32]) {
        if self.is_full {
            return x.row(row as usize);
        }
        let (begin, end) = self.spans[at];
        (&self.cols[begin..end], &self.entries[begin..end])
    }
}

impl Weights {
    /// Removes all rows. The weights are compact, and there are none.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.features.clear();
        self.rows.spans.clear();
        self.rows.cols.clear();
        self.rows.entries.clear();
        self.rows.is_full = false;
    }

    /// Adds a row to the rows that can be read. Features that did not occur before get the weight 0. `place` has the
    /// position of each feature in the list of the label, or [`NOWHERE`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn take_in(
        &mut self,
        x: CsrRef<'_>,
        row: u32,
        place: &mut [u32],
    ) -> Result<(), Error> {
        if self.rows.is_full {
            return Ok(());
        }
        let (cols, values) = x.row(row as usize);
        let begin = self.rows.cols.len();
        if begin + cols.len() > x.n_cols() {
            self.unmount(place);
            return self.fill_up(x.n_cols());
        }
        for &feature in cols {
            let place = &mut place[feature as usize];
            if *place == NOWHERE {
                *place = self.features.len() as u32;
                push(ENTRIES, &mut self.features, feature)?;
                push(ENTRIES, &mut self.values, 0.0)?;
            }
        }
        let places = cols.iter().map(|&feature| place[feature as usize]);
        extend(ENTRIES, &mut self.rows.cols, places)?;
        extend(ENTRIES, &mut self.rows.entries, values.iter().copied())?;
        push(ENTRIES, &mut self.rows.spans, (begin, self.rows.cols.len()))
    }

    /// Makes the weights full.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn fill_up(&mut self, dim: usize) -> Result<(), Error> {
        let mut full = filled("number of features", 0.0, dim)?;
        self.add_to(&mut full);
        *self = Self {
            values: full,
            rows: Rows {
                is_full: true,
                ..Rows::default()
            },
            ..Self::default()
        };
        Ok(())
    }

    /// Writes the position of each feature of compact weights to `place`.
    pub(super) fn mount(&self, place: &mut [u32]) {
        for (at, &feature) in (0..).zip(&self.features) {
            place[feature as usize] = at;
        }
    }

    /// Writes [`NOWHERE`] to `place` for each feature of compact weights.
    pub(super) fn unmount(&self, place: &mut [u32]) {
        for &feature in &self.features {
            place[feature as usize] = NOWHERE;
        }
    }

    /// Returns the dot product of the weights and the row at a position of the working set.
    #[inline]
    pub(super) fn dot(&self, x: CsrRef<'_>, at: usize, row: u32) -> f32 {
        let (cols, values) = self.rows.get(x, at, row);
        if self.rows.is_full {
            return row_dot((cols, values), &self.values);
        }
        sparse_dot(cols, values, &self.values)
    }

    /// Adds `scale` times the row at a position of the working set to the weights.
    #[inline]
    pub(super) fn add_row(&mut self, x: CsrRef<'_>, at: usize, row: u32, scale: f32) {
        let (cols, values) = self.rows.get(x, at, row);
        if self.rows.is_full && cols.len() == self.values.len() {
            return add_dense(scale, values, &mut self.values);
        }
        for (&col, &value) in cols.iter().zip(values) {
            self.values[col as usize] += scale * value;
        }
    }

    /// Moves the row at position `from` to the position `to`, which is not larger.
    pub(super) fn move_row(&mut self, from: usize, to: usize) {
        if !self.rows.is_full {
            self.rows.spans[to] = self.rows.spans[from];
        }
    }

    /// Drops the rows from position `n_rows` on.
    pub(super) fn truncate(&mut self, n_rows: usize) {
        self.rows.spans.truncate(n_rows);
    }

    /// Returns the weights of all features, or `None` if they are compact.
    pub(super) fn full(&self) -> Option<&[f32]> {
        self.rows.is_full.then_some(&self.values[..])
    }

    /// Adds `scale` times a vector over all features to full weights.
    pub(super) fn shift(&mut self, scale: f32, by: &[f32]) {
        debug_assert!(
            self.rows.is_full,
            "the positions of compact weights are not features"
        );
        for (value, by) in self.values.iter_mut().zip(by) {
            *value += scale * by;
        }
    }

    /// Returns the features of compact weights and their weights.
    pub(super) fn listed(&self) -> impl Iterator<Item = (u32, f32)> {
        let features = self.features.iter().copied();
        features.zip(self.values.iter().copied())
    }

    /// Adds compact weights to a vector over all features.
    pub(super) fn add_to(&self, full: &mut [f32]) {
        for (feature, weight) in self.listed() {
            full[feature as usize] += weight;
        }
    }

    /// Writes 0 to a vector over all features, for each feature of compact weights.
    pub(super) fn clear_from(&self, full: &mut [f32]) {
        for &feature in &self.features {
            full[feature as usize] = 0.0;
        }
    }
}

/// Returns the dot product of a row of X and the weights of all features. The columns of the row are sorted and unique.
#[inline]
pub(super) fn row_dot((cols, values): (&[u32], &[f32]), w: &[f32]) -> f32 {
    if cols.len() == w.len() {
        return dense_dot(values, w);
    }
    sparse_dot(cols, values, w)
}

/// Returns the dot product of two arrays, with thirty-two partial sums. They fill four registers of AVX2, so that no
/// addition waits for the previous addition.
#[wide]
fn dense_dot(a: &[f32], b: &[f32]) -> f32 {
    const SUMS: usize = 32;
    let mut sums = [0.0f32; SUMS];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum += a * b;
    }
    total(&sums)
}

/// Adds `scale` times a row to the weights.
#[wide]
fn add_dense(scale: f32, row: &[f32], w: &mut [f32]) {
    add_scaled(w, scale, row);
}

/// Returns `Σ_j values_j w[cols_j]`. Four partial sums are used, so that no addition waits for the
/// previous addition.
#[inline]
pub(super) fn sparse_dot(cols: &[u32], values: &[f32], w: &[f32]) -> f32 {
    let (mut a, mut b, mut c, mut d) = (0.0f32, 0.0f32, 0.0f32, 0.0f32);
    let (cols4, values4) = (cols.chunks_exact(4), values.chunks_exact(4));
    for (&col, &value) in cols4.remainder().iter().zip(values4.remainder()) {
        a += value * w[col as usize];
    }
    for (col, value) in cols4.zip(values4) {
        a += value[0] * w[col[0] as usize];
        b += value[1] * w[col[1] as usize];
        c += value[2] * w[col[2] as usize];
        d += value[3] * w[col[3] as usize];
    }
    (a + b) + (c + d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_all_features_have_the_same_products() {
        for n in [1, 31, 32, 100] {
            let cols: Vec<u32> = (0..n).collect();
            // Small integers, so that all sums are exact.
            let row: Vec<f32> = (0..n).map(|at| (at % 7) as f32 - 3.0).collect();
            let mut w: Vec<f32> = (0..n).map(|at| (at % 5) as f32 - 1.0).collect();
            let expected: f32 = row.iter().zip(&w).map(|(a, b)| a * b).sum();
            assert_eq!(row_dot((&cols, &row), &w).to_bits(), expected.to_bits());
            // A longer vector of weights has features that the row does not have.
            w.push(9.0);
            assert_eq!(row_dot((&cols, &row), &w).to_bits(), expected.to_bits());
            let before = w.clone();
            add_dense(2.0, &row, &mut w[..n as usize]);
            for (at, (after, before)) in w.iter().zip(&before).enumerate() {
                let change = row.get(at).map_or(0.0, |value| 2.0 * value);
                assert_eq!(after.to_bits(), (before + change).to_bits());
            }
        }
    }
}
