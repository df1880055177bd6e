//! Computes heads under the example-wise loss with gradient-based label binning (GBLB, equations 18 to 20). A
//! bin is a group of labels that get the same score. A head consists of one score per bin.
//!
//! The head of a set of rows is computed as follows. Let w be the weight of a row of the set, and g its
//! gradient with respect to the scores of the K labels. Let G be the matrix with the rows `√w gᵀ`, and let
//! `ḡ = Σ w g` be the sum over the rows. Let P be the K × B indicator matrix of the B bins, n the vector of
//! bin sizes, and ω the L2 weight. The scores p of the bins solve
//!
//! ```text
//! (H̃ + ω diag(n)) p = −Pᵀḡ,      H̃_ab = −(G P)_aᵀ (G P)_b   for a ≠ b
//! ```
//!
//! where `(G P)_b` is column b of G P. For each row, this column holds the number `√w Σ_{k in b} g_k`. The
//! diagonal of H̃ can be computed in two ways:
//!
//! - The equations of GBLB leave out the products of different labels within a bin:
//!   `H̃_bb = Σ_{k in b} h_k`.
//! - The exact Hessian for one score per bin includes these products: `H̃_bb = Σ_{k in b} d_k − ‖(G P)_b‖²`.
//!
//! The sums h and d are defined in `statistics.rs`. The diagonal of GBLB is larger. Suppose that most labels
//! are absent from most rows. If the scores of all labels of a bin change by the same amount, the exact
//! Hessian then has almost no curvature in this direction. Newton steps then overshoot. The larger diagonal
//! of GBLB keeps the steps short.
//!
//! [`System`] builds and solves the linear system. [`BinnedRows`] keeps G P and its products up to
//! date while rows are added to a set and labels change bins. This saves work because consecutive
//! candidates of the search differ in few rows and few labels.

use super::solve::factorize;
use crate::batch::ROWS_AT_ONCE;
use crate::binning::{add_up_both, add_up_rows};
use crate::lanes::{self, WIDTH};
use crate::pace::Pace;
use crate::statistics::Sums;
use manylabel_base::{Error, filled, reserved};
use std::ops::Range;

/// The linear system of one set of rows, with the workspace to solve it.
#[derive(Debug)]
pub(crate) struct System {
    /// The L2 weight ω.
    l2: f64,
    /// True if the diagonal of H̃ includes the products of different labels within a bin (see the module
    /// documentation).
    restricted: bool,
    /// Number of bins. Empty bins are included.
    n_bins: usize,
    /// Sums of the gradients over the labels of each bin, `Pᵀḡ`.
    g: Vec<f64>,
    /// For each bin b, the diagonal entry `H̃_bb`. If `restricted` is true, the sum of d over the labels of
    /// the bin, from which `‖(G P)_b‖²` is subtracted later (see the module documentation).
    h: Vec<f64>,
    /// Number of labels of each bin.
    sizes: Vec<f64>,
    /// Bins that are not empty, in increasing order.
    used: Vec<usize>,
    /// The lower triangle of `H̃ + ω diag(n)` for the non-empty bins, row by row. The Cholesky factor later
    /// overwrites this matrix.
    matrix: Vec<f64>,
    /// The right-hand side `−Pᵀḡ`. The solution p later overwrites it.
    scores: Vec<f64>,
}

impl System {
    /// Allocates a system for up to `n_bins` bins.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if one number per pair of bins does not fit in memory.
    pub(crate) fn new(n_bins: usize, l2: f64, restricted: bool) -> Result<Self, Error> {
        let of_bins = || filled(BINS, 0.0, n_bins);
        Ok(Self {
            l2,
            restricted,
            n_bins,
            g: of_bins()?,
            h: of_bins()?,
            sizes: of_bins()?,
            used: reserved(BINS, n_bins)?,
            matrix: square(n_bins)?,
            scores: of_bins()?,
        })
    }

    /// Returns the approximate number of operations of [`quality`](Self::quality).
    pub(crate) fn cost(&self) -> usize {
        self.n_bins.pow(3) / 6
    }

    /// Sets the gradients, diagonals and sizes of the bins. Computes them from `sums`, which has one number
    /// per label.
    #[inline(always)]
    pub(crate) fn set_bins(&mut self, sums: &Sums, bins: &[f64]) {
        let diagonal = if self.restricted { sums.d() } else { sums.h() };
        let out = [&mut self.g[..], &mut self.h[..], &mut self.sizes[..]];
        add_up_both([sums.g(), diagonal], bins, out);
    }

    /// Sets the sizes, gradients and diagonals of the bins to the given sums, which have one number per bin.
    /// `h` is the final diagonal, from which nothing is subtracted later.
    #[inline(always)]
    pub(crate) fn set_sums(&mut self, sizes: &[f64], g: &[f64], h: &[f64]) {
        self.sizes.copy_from_slice(sizes);
        self.g.copy_from_slice(g);
        self.h.copy_from_slice(h);
    }

    /// Builds the system `(H̃ + ω diag(n)) p = −Pᵀḡ` of the module documentation. Returns the quality
    /// `½ (Pᵀḡ)ᵀp` of the solution p. The quality is the change of the quadratic approximation of the
    /// objective, so lower is better. The quality is 0 if the matrix `H̃ + ω diag(n)` is not positive
    /// definite. The time is O(B³) for B non-empty bins.
    ///
    /// `product(a, b)` returns `(G P)_aᵀ (G P)_b`, the scalar product of columns a and b of G P (see the
    /// module documentation). `product` is called with `a ≥ b`. The case `a = b` occurs only if the diagonal
    /// of H̃ includes the products of different labels within a bin. Under the label-wise loss, bins do not
    /// depend on one another, and `product` returns 0.
    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "the capacity is reserved")]
    pub(crate) fn quality(&mut self, product: impl Fn(usize, usize) -> f64) -> f64 {
        self.used.clear();
        self.used
            .extend((0..self.n_bins).filter(|&b| self.sizes[b] > 0.0));
        let n = self.used.len();
        for (i, &a) in self.used.iter().enumerate() {
            let within = if self.restricted { product(a, a) } else { 0.0 };
            // The diagonal is a difference of two sums, so rounding may make it negative.
            self.matrix[i * n + i] = (self.h[a] - within).max(0.0) + self.l2 * self.sizes[a];
            for (j, &b) in self.used[..i].iter().enumerate() {
                self.matrix[i * n + j] = -product(a, b);
            }
            self.scores[i] = -self.g[a];
        }
        if factorize(&mut self.matrix[..n * n], n, self.l2) {
            forward(&self.matrix, n, &mut self.scores);
            -0.5 * self.scores[..n].iter().map(|y| y * y).sum::<f64>()
        } else {
            self.scores[..n].fill(0.0);
            0.0
        }
    }

    /// Returns the scores of all bins. [`quality`](Self::quality) must be called first. Empty bins have a
    /// score of 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the scores do not fit in memory.
    pub(crate) fn solution(&mut self) -> Result<Vec<f64>, Error> {
        let n = self.used.len();
        for i in (0..n).rev() {
            let above: f64 = (i + 1..n)
                .map(|j| self.matrix[j * n + i] * self.scores[j])
                .sum();
            self.scores[i] = (self.scores[i] - above) / self.matrix[i * n + i];
        }
        let mut solution = filled(BINS, 0.0, self.n_bins)?;
        for (&bin, &score) in self.used.iter().zip(&self.scores) {
            solution[bin] = if score.is_finite() { score } else { 0.0 };
        }
        Ok(solution)
    }
}

/// The text in errors if the numbers for bins do not fit in memory.
const BINS: &str = "number of label bins";

/// Allocates zeros for all pairs of bins.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the numbers do not fit in memory.
pub(crate) fn square(n_bins: usize) -> Result<Vec<f64>, Error> {
    filled(BINS, 0.0, n_bins.saturating_mul(n_bins))
}

/// Solves `L y = b` in place. L is a lower triangular n × n matrix stored row by row.
#[inline(always)]
fn forward(factor: &[f64], n: usize, b: &mut [f64]) {
    for i in 0..n {
        let mut sum = b[i];
        for j in 0..i {
            sum -= factor[i * n + j] * b[j];
        }
        b[i] = sum / factor[i * n + i];
    }
}

/// The matrix G P of a growing set of rows, and the scalar products of its columns (see the module
/// documentation). The column of bin b holds `√w Σ_{k in b} g_k` for each row, where w is the weight of the
/// row and g its gradient. The bins of labels may change while the set grows.
#[derive(Debug)]
pub(crate) struct BinnedRows {
    /// Number of bins. Empty bins are included.
    n_bins: usize,
    /// The bin of each label.
    pub(crate) bins: Vec<f64>,
    /// For each bin b, the column of G P: the numbers `√w Σ_{k in b} g_k` of all rows.
    columns: Vec<Vec<f64>>,
    /// Number of rows in `columns`.
    n_rows: usize,
    /// Scalar products of the columns of two bins a ≥ b, stored at index `a · n_bins + b`.
    products: Vec<f64>,
    /// For each bin, true if the current update has changed its labels.
    changed: Vec<bool>,
    /// The workspace for the sums of [`ROWS_AT_ONCE`] rows over the labels of each bin.
    sums: Vec<[f64; ROWS_AT_ONCE]>,
}

/// A label that changes its bin, as (label, old bin, new bin).
pub(crate) type Move = (usize, f64, f64);

impl BinnedRows {
    /// Returns an empty set of rows, with labels that belong to no bin. The set can take up to `most_rows`
    /// rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if one number per label, one number per row and bin, and one number per
    /// pair of bins do not fit in memory.
    pub(crate) fn new(n_bins: usize, stride: usize, most_rows: usize) -> Result<Self, Error> {
        let mut columns = reserved(BINS, n_bins)?;
        for _ in 0..n_bins {
            columns.push(reserved("number of sums over label bins", most_rows)?);
        }
        Ok(Self {
            n_bins,
            bins: filled("number of labels", super::NONE, stride)?,
            columns,
            n_rows: 0,
            products: square(n_bins)?,
            changed: filled(BINS, false, n_bins)?,
            sums: filled(BINS, [0.0; ROWS_AT_ONCE], n_bins)?,
        })
    }

    /// Removes all rows from the set. The bins do not change.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.n_rows = 0;
        self.products.fill(0.0);
    }

    /// Changes the bins of the labels in `moves`. Then appends rows until the set has `n_rows` rows.
    ///
    /// `moves` lists the changes that [`find_moves`] found. Rows are numbered by their position in the set.
    /// `gradient(i)` returns the padded gradient of row i, and `root(i)` returns the square root of its
    /// weight. Rows that are already in the set must not change.
    ///
    /// A change of one label takes O(rows) time. If many labels change, the whole set is summed again, in
    /// O(rows · labels) time. The products take O(B² · new rows) time, plus O(B · rows) time for each changed
    /// bin.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Pace::spend`].
    #[inline(always)]
    pub(crate) fn update<'a>(
        &mut self,
        moves: &[Move],
        n_rows: usize,
        gradient: impl Fn(usize) -> &'a [f64],
        root: impl Fn(usize) -> f64,
        pace: &mut Pace<'_>,
    ) -> Result<(), Error> {
        let old_rows = self.n_rows;
        // A move reads one gradient of each row, and these gradients are far apart in memory. If there are
        // many moves, a pass over complete rows is therefore faster.
        if moves.len() * 2 > self.bins.len() / 8 + 2 && old_rows > 0 {
            self.clear();
            for &(label, _, to) in moves {
                self.bins[label] = to;
            }
        } else {
            self.changed.fill(false);
            for &(label, from, to) in moves {
                self.bins[label] = to;
                for (bin, sign) in [(from, -1.0), (to, 1.0)] {
                    if bin >= 0.0 {
                        let bin = bin as usize;
                        self.changed[bin] = true;
                        for (i, sum) in self.columns[bin].iter_mut().enumerate() {
                            *sum += sign * (root(i) * gradient(i)[label]);
                        }
                    }
                }
            }
        }
        let kept_rows = self.n_rows;
        for first in (kept_rows..n_rows).step_by(ROWS_AT_ONCE) {
            let rows = first..n_rows.min(first + ROWS_AT_ONCE);
            pace.spend(self.bins.len() * rows.len())?;
            self.append(rows, &gradient, &root);
        }
        self.n_rows = n_rows;
        for a in 0..self.n_bins {
            pace.spend(a * (n_rows - kept_rows))?;
            for b in 0..=a {
                let at = a * self.n_bins + b;
                let anew = kept_rows > 0 && (self.changed[a] || self.changed[b]);
                let from = if anew { 0 } else { kept_rows };
                let added = dot(&self.columns[a][from..], &self.columns[b][from..]);
                self.products[at] = if anew {
                    added
                } else {
                    self.products[at] + added
                };
            }
        }
        Ok(())
    }

    /// Appends up to [`ROWS_AT_ONCE`] rows to the columns. See [`update`](Self::update) for the arguments.
    #[inline(always)]
    fn append<'a>(
        &mut self,
        rows: Range<usize>,
        gradient: impl Fn(usize) -> &'a [f64],
        root: impl Fn(usize) -> f64,
    ) {
        let none: &[f64] = &[];
        let mut gradients = [none; ROWS_AT_ONCE];
        let mut roots = [0.0; ROWS_AT_ONCE];
        for (i, row) in rows.clone().enumerate() {
            gradients[i] = gradient(row);
            roots[i] = root(row);
        }
        add_up_rows(&gradients[..rows.len()], &self.bins, &mut self.sums);
        for (column, sums) in self.columns.iter_mut().zip(&self.sums) {
            for (sum, root) in sums.iter().zip(&roots).take(rows.len()) {
                column.push(root * sum);
            }
        }
    }

    /// Returns the scalar product of the columns of G P for two bins `a ≥ b`.
    #[inline(always)]
    pub(crate) fn product(&self, a: usize, b: usize) -> f64 {
        self.products[a * self.n_bins + b]
    }
}

/// Writes to `moves` the labels with different bins in `old` and `new`, in increasing order. The capacity of
/// `moves` must be sufficient for all labels.
#[inline(always)]
pub(crate) fn find_moves(old: &[f64], new: &[f64], moves: &mut Vec<Move>) {
    moves.clear();
    for (chunk, (old, new)) in old
        .as_chunks::<WIDTH>()
        .0
        .iter()
        .zip(new.as_chunks::<WIDTH>().0)
        .enumerate()
    {
        let mut differ = 0u8;
        for lane in 0..WIDTH {
            differ |= u8::from(old[lane] != new[lane]) << lane;
        }
        while differ != 0 {
            let lane = differ.trailing_zeros() as usize;
            moves.push((chunk * WIDTH + lane, old[lane], new[lane]));
            differ &= differ - 1;
        }
    }
}

/// Returns `Σ x_i y_i` of two vectors of the same length. The length may be any number.
#[inline(always)]
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sum = lanes::dot(x, y); // the sum over complete chunks
    for (x, y) in x
        .as_chunks::<WIDTH>()
        .1
        .iter()
        .zip(y.as_chunks::<WIDTH>().1)
    {
        sum += x * y;
    }
    sum
}
