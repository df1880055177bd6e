//! What a fit returns, and what a later one may start from.

use manylabel_base::{Error, Watch, collected, copied, extend, filled, push, reserved};
use manylabel_sparse::{CsrView, Index};
use rayon::prelude::*;
use std::cmp::Reverse;

/// Compressed sparse rows in double precision, columns of a row in increasing order.
#[derive(Debug, PartialEq)]
pub struct Matrix {
    /// Row r holds `cols[ends[r]..ends[r + 1]]`.
    pub ends: Vec<usize>,
    /// Columns, row after row.
    pub cols: Vec<u32>,
    /// Values, row after row.
    pub values: Vec<f64>,
    /// Number of columns.
    pub n_cols: usize,
}

impl Matrix {
    /// No row yet, and room for the ends of `n_rows`.
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

    pub(crate) fn push(&mut self, col: u32, value: f64) -> Result<(), Error> {
        push("weights", &mut self.cols, col)?;
        push("weights", &mut self.values, value)
    }

    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.cols.len())
    }

    /// A square matrix of (row, column, value), each cell at most once.
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

    /// Whether each entry has its mirror image, and none is on the diagonal, in O(entries).
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
                        rule: format!("column {col} breaks its symmetry or is on its diagonal"),
                    });
                }
                *mirror += 1;
            }
        }
        Ok(())
    }
}

/// A model to start from: the parts of one fitted to the same features and labels.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// As [`Model::weights`].
    pub weights: &'a Matrix,
    /// As [`Model::intercept`].
    pub intercept: &'a [f64],
    /// As [`Model::couplings`].
    pub couplings: &'a Matrix,
}

/// A fitted model, in 0/1 coding: the log-odds of label i given features and the other labels are
/// `intercept_i + Σ_f x_f weights_fi + Σ_k couplings_ik z_k`.
#[derive(Debug)]
pub struct Model {
    /// (`n_features`, `n_labels`).
    pub weights: Matrix,
    /// One a label; −∞ for labels that no row holds.
    pub intercept: Vec<f64>,
    /// (`n_labels`, `n_labels`), symmetric, without diagonal.
    pub couplings: Matrix,
    /// Where the search for the most probable label set begins.
    pub sets: LabelSets,
    /// Loss and penalty at the solution, labels held by no row or all rows left out.
    pub objective: f64,
    /// The least subgradient's largest entry.
    pub violation: f64,
    /// Gradients taken.
    pub n_iter: usize,
    /// Whether the violation is within tolerance; with the reference solver, whether it stopped.
    pub converged: bool,
}

impl Model {
    /// Of labels alone that no row holds, or all: nothing can be learned of them.
    pub(crate) fn of_constants(
        counts: &[usize],
        n_rows: usize,
        n_features: usize,
    ) -> Result<Self, Error> {
        let mut intercept = filled("intercepts", f64::NEG_INFINITY, counts.len())?;
        for (intercept, &count) in intercept.iter_mut().zip(counts) {
            if count == n_rows {
                // The optimum is infinite; this is the odds with half a row more on each side.
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
#[derive(Debug, Default, PartialEq)]
pub struct LabelSets {
    /// Set s holds `labels[ends[s]..ends[s + 1]]`, in increasing order.
    pub ends: Vec<usize>,
    /// Labels, set after set.
    pub labels: Vec<u32>,
    /// The couplings within each set.
    pub energies: Vec<f64>,
}

/// Sets kept at most; beyond, rows of their own hardly help others.
const MAX_SETS: usize = 1 << 16;

/// What is named if there is no memory for sets.
const SETS: &str = "label sets of the rows";

impl LabelSets {
    pub(crate) fn new<J: Index, U: Copy>(
        y: CsrView<'_, J, U>,
        couplings: &Matrix,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let mut sets = Self::default();
        push(SETS, &mut sets.ends, 0)?;
        if couplings.values.is_empty() {
            return Ok(sets);
        }
        let rows = RowSets::new(y, couplings, watch)?;
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
    /// Row r holds `labels[ends[r]..ends[r + 1]]`.
    ends: Vec<usize>,
    labels: Vec<u32>,
}

impl RowSets {
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

    fn get(&self, row: usize) -> &[u32] {
        &self.labels[self.ends[row]..self.ends[row + 1]]
    }

    /// A row for each distinct set, the set that most rows hold first; ties go to the one that is first
    /// in the order of its labels.
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
