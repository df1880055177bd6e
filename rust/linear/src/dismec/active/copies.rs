//! Copies the rows that a label needs, if X is larger than memory.
//!
//! The solver reads the rows of a working set in any order, and many times. If X is in a file and does not fit in memory,
//! each of these reads would wait for the disk. So if there is a file for memory beyond the limit
//! (`manylabel_base::budget`), the rows of each label are copied first. One pass over X, in increasing order of rows,
//! copies the rows of many labels, and these copies may be in the file. Before the solver reads the rows of a label, it
//! copies them to memory. So files are only read and written in order. The copies have the same values as X, so the
//! results are the same.

use crate::dismec::problem::Problem;
use manylabel_base::streams::{complete, growing};
use manylabel_base::{Error, Watch, budget, extend, filled, push, reserved};
use manylabel_sparse::CsrRef;

/// The number of rows that are copied between two checks for a stop request.
const ROWS_PER_STEP: usize = 1 << 12;

/// The name of copied entries in error messages.
const ENTRIES: &str = "number of entries of the working set";

/// The name of copied rows in error messages.
const ROWS: &str = "number of rows of the working set";

/// Copies rows for the labels of a panel.
#[derive(Debug)]
pub(super) struct Copies {
    /// The largest number of entries that the labels have together whose rows are copied in one pass over X. `None` if
    /// all labels read X.
    room: Option<usize>,
    /// The rows of the label in progress.
    near: OfLabel,
    /// The row ends of the rows of the label in progress. Rows that are not copied are empty; shape (n + 1).
    indptr: Vec<usize>,
}

impl Copies {
    /// Decides whether rows of `problem` are copied.
    pub(super) fn new(problem: &Problem<'_>) -> Self {
        let n_entries = problem.x.view().indices().len();
        let size = n_entries.saturating_mul(size_of::<u32>() + size_of::<f32>());
        let is_large = budget::portion().is_some_and(|bytes| bytes < size);
        Self {
            // The copies of all threads together are as large as X.
            room: is_large.then(|| n_entries / rayon::current_num_threads()),
            near: OfLabel::default(),
            indptr: Vec::new(),
        }
    }

    /// Calls `work` with the position of each label, its state, and a matrix that has the rows of the label: X, or copies
    /// of these rows. `list` appends the rows of a label to a list, in any order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller requested a
    /// stop. Otherwise returns any error of `list` or `work`.
    pub(super) fn each<T>(
        &mut self,
        problem: &Problem<'_>,
        labels: &mut [T],
        list: impl Fn(usize, &T, &mut Vec<u32>) -> Result<(), Error>,
        mut work: impl FnMut(usize, &mut T, CsrRef<'_>) -> Result<(), Error>,
        watch: &Watch,
    ) -> Result<(), Error> {
        let x = problem.x.view();
        let Some(room) = self.room else {
            let mut labels = labels.iter_mut().enumerate();
            return labels.try_for_each(|(at, label)| work(at, label, x));
        };
        let mut begin = 0;
        while begin < labels.len() {
            let mut copies = Vec::new();
            let mut n_entries = 0;
            for (at, label) in (begin..).zip(&labels[begin..]) {
                let mut rows = Vec::new();
                list(at, label, &mut rows)?;
                let copy = OfLabel::new(x, rows)?;
                n_entries += copy.indices.capacity();
                if at > begin && n_entries > room {
                    break;
                }
                push("number of labels", &mut copies, copy)?;
            }
            copy_rows(x, &mut copies, watch)?;
            for copy in copies {
                budget::in_any_order(|| self.near.replace(&copy))?;
                // If a copy was not written to the disk yet, it need not be written any more.
                drop(copy);
                let rows = self.near.view(x, &mut self.indptr)?;
                work(begin, &mut labels[begin], rows)?;
                begin += 1;
            }
        }
        Ok(())
    }
}

/// The copied rows of one label.
#[derive(Debug, Default)]
struct OfLabel {
    /// The numbers of the rows in X, in increasing order.
    rows: Vec<u32>,
    /// The columns of the rows, row after row.
    indices: Vec<u32>,
    /// The values of the rows, row after row.
    values: Vec<f32>,
}

impl OfLabel {
    /// Allocates memory for copies of some rows, which may be listed several times.
    fn new(x: CsrRef<'_>, mut rows: Vec<u32>) -> Result<Self, Error> {
        rows.sort_unstable();
        rows.dedup();
        let n_entries = rows.iter().map(|&row| x.row(row as usize).0.len()).sum();
        Ok(Self {
            rows,
            indices: growing(ENTRIES, n_entries)?,
            values: growing(ENTRIES, n_entries)?,
        })
    }

    /// Replaces the rows by those of another label.
    fn replace(&mut self, by: &Self) -> Result<(), Error> {
        if self.values.capacity() < by.values.len() {
            // The old memory is freed before the new memory is allocated.
            *self = Self::default();
            self.indices = reserved(ENTRIES, by.indices.len())?;
            self.values = reserved(ENTRIES, by.values.len())?;
        }
        self.rows.clear();
        self.indices.clear();
        self.values.clear();
        extend(ROWS, &mut self.rows, by.rows.iter().copied())?;
        extend(ENTRIES, &mut self.indices, by.indices.iter().copied())?;
        extend(ENTRIES, &mut self.values, by.values.iter().copied())
    }

    /// Returns a matrix in which rows have the same numbers as in X. Rows that are not copied are empty. `indptr` gets
    /// the row ends.
    fn view<'a>(&'a self, x: CsrRef<'_>, indptr: &'a mut Vec<usize>) -> Result<CsrRef<'a>, Error> {
        if indptr.is_empty() {
            *indptr = filled("number of rows", 0, x.n_rows() + 1)?;
        }
        let (mut next, mut end) = (0, 0);
        for &row in &self.rows {
            let row = row as usize;
            indptr[next..=row].fill(end);
            next = row + 1;
            end += x.row(row).0.len();
        }
        indptr[next..].fill(end);
        CsrRef::new(indptr, &self.indices, &self.values, x.n_cols())
    }
}

/// Copies the rows of several labels, in one pass over `x`.
fn copy_rows(x: CsrRef<'_>, copies: &mut [OfLabel], watch: &Watch) -> Result<(), Error> {
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for (at, copy) in (0..).zip(&*copies) {
        extend(ROWS, &mut pairs, copy.rows.iter().map(|&row| (row, at)))?;
    }
    pairs.sort_unstable();
    for (step, &(row, at)) in pairs.iter().enumerate() {
        if step % ROWS_PER_STEP == 0 {
            watch.step(0)?;
        }
        let (cols, values) = x.row(row as usize);
        let copy = &mut copies[at as usize];
        extend(ENTRIES, &mut copy.indices, cols.iter().copied())?;
        extend(ENTRIES, &mut copy.values, values.iter().copied())?;
    }
    for copy in copies {
        complete(&copy.indices);
        complete(&copy.values);
    }
    Ok(())
}
