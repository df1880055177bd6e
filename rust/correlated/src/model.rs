//! Defines the fitted model. A later fit may start from it.
//!
//! The model uses the feature and label numbers of the caller's data. Its weights are for features
//! without scaling and labels coded as 0 and 1. Weights are stored by feature, because scoring
//! reads them in this order.

use manylabel_base::{Error, Watch, collected, copied, extend, filled, push, reserved};
use manylabel_sparse::{CsrView, Index, Sparse, with_sparse};
use rayon::prelude::*;
use std::cmp::Reverse;

/// A sparse matrix in compressed row format and double precision. The columns of each row are in
/// increasing order.
#[derive(Debug, PartialEq)]
pub struct Matrix {
    /// The start and end of each row: row r contains `cols[ends[r]..ends[r + 1]]`. The length is
    /// the number of rows + 1, and the first entry is 0.
    pub ends: Vec<usize>,
    /// Column numbers, row by row.
    pub cols: Vec<u32>,
    /// Values, in the same order as the columns.
    pub values: Vec<f64>,
    /// Number of columns.
    pub n_cols: usize,
}

impl Matrix {
    /// Returns a matrix without rows. Up to `n_rows` rows can be appended without a new allocation
    /// of `ends`.
    ///
    /// [`push`](Self::push) appends an entry to the current row. [`end_row`](Self::end_row)
    /// finishes the current row.
    pub(crate) fn empty(n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        let mut ends = reserved("number of rows", n_rows + 1)?;
        ends.push(0);
        Ok(Self {
            ends,
            cols: Vec::new(),
            values: Vec::new(),
            n_cols,
        })
    }

    /// Appends an entry to the current row. The caller must append columns in increasing order.
    pub(crate) fn push(&mut self, col: u32, value: f64) -> Result<(), Error> {
        push("number of weights", &mut self.cols, col)?;
        push("number of weights", &mut self.values, value)
    }

    /// Finishes the current row.
    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.cols.len())
    }

    /// Returns a square matrix of n rows from triplets (row, column, value) in any order. No two
    /// triplets may have the same row and column. Takes O(e log e + n) time for e triplets.
    pub(crate) fn of_entries(mut entries: Vec<(u32, u32, f64)>, n: usize) -> Result<Self, Error> {
        entries.sort_unstable_by_key(|&(row, col, _)| (row, col));
        let mut matrix = Self::empty(n, n)?;
        let mut entries = entries.into_iter().peekable();
        for row in 0..n as u32 {
            while let Some((_, col, value)) = entries.next_if(|&(of, _, _)| of == row) {
                matrix.push(col, value)?;
            }
            matrix.end_row()?;
        }
        Ok(matrix)
    }

    /// Returns the columns and values of one row.
    ///
    /// # Panics
    ///
    /// Panics if the row does not exist.
    pub fn row(&self, row: usize) -> (&[u32], &[f64]) {
        let range = self.ends[row]..self.ends[row + 1];
        (&self.cols[range.clone()], &self.values[range])
    }

    /// Checks that the matrix is symmetric: each entry at (i, k) must exactly equal the entry at
    /// (k, i). Also checks that no entry is on the diagonal. Takes O(number of entries) time.
    ///
    /// One cursor per row is sufficient. Rows are visited in order. The entries at (k, i) of each
    /// row k are therefore also visited in order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] with the first entry that is not symmetric or is on the diagonal.
    /// The error calls the matrix `correlations_`. This is the fitted attribute in Python, which
    /// users can change.
    pub(crate) fn check_symmetric(&self) -> Result<(), Error> {
        let mut next = copied("number of couplings", &self.ends)?;
        for row in 0..self.ends.len() - 1 {
            let (cols, values) = self.row(row);
            for (&col, &value) in cols.iter().zip(values) {
                let mirror = &mut next[col as usize];
                let same = *mirror < self.ends[col as usize + 1]
                    && self.cols[*mirror] as usize == row
                    && self.values[*mirror].to_bits() == value.to_bits();
                if !same || col as usize == row {
                    return Err(Error::Param {
                        name: "correlations_",
                        expected: "a symmetric matrix with an empty diagonal",
                        got: format!("an asymmetric or diagonal entry in row {row}, column {col}"),
                    });
                }
                *mirror += 1;
            }
        }
        Ok(())
    }
}

/// A model from which a fit can start. It must have been fitted to the same features and labels.
///
/// A fit from such a model often needs fewer gradients, for example if the same data are fitted
/// with a sequence of penalties. The optimum does not depend on the start. The reference solver,
/// which follows the authors' published procedure, ignores the start.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The weights, of shape (`n_features`, `n_labels`), as in [`Model::weights`].
    pub weights: &'a Matrix,
    /// The intercept of each label, as in [`Model::intercept`].
    pub intercept: &'a [f64],
    /// The couplings, of shape (`n_labels`, `n_labels`), as in [`Model::couplings`].
    pub couplings: &'a Matrix,
}

/// A fitted model for labels coded as 0 and 1. The log-odds of label i, given the features and the
/// other labels, are `intercept_i + Σ_f x_f weights_fi + Σ_k couplings_ik z_k`. Here `x_f` is the
/// value of feature f, and `z_k` is 1 if label k is present and 0 otherwise.
///
/// A fit that has not converged is also returned; see [`converged`](Self::converged).
#[derive(Debug)]
pub struct Model {
    /// Weights b, of shape (`n_features`, `n_labels`). Constant features have no weights.
    pub weights: Matrix,
    /// One intercept per label. It is −∞ for labels that occur in no row. A label that occurs in
    /// all n rows for which it is known has no weights, and its intercept is `ln(2n + 1)`.
    pub intercept: Vec<f64>,
    /// Couplings c, of shape (`n_labels`, `n_labels`). The matrix is symmetric, and its diagonal is
    /// empty.
    pub couplings: Matrix,
    /// Label sets of the training rows. At prediction, the search for the most probable label set
    /// starts from them.
    pub sets: LabelSets,
    /// Loss plus penalties at the solution. Labels that occur in no row, or in every row for which
    /// they are known, are not included. With the reference solver, the value is instead the
    /// objective at the extrapolated point where the last gradient was computed.
    pub objective: f64,
    /// KKT violation of the solution. The violation is the largest absolute entry of the
    /// subgradient with the smallest norm. The subgradient is taken with respect to all weights and
    /// couplings.
    pub violation: f64,
    /// Number of gradients computed.
    pub n_iter: usize,
    /// Whether the KKT violation is within the tolerance. With the reference solver, whether the
    /// procedure stopped before it reached the limit on the number of gradients.
    pub converged: bool,
}

impl Model {
    /// Returns a model in which only intercepts are set, for labels that occur in no row or in
    /// every row for which they are known. Nothing else can be learned about these labels. `counts`
    /// has the number of rows that have each label. `n_known` has the number of rows for which each
    /// label is known.
    ///
    /// All other labels get the intercept −∞, which the fit overwrites later.
    pub(crate) fn of_constants(
        counts: &[usize],
        n_known: &[usize],
        n_features: usize,
    ) -> Result<Self, Error> {
        let mut intercept = filled("number of intercepts", f64::NEG_INFINITY, counts.len())?;
        for ((intercept, &count), &n_known) in intercept.iter_mut().zip(counts).zip(n_known) {
            if count == n_known && count > 0 {
                // The optimal intercept is infinite. This value is the log-odds after half a row
                // with the label and half a row without it are added.
                *intercept = (2.0 * n_known as f64 + 1.0).ln();
            }
        }
        Ok(Self {
            weights: Matrix {
                ends: filled("number of features", 0, n_features + 1)?,
                ..Matrix::empty(0, counts.len())?
            },
            intercept,
            couplings: Matrix::of_entries(Vec::new(), counts.len())?,
            sets: LabelSets::default(),
            objective: 0.0,
            violation: 0.0,
            n_iter: 0,
            converged: true,
        })
    }
}

/// The distinct sets of coupled labels among the training rows, sorted by decreasing frequency.
///
/// A label is coupled if it has at least one nonzero coupling. All other labels are left out of the
/// sets. If no label is coupled, there are no sets.
#[derive(Debug, Default, PartialEq)]
pub struct LabelSets {
    /// Set s contains `labels[ends[s]..ends[s + 1]]`, in increasing order.
    pub ends: Vec<usize>,
    /// The labels of all sets, one set after the other.
    pub labels: Vec<u32>,
    /// The sum of the couplings within each set, `Σ_{i<k} c_ik` over its labels.
    pub energies: Vec<f64>,
}

/// Largest number of sets. Less frequent sets occur in single rows and hardly help to predict other
/// rows.
const MAX_SETS: usize = 1 << 16;

/// Name of the label sets in error messages about memory.
const SETS: &str = "number of label sets";

impl LabelSets {
    /// Collects the distinct label sets of the rows of `y`, and sums the couplings within each set.
    ///
    /// Sorting the rows takes at most O(stored entries of `y` × log(number of rows)) comparisons of
    /// labels. The sums read, for each distinct set, the couplings of its labels.
    pub(crate) fn new(y: Sparse<'_>, couplings: &Matrix, watch: &Watch) -> Result<Self, Error> {
        let mut sets = Self::default();
        push(SETS, &mut sets.ends, 0)?;
        if couplings.values.is_empty() {
            return Ok(sets);
        }
        let rows = with_sparse!(y, |y| RowSets::new(y, couplings, watch))?;
        let mut held = filled("number of labels", false, couplings.n_cols)?;
        for row in rows.distinct()?.into_iter().take(MAX_SETS) {
            let labels = rows.get(row);
            for &label in labels {
                held[label as usize] = true;
            }
            let mut twice = 0.0;
            for &label in labels {
                let (others, values) = couplings.row(label as usize);
                let within = others.iter().zip(values);
                let within = within.filter(|(other, _)| held[**other as usize]);
                twice += within.map(|(_, value)| value).sum::<f64>();
            }
            for &label in labels {
                held[label as usize] = false;
            }
            push(SETS, &mut sets.energies, twice / 2.0)?;
            extend(SETS, &mut sets.labels, labels.iter().copied())?;
            push(SETS, &mut sets.ends, sets.labels.len())?;
        }
        Ok(sets)
    }
}

/// The coupled labels of every row.
struct RowSets {
    /// The boundaries of the rows in `labels`: row r has the labels `labels[ends[r]..ends[r + 1]]`.
    ends: Vec<usize>,
    /// The coupled labels, row by row.
    labels: Vec<u32>,
}

impl RowSets {
    /// Collects the labels of each row that have couplings. Labels keep their order in `y`.
    fn new<J: Index, U: Copy>(
        y: CsrView<'_, J, U>,
        couplings: &Matrix,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let mut ends = reserved(SETS, y.n_rows() + 1)?;
        ends.push(0);
        let mut labels = reserved(SETS, y.nnz())?;
        for row in 0..y.n_rows() {
            watch.step(0)?;
            let of_row = y.row(row).0.iter().map(|label| label.get() as u32);
            let coupled = of_row.filter(|label| !couplings.row(*label as usize).0.is_empty());
            extend(SETS, &mut labels, coupled)?;
            ends.push(labels.len());
        }
        Ok(Self { ends, labels })
    }

    /// Returns the coupled labels of one row, in increasing order.
    fn get(&self, row: usize) -> &[u32] {
        &self.labels[self.ends[row]..self.ends[row + 1]]
    }

    /// Returns, for each distinct set, the number of one row that has this set. Sets that occur in
    /// more rows come first. Sets that occur equally often are ordered by their labels, so that the
    /// result does not depend on the order of the rows.
    fn distinct(&self) -> Result<Vec<usize>, Error> {
        let mut order = collected(SETS, 0..self.ends.len() - 1)?;
        order.par_sort_unstable_by(|&a, &b| self.get(a).cmp(self.get(b)));
        let same = |a: &usize, b: &usize| self.get(*a) == self.get(*b);
        let mut runs = Vec::new();
        for (place, run) in order.chunk_by(same).enumerate() {
            push(SETS, &mut runs, (run[0], run.len(), place))?;
        }
        runs.sort_unstable_by_key(|&(_, count, place)| (Reverse(count), place));
        collected(SETS, runs.iter().map(|&(row, ..)| row))
    }
}
