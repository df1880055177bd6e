//! Copies the rows that the labels of a panel need, if X is larger than memory.
//!
//! The solver reads the rows of a working set in any order, and many times. If X is in a file and does not fit in memory,
//! each of these reads would wait for the disk. So if there is a file for memory beyond the limit
//! (`manylabel_base::budget`), one pass over X copies the rows of many labels, and these copies may be in the file. Before
//! the solver reads the rows of a label, it copies them to memory. So files are only read and written in order. The
//! copies have the same values as X, so the results are the same.

use crate::dismec::problem::Problem;
use manylabel_base::{Error, Watch, budget, extend, filled, reserved};
use manylabel_sparse::{CsrOwned, CsrRef};

/// The name of copied entries in error messages.
const ENTRIES: &str = "number of entries of the working set";

/// The rows that the labels of a panel read.
#[derive(Debug)]
pub(super) struct Copies {
    /// The largest number of entries that the labels have together whose rows are copied in one pass over X. `None` if
    /// all labels read X.
    pub(super) room: Option<usize>,
    /// The rows of the label in progress. They have the same numbers as in X, and all other rows are empty.
    near: CsrOwned,
}

impl Copies {
    /// Decides whether rows of `problem` are copied.
    pub(super) fn new(problem: &Problem<'_>) -> Self {
        Self {
            room: problem.x.view().room_for_copies(),
            near: CsrOwned {
                indptr: Vec::new(),
                indices: Vec::new(),
                values: Vec::new(),
                n_cols: problem.dim(),
            },
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
            let lists = (begin..).zip(&labels[begin..]).map(|(at, label)| {
                let mut rows = Vec::new();
                list(at, label, &mut rows)?;
                Ok(rows)
            });
            for (rows, copy) in x.copy_lists(lists, room, watch)? {
                budget::in_any_order(|| self.bring(&rows, &copy, x.n_rows()))?;
                // If a copy was not written to the disk yet, it need not be written any more.
                drop(copy);
                work(begin, &mut labels[begin], self.near.view())?;
                begin += 1;
            }
        }
        Ok(())
    }

    /// Copies the rows of a label to memory.
    fn bring(&mut self, rows: &[u32], copy: &CsrOwned, n_rows: usize) -> Result<(), Error> {
        let CsrOwned {
            indptr,
            indices,
            values,
            ..
        } = &mut self.near;
        if indptr.is_empty() {
            *indptr = filled("number of rows", 0, n_rows + 1)?;
        }
        if values.capacity() < copy.values.len() {
            // The old memory is freed before the new memory is allocated.
            (*indices, *values) = (Vec::new(), Vec::new());
            *indices = reserved(ENTRIES, copy.indices.len())?;
            *values = reserved(ENTRIES, copy.values.len())?;
        }
        indices.clear();
        values.clear();
        extend(ENTRIES, indices, copy.indices.iter().copied())?;
        extend(ENTRIES, values, copy.values.iter().copied())?;
        let mut next = 0;
        for (&row, &begin) in rows.iter().zip(&copy.indptr) {
            indptr[next..=row as usize].fill(begin);
            next = row as usize + 1;
        }
        indptr[next..].fill(values.len());
        Ok(())
    }
}
