//! The number of components that hold a share of the label covariance `YᵀΩY`.
//!
//! The authors of Rembrandt choose k for small data sets as the number of eigenvalues of `YᵀY` that hold
//! more than 90 % of its trace. [`Checked::n_components`] computes that number for any share, before a
//! fit.

use crate::design::{Design, Rows, cross};
use crate::fit::rows_of;
use crate::gram::gram_of_features;
use crate::normal::normal;
use crate::tall::Tall;
use crate::{Checked, Components};
use faer::MatRef;
use manylabel_base::{Error, Watch};
use manylabel_dense::eigenvalues;
use manylabel_sparse::{CsrView, Index};

/// Maximum number of labels for which the covariance itself is decomposed: 200 MB in double precision.
const MOST_DECOMPOSED: usize = 5000;

/// Columns of the first probe; each next probe has twice as many.
const FIRST_PROBE: usize = 128;
/// Columns of the last probe, which is the most components a share can ask for.
const LAST_PROBE: usize = 1024;

impl Checked {
    /// The number of components that the parameters ask for, given Y and the weights of its rows.
    ///
    /// A count is returned as it is. For a share, the result is the smallest k such that the k largest
    /// eigenvalues of `YᵀΩY` sum to more than that share of its trace.
    ///
    /// The result is exact for up to 5000 labels that occur in some row, by a decomposition in O(c³). With
    /// more labels, random probes of growing width estimate the eigenvalues from below, so k may be
    /// slightly too large. No matrix of labels × labels is formed then.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if there are more than 5000 labels and 1024 components do not hold the share, or
    /// if weighted sums are not finite; [`Error::Shape`] if there is not one weight per row;
    /// [`Error::TooLarge`]; [`Error::Stopped`].
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
        let y = Design::labels(y, &rows, false, watch)?;
        self.reaching(share, &rows, &y, watch)
    }

    /// The fewest components that hold `share` of the labels in `y`.
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
            let gram = gram_of_features(rows, y, watch)?;
            let gram = MatRef::from_row_major_slice(&gram, c, c);
            let failed = || Error::Param {
                name: "sample_weight",
                expected: "scaled so that weighted sums are finite",
                got: "a label covariance without eigenvalues".into(),
            };
            let mut values = eigenvalues("the Gram matrix", gram)?.ok_or_else(failed)?;
            values.reverse();
            return Ok(reached(&values, goal).0.unwrap_or(c.max(1)));
        }
        let mut width = FIRST_PROBE;
        loop {
            // With G = YᵀΩY: T = GP for a Gaussian P, then T = GQ for an orthonormal basis Q of the first.
            // The singular values of GQ are at most the eigenvalues of G.
            let mut probe = Tall::from_fn(c, width, |row, col| normal(self.0.seed, row, col))?;
            probe = probe.map_panels(|q| cross(rows, y, y, q, watch))?;
            let spectrum = probe.spectrum(watch)?;
            probe = probe.orthonormal(&spectrum, width, watch)?;
            probe = probe.map_panels(|q| cross(rows, y, y, q, watch))?;
            match reached(&probe.spectrum(watch)?.values, goal) {
                // The last values of a probe are far below the eigenvalues they estimate, so only its
                // first half is trusted.
                (Some(k), _) if 2 * k <= width || width == LAST_PROBE => return Ok(k),
                (None, sum) if width == LAST_PROBE => {
                    return Err(Error::Param {
                        name: "n_components",
                        expected: "an integer, or a share that 1024 components hold",
                        got: format!("{share}, while they hold {:.3}", share * sum / goal),
                    });
                }
                _ => width *= 2,
            }
        }
    }
}

/// The smallest number of leading values that sum to more than `goal`, and that sum; None and the sum of all
/// values if they do not.
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
