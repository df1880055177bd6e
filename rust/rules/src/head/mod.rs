//! Computes the heads of rules. The head of a set of rows holds the scores that are optimal for these rows.
//!
//! Let g and H be the sums of gradients and Hessians over the rows, and `h_kk` the diagonal entry of H for
//! label k. A head p minimizes `gᵀp + ½ pᵀ(H + ωI)p`, where ω is the L2 weight. The head may be restricted to
//! one score for all labels of a bin, or to one label. The minimum, `½ gᵀp`, is the *quality* of the set. A
//! lower quality is better, and 0 means no improvement.
//!
//! [`Method`] selects one of five kinds of heads, depending on the parameters and the loss. K is the number
//! of labels, and B is the number of bins:
//!
//! | method | system | cost beyond the sums |
//! |---|---|---|
//! | `Single` | `p_k = −g_k / (h_kk + ω)` for one label | O(K) |
//! | `Diagonal` | the same for every label | O(K) |
//! | `DiagonalBins` | the same for every bin | O(K) |
//! | `Bins` | B × B, Cholesky (`bins.rs`) | O(rows · (K + B²) + B³) |
//! | `Full` | K × K, conjugate gradients (`solve.rs`) | a few products with rows or a Gram matrix |
//!
//! [`Method::head`] computes the head of a set of rows from the beginning. It is called for
//! finished rules and for some accepted conditions, but not for every candidate. The search for
//! conditions (`refine/`) needs the qualities of many nested sets. The search therefore updates
//! sums from one set to the next.

pub(crate) mod bins;
pub(crate) mod solve;

use crate::binning::Binner;
pub(crate) use crate::binning::NONE;
use crate::gram::Gram;
use crate::lanes::{WIDTH, chunks};
use crate::statistics::{Kinds, Statistics, Sums};
use crate::{Head, Hessian, Loss, Params};
use bins::{BinnedRows, System, find_moves};
use manylabel_base::{Error, collected, copied, filled, reserved};
use manylabel_simd::wide;
use solve::{Goal, HEAD_TOLERANCE, Near, Outer, Set, Solver, improve};

/// Largest number of labels, rounded up to a multiple of eight, for which a head of all labels is solved with
/// a Gram matrix.
const FEW_LABELS: usize = 128;

/// The method for computing heads. It depends on the loss and the parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Method {
    /// The score of one label, from the diagonal of the Hessian.
    Single,
    /// Scores of all labels. The scores are independent of one another. Used for the label-wise loss.
    Diagonal,
    /// Scores of label bins. The scores are independent of one another. Used for the label-wise loss.
    DiagonalBins(Binner),
    /// Scores of label bins under the example-wise loss. If `restricted` is true, second derivatives between
    /// different labels of one bin are included.
    Bins { binner: Binner, restricted: bool },
    /// Scores of all labels under the example-wise loss.
    Full,
}

impl Method {
    /// Returns the method for the given parameters and `n_labels` labels.
    pub(crate) fn new(params: &Params, n_labels: usize) -> Self {
        let binner = params
            .binning
            .map(|binning| Binner::new(binning, n_labels, params.l2));
        match (params.head, params.loss, binner) {
            (Head::Single, ..) => Self::Single,
            (_, Loss::LabelWise, None) => Self::Diagonal,
            (_, Loss::LabelWise, Some(binner)) => Self::DiagonalBins(binner),
            (_, Loss::ExampleWise, None) => Self::Full,
            (_, Loss::ExampleWise, Some(binner)) => {
                let restricted = params.hessian == Hessian::Restricted;
                Self::Bins { binner, restricted }
            }
        }
    }

    /// Returns the kinds of sums over rows that the method needs.
    pub(crate) fn kinds(&self) -> Kinds {
        match self {
            Self::Bins {
                restricted: true, ..
            } => Kinds::Magnitudes,
            Self::Full => Kinds::Bounds,
            _ => Kinds::Diagonal,
        }
    }

    /// Returns the head of a set of rows and its quality. The head has one score per label and is padded to a
    /// multiple of eight labels. The head and the quality are exact up to rounding.
    ///
    /// - `weights` has one entry for every training row.
    /// - `label` is the label of a single-label head, if it has already been chosen.
    /// - `given` is a head that has already been added to the scores of all rows. The
    ///   regularization applies to the sum of `given` and the new head.
    /// - `start` is an approximate head from which [`Self::Full`] starts. It may be empty.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    #[expect(clippy::too_many_arguments, reason = "a head has this many inputs")]
    pub(crate) fn head(
        &self,
        statistics: &Statistics<'_>,
        rows: &[u32],
        weights: &[f64],
        l2: f64,
        label: Option<usize>,
        given: Option<&[f64]>,
        start: &[f64],
    ) -> Result<(Vec<f64>, f64), Error> {
        let mut sums = Sums::over(statistics, self.kinds(), rows, weights)?;
        if let Some(given) = given {
            sums.shift_gradients(l2, given);
        }
        match *self {
            Self::Single => {
                let label = label.unwrap_or_else(|| best_label(&sums, l2, None).0);
                let mut head = filled("number of labels", 0.0, statistics.stride)?;
                head[label] = alone(sums.g()[label], sums.h()[label], l2);
                let quality = 0.5 * head[label] * sums.g()[label];
                Ok((head, quality))
            }
            Self::Diagonal => {
                let parts = sums.g().iter().zip(sums.h());
                let head = parts.map(|(&g, &h)| alone(g, h, l2));
                let head = collected("number of labels", head)?;
                let quality = 0.5 * crate::lanes::dot(sums.g(), &head);
                Ok((head, quality))
            }
            Self::DiagonalBins(binner) => {
                binned_head(statistics, &sums, rows, weights, &binner, l2, None)
            }
            Self::Bins { binner, restricted } => binned_head(
                statistics,
                &sums,
                rows,
                weights,
                &binner,
                l2,
                Some(restricted),
            ),
            Self::Full => {
                let mut near = Near::zero(statistics.stride)?;
                near.x[..start.len()].copy_from_slice(start);
                let quality = full_head(statistics, &sums, rows, weights, l2, &mut near)?;
                Ok((copied("number of labels", &near.x)?, quality))
            }
        }
    }
}

/// Returns the optimal score of one label if no other label is scored: `−g / (h + l2)`. `g` and `h` are the
/// sums of the gradients and of the Hessian diagonals of the label. Returns 0 if the denominator is not
/// larger than rounding errors.
#[inline(always)]
pub(crate) fn alone(g: f64, h: f64, l2: f64) -> f64 {
    let curvature = h.max(0.0) + l2;
    if curvature > f64::EPSILON * g.abs() {
        -g / curvature
    } else {
        0.0
    }
}

/// Returns the label whose score alone gives the best quality, and this quality. If several labels are
/// equally good, the first label is returned. If `label` is given, that label and its quality are returned.
#[inline(always)]
pub(crate) fn best_label(sums: &Sums, l2: f64, label: Option<usize>) -> (usize, f64) {
    let quality = |g: f64, h: f64| 0.5 * g * alone(g, h, l2);
    if let Some(label) = label {
        return (label, quality(sums.g()[label], sums.h()[label]));
    }
    let mut best = [0.0f64; WIDTH];
    for (g, h) in chunks(sums.g()).iter().zip(chunks(sums.h())) {
        for lane in 0..WIDTH {
            let quality = quality(g[lane], h[lane]);
            best[lane] = if quality < best[lane] {
                quality
            } else {
                best[lane]
            };
        }
    }
    let best = best.iter().fold(0.0, |a: f64, &b| a.min(b));
    let parts = sums.g().iter().zip(sums.h());
    let label = parts.into_iter().position(|(&g, &h)| quality(g, h) == best);
    (label.unwrap_or(0), best)
}

/// Returns the head of label bins and its quality. Under the example-wise loss, `restricted` is
/// `Some(true)` if second derivatives between different labels of one bin are included, and
/// `Some(false)` if they are not. Under the label-wise loss, bins are independent of one another,
/// and `restricted` is `None`.
///
/// # Errors
///
/// Returns the same errors as [`Method::head`].
#[wide]
fn binned_head(
    statistics: &Statistics<'_>,
    sums: &Sums,
    rows: &[u32],
    weights: &[f64],
    binner: &Binner,
    l2: f64,
    restricted: Option<bool>,
) -> Result<(Vec<f64>, f64), Error> {
    let stride = statistics.stride;
    let of_labels = |value| filled("number of labels", value, stride);
    let mut system = System::new(binner.n_bins, l2, restricted == Some(true))?;
    let mut bins = of_labels(NONE)?;
    binner.assign(sums.g(), sums.h(), &mut of_labels(0.0)?, &mut bins);
    system.set_bins(sums, &bins);
    let quality = if restricted.is_some() {
        let mut binned = BinnedRows::new(binner.n_bins, stride, rows.len())?;
        let mut moves = reserved("number of labels", stride)?;
        find_moves(&binned.bins, &bins, &mut moves);
        let gradient = |i: usize| statistics.gradient(rows[i]);
        let root = |i: usize| weights[rows[i] as usize].sqrt();
        let mut pace = statistics.pace();
        binned.update(&moves, rows.len(), gradient, root, &mut pace)?;
        system.quality(|a, b| binned.product(a, b))
    } else {
        system.quality(|_, _| 0.0)
    };
    let scores = system.solution()?;
    let head = bins.iter().map(|&bin| {
        if bin >= 0.0 {
            scores[bin as usize]
        } else {
            0.0
        }
    });
    Ok((collected("number of labels", head)?, quality))
}

/// Computes the head of all labels under the example-wise loss and stores it in `near.x`. Returns
/// its quality.
///
/// # Errors
///
/// Returns the same errors as [`Method::head`].
#[wide]
fn full_head(
    statistics: &Statistics<'_>,
    sums: &Sums,
    rows: &[u32],
    weights: &[f64],
    l2: f64,
    near: &mut Near,
) -> Result<f64, Error> {
    // With few labels and many rows, a Gram matrix costs less than repeated products with the rows.
    let few = statistics.stride <= FEW_LABELS && statistics.stride < rows.len();
    let gram = few.then(|| Gram::over(statistics, rows, weights));
    let gram = gram.transpose()?;
    let outer = Outer::of(gram.as_ref(), rows, weights);
    near.multiply(statistics, outer)?;
    let mut solver = Solver::<0>::new(statistics.stride, l2)?;
    let parts = [(1.0, outer)];
    let set = Set::new(statistics, sums, &parts);
    let quality = improve(&mut solver, set, Goal::any(HEAD_TOLERANCE), near)?;
    Ok(quality.unwrap_or(0.0))
}
