//! How many components hold a share of the label covariance `YᵀΩY`.

use crate::design::{Design, cross};
use crate::fit::rows_of;
use crate::gram::gram_of_features;
use crate::normal::normal;
use crate::tall::Tall;
use crate::{Checked, Components};
use faer::MatRef;
use manylabel_base::{Error, Watch};
use manylabel_dense::eigenvalues;
use manylabel_sparse::{CsrView, Index};

/// Up to so many labels the covariance itself is decomposed: 200 MB in double precision.
const MOST_DECOMPOSED: usize = 5000;

/// Widths of the first probe and of the last.
const FIRST_PROBE: usize = 128;
const LAST_PROBE: usize = 1024;

impl Checked {
    /// The number of components that the parameters ask for, given Y and weights of its rows: a count
    /// as it is; for a share the smallest k whose top eigenvalues of `YᵀΩY` sum to more than that
    /// share of its trace.
    ///
    /// Exact for up to 5000 labels that some row carries, by a decomposition in O(c³). With more,
    /// random probes of growing width find the eigenvalues from below, so that k may be a few too
    /// large; no matrix of labels × labels is formed.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if 1024 components do not hold the share of more labels than that,
    /// [`Error::Shape`], [`Error::TooLarge`], [`Error::Stopped`].
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
        let c = y.n_cols();
        let goal = share * y.diagonal.iter().sum::<f64>();
        if c <= MOST_DECOMPOSED {
            let gram = gram_of_features(&rows, &y, watch)?;
            let gram = MatRef::from_row_major_slice(&gram, c, c);
            let failed = || Error::Param {
                name: "sample_weight",
                expected: "of a scale at which sums are finite",
                got: "no eigenvalues of what they weigh".into(),
            };
            let mut values = eigenvalues("the Gram matrix", gram)?.ok_or_else(failed)?;
            values.reverse();
            return Ok(reached(&values, goal).0.unwrap_or(c.max(1)));
        }
        let mut width = FIRST_PROBE;
        loop {
            // T = GQ twice; singular values of GQ are below the eigenvalues of G.
            let mut probe = Tall::from_fn(c, width, |row, col| normal(self.0.seed, row, col))?;
            probe = probe.map_panels(|q| cross(&rows, &y, &y, q, watch))?;
            let spectrum = probe.spectrum(watch)?;
            probe = probe.orthonormal(&spectrum, width, watch)?;
            probe = probe.map_panels(|q| cross(&rows, &y, &y, q, watch))?;
            match reached(&probe.spectrum(watch)?.values, goal) {
                // The last values of a probe are far below the eigenvalues they stand for.
                (Some(k), _) if 2 * k <= width || width == LAST_PROBE => return Ok(k),
                (None, sum) if width == LAST_PROBE => {
                    return Err(Error::Param {
                        name: "n_components",
                        expected: "an integer, or a share that 1024 components hold",
                        got: format!("{share}, where they hold {:.3}", share * sum / goal),
                    });
                }
                _ => width *= 2,
            }
        }
    }
}

/// The first number of values that sum to more than `goal`, and the sum of all.
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
