//! Computes the number of components needed to explain a given fraction of the label covariance
//! `YᵀΩY`, where Ω holds the row weights.
//!
//! For small data sets, the authors of the label embedding Rembrandt choose the number of components k as
//! follows: k is the smallest number for which the sum of the k largest eigenvalues of `YᵀY` exceeds 90 % of
//! the sum of all eigenvalues. [`Checked::n_components`] computes k for any fraction, before a fit.

use crate::design::{Design, Rows, cross};
use crate::fit::rows_of;
use crate::gram::gram_of_features;
use crate::normal::normal;
use crate::tall::Tall;
use crate::{Checked, Components};
use faer::MatRef;
use manylabel_base::{Error, Watch};
use manylabel_dense::eigenvalues;
use manylabel_sparse::{ColumnOrder, CsrView, Index};

/// Maximum number of labels for which the label covariance is stored and decomposed. A covariance matrix of
/// 5000 labels takes 200 MB in double precision.
const MOST_DECOMPOSED: usize = 5000;

/// Number of columns of the first random matrix. Each further random matrix has twice as many
/// columns.
const FIRST_PROBE: usize = 128;
/// Number of columns of the last random matrix. If the user gives the number of components as a
/// fraction, at most this many components are returned.
const LAST_PROBE: usize = 1024;

impl Checked {
    /// Returns the number of components k for the labels Y with row weights.
    ///
    /// If the parameter `n_components` is a count, this count is returned. If the parameter is a fraction,
    /// the smallest sufficient k is returned. A number k is sufficient if the sum of the k largest
    /// eigenvalues of `YᵀΩY` exceeds this fraction of the sum of all eigenvalues.
    ///
    /// If at most 5000 labels occur in the rows, the result is exact. It is computed by a decomposition in
    /// O(c³) time for c labels. With more labels, the eigenvalues are estimated with random matrices of
    /// increasing width. No matrix of labels × labels is formed then. The estimates are lower bounds of the
    /// eigenvalues, so k may be slightly too large.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if there are more than 5000 labels and 1024 components do not reach the
    /// fraction, or if weighted sums are not finite. Returns [`Error::Shape`] if there is not one weight per
    /// row. Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub fn n_components<I: Index>(
        &self,
        y: CsrView<'_, I, f32>,
        sample_weight: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<usize, Error> {
        let share = match self.0.n_components {
            Components::Count(k) => return Ok(k),
            Components::Share(share) => share,
        };
        let (rows, _) = rows_of::<f64>(y.n_rows(), |row| y.row(row).0.len(), sample_weight)?;
        let order = ColumnOrder::new(y)?;
        let y = Design::labels(y, &order, &rows, false, watch)?;
        self.reaching(share, &rows, &y, watch)
    }

    /// Returns the smallest k for which the sum of the k largest eigenvalues of `YᵀΩY` exceeds the fraction
    /// `share` of the sum of all eigenvalues. With more than [`MOST_DECOMPOSED`] labels, the eigenvalues are
    /// estimated.
    fn reaching(
        &self,
        share: f64,
        rows: &Rows<f64>,
        y: &Design<'_, f64>,
        watch: &Watch,
    ) -> Result<usize, Error> {
        let c = y.n_cols();
        let goal = share * y.diagonal.iter().sum::<f64>();
        if c <= MOST_DECOMPOSED {
            let gram = gram_of_features(rows, y, 0..c, watch)?;
            let gram = MatRef::from_row_major_slice(&gram, c, c);
            let failed = || Error::Param {
                name: "sample_weight",
                expected: "scaled so that weighted sums are finite",
                got: "weights with infinite or NaN sums".into(),
            };
            let mut values = eigenvalues("the Gram matrix", gram)?.ok_or_else(failed)?;
            values.reverse();
            return Ok(reached(&values, goal).0.unwrap_or(c.max(1)));
        }
        let mut width = FIRST_PROBE;
        loop {
            // Let G = YᵀΩY. First T = GP for a Gaussian matrix P. Then T = GQ, where Q is an
            // orthonormal basis of the first T. The singular values of GQ are at most the
            // eigenvalues of G.
            let mut probe = Tall::from_fn(c, width, |row, col| normal(self.0.seed, row, col))?;
            probe = probe.map_panels(|q| cross(rows, y, y, q, watch))?;
            let spectrum = probe.spectrum(watch)?;
            probe = probe.orthonormal(&spectrum, width, watch)?;
            probe = probe.map_panels(|q| cross(rows, y, y, q, watch))?;
            let values = probe.spectrum(watch)?.values;
            let refused = |at_most: &str, sum: f64| Error::Param {
                name: "n_components",
                expected: "an integer, or a fraction of the sum of the eigenvalues of Y'Y that \
                           1024 components can explain",
                got: format!(
                    "{share}; 1024 components explain {at_most}{:.3}",
                    share * sum / goal
                ),
            };
            // The last singular values are far below the eigenvalues that they estimate. Only the
            // first half of them is used.
            match reached(&values, goal) {
                (Some(k), _) if 2 * k <= width || width == LAST_PROBE => return Ok(k),
                (None, sum) if width == LAST_PROBE => return Err(refused("", sum)),
                _ => {}
            }
            // Eigenvalues decrease, so their sum grows at most in proportion to their number. If
            // even twice this limit is too small, wider matrices would only take time. The factor
            // allows for estimates that are too low.
            let most = values[..width / 2].iter().sum::<f64>() * (2 * LAST_PROBE / width) as f64;
            if 2.0 * most < goal {
                return Err(refused("at most ", most));
            }
            width *= 2;
        }
    }
}

/// Returns the smallest number of leading values whose sum exceeds `goal`, and this sum. If all values
/// together do not exceed `goal`, returns `None` and the sum of all values.
fn reached(values: &[f64], goal: f64) -> (Option<usize>, f64) {
    let mut sum = 0.0;
    for (at, value) in values.iter().enumerate() {
        sum += value;
        if sum > goal {
            return (Some(at + 1), sum);
        }
    }
    (None, sum)
}
