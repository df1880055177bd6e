//! Defines the result of a fit. A later fit may start from it.
//!
//! Everything here is in the caller's terms: original feature and label numbers, features without
//! scaling, and labels of 0 and 1. Weights are stored by feature, in the order in which scoring
//! reads them.

use manylabel_base::{Error, Watch, collected, copied, extend, filled, push, reserved};
use manylabel_sparse::{CsrView, Index, Sparse, with_sparse};
use rayon::prelude::*;
use std::cmp::Reverse;

/// A sparse matrix in compressed row format and double precision. The columns of each row are in
/// increasing order.
#[derive(Debug, PartialEq)]
pub struct Matrix {
    /// Row r contains `cols[ends[r]..ends[r + 1]]`. The length is the number of rows + 1, and the
    /// first entry is 0.
    pub ends: Vec<usize>,
    /// Column numbers, row by row.
    pub cols: Vec<u32>,
    /// Values, in the same order as the columns.
    pub values: Vec<f64>,
    /// Number of columns.
    pub n_cols: usize,
}

impl Matrix {
    /// Returns a matrix without rows. Up to `n_rows` rows can be appended without allocating `ends`
    /// again.
    ///
    /// [`push`](Self::push) appends to the current row. [`end_row`](Self::end_row) finishes the
    /// current row.
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
        push("weights", &mut self.cols, col)?;
        push("weights", &mut self.values, value)
    }

    /// Finishes the current row.
    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.cols.len())
    }

    /// Returns a square matrix of n rows from triplets (row, column, value) in any order. Each cell
    /// may occur at most once. Takes O(entries log(entries) + n).
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
    /// If there is no such row.
    pub fn row(&self, row: usize) -> (&[u32], &[f64]) {
        let range = self.ends[row]..self.ends[row + 1];
        (&self.cols[range.clone()], &self.values[range])
    }

    /// Checks that each entry exactly equals its mirror entry, and that no entry is on the
    /// diagonal. Takes O(entries).
    ///
    /// One cursor per row is sufficient. Rows are visited in order, so the mirror entries in a row
    /// are also visited in order.
    ///
    /// # Errors
    ///
    /// [`Error::Csr`] with the first row that is not symmetric or has a diagonal entry. The error
    /// names the matrix `correlations_`, after the fitted attribute that callers can change.
    pub(crate) fn check_symmetric(&self) -> Result<(), Error> {
        let mut next = copied("couplings", &self.ends)?;
        for row in 0..self.ends.len() - 1 {
            let (cols, values) = self.row(row);
            for (&col, &value) in cols.iter().zip(values) {
                let mirror = &mut next[col as usize];
                let same = *mirror < self.ends[col as usize + 1]
                    && self.cols[*mirror] as usize == row
                    && self.values[*mirror].to_bits() == value.to_bits();
                if !same || col as usize == row {
                    return Err(Error::Csr {
                        matrix: "correlations_",
                        row,
                        rule: format!(
                            "column {col} is on the diagonal or has no equal entry across the diagonal"
                        ),
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
/// A fit from a start needs fewer gradients, for example if the same data are fitted with a
/// sequence of penalties. The optimum is the same. The reference solver ignores it.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// See [`Model::weights`].
    pub weights: &'a Matrix,
    /// See [`Model::intercept`].
    pub intercept: &'a [f64],
    /// See [`Model::couplings`].
    pub couplings: &'a Matrix,
}

/// A fitted model for labels coded as 0 and 1. The log-odds of label i, given the features and the
/// other labels, are `intercept_i + Σ_f x_f weights_fi + Σ_k couplings_ik z_k`.
///
/// A fit that has not converged is also returned; see [`converged`](Self::converged).
#[derive(Debug)]
pub struct Model {
    /// Weights b, of shape (`n_features`, `n_labels`). Constant features have no weights.
    pub weights: Matrix,
    /// One intercept per label. It is −∞ for labels that occur in no row. A label that occurs in
    /// all rows has no weights, and its intercept is `ln(2n + 1)`.
    pub intercept: Vec<f64>,
    /// Couplings c, of shape (`n_labels`, `n_labels`). The matrix is symmetric, and its diagonal is
    /// empty.
    pub couplings: Matrix,
    /// Label sets of the training rows. The search for the most probable label set starts from
    /// them.
    pub sets: LabelSets,
    /// Loss plus penalties at the solution. Labels that occur in no row or in every row are not
    /// included. For the reference solver, it is the value at the extrapolated point where the last
    /// gradient was computed, not at the solution.
    pub objective: f64,
    /// KKT violation of the solution: the largest entry of the smallest subgradient, over weights
    /// and pairs.
    pub violation: f64,
    /// Number of gradients computed.
    pub n_iter: usize,
    /// Whether the KKT violation is within the tolerance. For the reference solver, whether it
    /// stopped before the limit on gradients was reached.
    pub converged: bool,
}

impl Model {
    /// Returns the model of labels that occur in no row or in every row. It has intercepts only,
    /// because nothing can be learned about these labels. `counts` is the number of rows per label.
    ///
    /// Other labels get the intercept −∞, which the fit overwrites later.
    pub(crate) fn of_constants(
        counts: &[usize],
        n_rows: usize,
        n_features: usize,
    ) -> Result<Self, Error> {
        let mut intercept = filled("intercepts", f64::NEG_INFINITY, counts.len())?;
        for (intercept, &count) in intercept.iter_mut().zip(counts) {
            if count == n_rows {
                // The optimal intercept is infinite. This value is the log-odds after adding half a
                // row with the label and half a row without it.
                *intercept = (2.0 * n_rows as f64 + 1.0).ln();
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

/// Distinct sets of coupled labels among the training rows, the most frequent first.
///
/// A label is coupled if it has at least one nonzero coupling. Other labels are left out of the
/// sets. Without couplings there are no sets.
#[derive(Debug, Default, PartialEq)]
pub struct LabelSets {
    /// Set s contains `labels[ends[s]..ends[s + 1]]`, in increasing order.
    pub ends: Vec<usize>,
    /// The labels of all sets, one set after the other.
    pub labels: Vec<u32>,
    /// The sum of the couplings within each set, `Σ_{i<k} c_ik` over its labels.
    pub energies: Vec<f64>,
}

/// Largest number of sets. Further sets come from single rows and hardly help other rows.
const MAX_SETS: usize = 1 << 16;

/// The name of the label sets in memory errors.
const SETS: &str = "label sets of the rows";

impl LabelSets {
    /// Collects the sets of the rows of `y`, and adds up the couplings within each set.
    ///
    /// Sorting the rows takes at most O(stored labels × log(rows)) comparisons of labels. Computing
    /// the energies reads the couplings of the labels of each distinct set.
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
    /// Row r has the labels `labels[ends[r]..ends[r + 1]]`.
    ends: Vec<usize>,
    /// The coupled labels, row by row.
    labels: Vec<u32>,
}

impl RowSets {
    /// Keeps the labels of each row that have couplings, in the order of `y`.
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

    /// Returns one row for each distinct set. The sets are sorted by their number of rows, most
    /// frequent first. Ties are sorted by the labels of the sets, so that the result does not
    /// depend on the order of the rows.
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
