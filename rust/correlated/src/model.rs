//! The result of a fit, which is also what a later fit may start from.
//!
//! Everything here is in the caller's terms: original feature and label numbers, features as given
//! (not scaled), labels of 0 and 1. Weights are stored by feature, as scoring reads them.

use manylabel_base::{Error, Watch, collected, copied, extend, filled, push, reserved};
use manylabel_sparse::{CsrView, Index, Sparse, with_sparse};
use rayon::prelude::*;
use std::cmp::Reverse;

/// A sparse matrix in compressed rows and double precision. The columns of a row increase.
#[derive(Debug, PartialEq)]
pub struct Matrix {
    /// Row r has `cols[ends[r]..ends[r + 1]]`; length number of rows + 1, the first entry 0.
    pub ends: Vec<usize>,
    /// Columns, row after row.
    pub cols: Vec<u32>,
    /// Values, in the same order as the columns.
    pub values: Vec<f64>,
    /// Number of columns.
    pub n_cols: usize,
}

impl Matrix {
    /// A matrix without rows, to which up to `n_rows` rows can be appended without allocating
    /// `ends` again.
    ///
    /// [`push`](Self::push) appends to the current row, [`end_row`](Self::end_row) finishes it.
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

    /// Appends an entry to the current row. The caller keeps columns increasing.
    pub(crate) fn push(&mut self, col: u32, value: f64) -> Result<(), Error> {
        push("weights", &mut self.cols, col)?;
        push("weights", &mut self.values, value)
    }

    /// Finishes the current row.
    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.cols.len())
    }

    /// A square matrix of n rows from (row, column, value) triplets in any order, each cell at most
    /// once. Takes O(entries log(entries) + n).
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

    /// Columns and values of one row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn row(&self, row: usize) -> (&[u32], &[f64]) {
        let range = self.ends[row]..self.ends[row + 1];
        (&self.cols[range.clone()], &self.values[range])
    }

    /// Checks that each entry equals its mirror image bit by bit and that none is on the diagonal,
    /// in O(entries).
    ///
    /// One cursor per row suffices: rows are visited in order, so that mirror images in a row are
    /// met in order, too.
    ///
    /// # Errors
    ///
    /// [`Error::Csr`] with the first row that breaks the rule. The matrix is named `correlations_`,
    /// as the fitted attribute that callers can change.
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
                        rule: format!("column {col} breaks the symmetry or is on the diagonal"),
                    });
                }
                *mirror += 1;
            }
        }
        Ok(())
    }
}

/// A model to start a fit from: parts of one fitted to the same features and labels.
///
/// A start saves gradients, for example along a path of penalties. It does not change the optimum.
/// The reference solver ignores it.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// See [`Model::weights`].
    pub weights: &'a Matrix,
    /// See [`Model::intercept`].
    pub intercept: &'a [f64],
    /// See [`Model::couplings`].
    pub couplings: &'a Matrix,
}

/// A fitted model in 0/1 coding. The log-odds of label i, given the features and the other labels,
/// are `intercept_i + Σ_f x_f weights_fi + Σ_k couplings_ik z_k`.
///
/// A fit that has not converged is also returned; see [`converged`](Self::converged).
#[derive(Debug)]
pub struct Model {
    /// Weights b, of shape (`n_features`, `n_labels`). Features that do not vary have none.
    pub weights: Matrix,
    /// One intercept per label; −∞ for labels that no row holds. A label that all rows hold has no
    /// weights and the intercept `ln(2n + 1)`.
    pub intercept: Vec<f64>,
    /// Couplings c, of shape (`n_labels`, `n_labels`), symmetric, with an empty diagonal.
    pub couplings: Matrix,
    /// Label sets of the training rows, from which the search for the most probable label set
    /// starts.
    pub sets: LabelSets,
    /// Loss plus penalties at the solution. Labels that no row or every row holds are not part of
    /// it. With the reference solver, the value at the point of its last gradient.
    pub objective: f64,
    /// KKT violation of the solution: the largest entry of the least subgradient, over weights and
    /// pairs.
    pub violation: f64,
    /// Number of gradients taken.
    pub n_iter: usize,
    /// Whether the KKT violation is within the tolerance; with the reference solver, whether it
    /// stopped before the gradients ran out.
    pub converged: bool,
}

impl Model {
    /// The model of labels that no row or every row holds. It has intercepts only, because nothing
    /// can be learned about these labels. `counts`: number of rows per label.
    ///
    /// The other labels get the intercept −∞ for now; the fit overwrites it.
    pub(crate) fn of_constants(
        counts: &[usize],
        n_rows: usize,
        n_features: usize,
    ) -> Result<Self, Error> {
        let mut intercept = filled("intercepts", f64::NEG_INFINITY, counts.len())?;
        for (intercept, &count) in intercept.iter_mut().zip(counts) {
            if count == n_rows {
                // The optimum is infinite. This is the log-odds with half a row added to each side.
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
/// A label is coupled if it has at least one nonzero coupling; other labels are left out of the
/// sets. Without couplings there are no sets.
#[derive(Debug, Default, PartialEq)]
pub struct LabelSets {
    /// Set s has `labels[ends[s]..ends[s + 1]]`, in increasing order.
    pub ends: Vec<usize>,
    /// The labels, set after set.
    pub labels: Vec<u32>,
    /// The sum of the couplings within each set, `Σ_{i<k} c_ik` over its labels.
    pub energies: Vec<f64>,
}

/// Largest number of sets. Beyond this many, the sets of single rows hardly help other rows.
const MAX_SETS: usize = 1 << 16;

/// The name of the label sets in errors about memory.
const SETS: &str = "label sets of the rows";

impl LabelSets {
    /// Collects the sets of the rows of `y` and adds up the couplings within each.
    ///
    /// Sorting the rows takes O(stored labels × log(rows)) comparisons of labels at most; energies
    /// take the couplings of the labels of each distinct set.
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
    /// Row r has `labels[ends[r]..ends[r + 1]]`.
    ends: Vec<usize>,
    /// The coupled labels, row after row.
    labels: Vec<u32>,
}

impl RowSets {
    /// Keeps the labels of each row that have couplings; their order is that of `y`.
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

    /// The coupled labels of one row, in increasing order.
    fn get(&self, row: usize) -> &[u32] {
        &self.labels[self.ends[row]..self.ends[row + 1]]
    }

    /// One row for each distinct set, ordered by how many rows have the set, most first. Ties are
    /// ordered by the labels of the sets, so that the result does not depend on the order of the
    /// rows.
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
