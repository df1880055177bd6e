//! Collects the scores of held-out rows by label, with the information which of them are hits.
//!
//! Scores arrive by row, as a classifier returns them. Curves are fitted by label. [`Pairs::new`] transposes the
//! scores by counting, in two passes over the stored entries.

use manylabel_base::range::same;
use manylabel_base::{Error, collected, filled};
use manylabel_sparse::{CsrView, Index, Value};

/// The candidates of all held-out rows, grouped by label. The pairs of a label are in the order of the rows.
///
/// A true label that is not a candidate of its row is not a pair. No curve is fitted to such labels, since they
/// have no score.
///
/// ```
/// use manylabel_decision::Pairs;
/// use manylabel_sparse::CsrView;
///
/// // One row with the candidates 0 and 2 of three labels.
/// let scores = CsrView::new("scores", &[0i32, 2], &[0, 2], &[0.5f32, -0.5], 3)?;
/// let y = CsrView::new("Y", &[0i32, 1], &[2], &[1.0f32], 3)?;
/// assert_eq!(Pairs::new(scores, y)?.n_labels(), 3);
/// # Ok::<(), manylabel_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Pairs {
    /// Label l has the pairs `ends[l]..ends[l + 1]`.
    pub(crate) ends: Vec<usize>,
    /// The score of each pair.
    pub(crate) scores: Vec<f64>,
    /// Whether the label of the pair is a true label of its row.
    pub(crate) hits: Vec<bool>,
    /// The row of each pair.
    pub(crate) rows: Vec<u32>,
}

/// Purpose of the memory, in error messages.
const PAIRS: &str = "number of candidates";

impl Pairs {
    /// Collects the stored entries of `scores`. `y` has the true labels of the same rows. The time is linear in
    /// the number of stored entries.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `scores` and `y` have different shapes, [`Error::Param`] if a score is not
    /// finite, and [`Error::TooLarge`] if memory is short.
    pub fn new<I: Index, T: Value, J: Index, U: Value>(
        scores: CsrView<'_, I, T>,
        y: CsrView<'_, J, U>,
    ) -> Result<Self, Error> {
        same("rows of Y", scores.n_rows(), y.n_rows())?;
        same("columns of Y", scores.n_cols(), y.n_cols())?;
        let mut ends = filled("number of labels", 0usize, scores.n_cols() + 1)?;
        for row in 0..scores.n_rows() {
            for &label in scores.row(row).0 {
                ends[label.get() + 1] += 1;
            }
        }
        for label in 0..scores.n_cols() {
            ends[label + 1] += ends[label];
        }
        let mut next = collected("number of labels", ends.iter().copied())?;
        let mut pairs = Self {
            scores: filled(PAIRS, 0.0, scores.nnz())?,
            hits: filled(PAIRS, false, scores.nnz())?,
            rows: filled(PAIRS, 0, scores.nnz())?,
            ends,
        };
        for row in 0..scores.n_rows() {
            let (labels, values) = scores.row(row);
            let mut of_row = y.row(row).0.iter().map(|label| label.get()).peekable();
            for (&label, &value) in labels.iter().zip(values) {
                let (label, value) = (label.get(), value.f64());
                if !value.is_finite() {
                    return Err(Error::Param {
                        name: "scores",
                        expected: "finite",
                        got: format!("{value} in row {row}"),
                    });
                }
                while of_row.next_if(|&known| known < label).is_some() {}
                let at = next[label];
                next[label] += 1;
                pairs.scores[at] = value;
                pairs.hits[at] = of_row.peek() == Some(&label);
                pairs.rows[at] = row as u32;
            }
        }
        Ok(pairs)
    }

    /// Returns the number of labels.
    pub fn n_labels(&self) -> usize {
        self.ends.len() - 1
    }

    /// Returns the positions of the pairs of a label.
    pub(crate) fn of(&self, label: usize) -> std::ops::Range<usize> {
        self.ends[label]..self.ends[label + 1]
    }

    /// Returns the number of hits among the pairs of a label.
    pub(crate) fn n_hits(&self, label: usize) -> usize {
        self.hits[self.of(label)].iter().filter(|&&hit| hit).count()
    }

    /// Returns the positions of all pairs by increasing score. Pairs with equal scores keep their order.
    pub(crate) fn by_score(&self) -> Result<Vec<u32>, Error> {
        let n = u32::try_from(self.scores.len()).map_err(|_| Error::TooLarge {
            what: PAIRS,
            got: format!("{}; at most {} are supported", self.scores.len(), u32::MAX),
        })?;
        let mut order = collected(PAIRS, 0..n)?;
        order.sort_unstable_by(|&a, &b| {
            let [of_a, of_b] = [a, b].map(|at| self.scores[at as usize]);
            of_a.total_cmp(&of_b).then(a.cmp(&b))
        });
        Ok(order)
    }
}

/// Divides the labels into groups of similar frequency. Returns the group of each label, and the number of
/// groups.
///
/// Labels with the frequency 1 form a group, labels with the frequencies 2 and 3 form the next group, then 4 to 7,
/// and so on. Neighbouring groups are merged until each has at least [`ENOUGH_HITS`] hits.
pub(crate) fn groups(pairs: &Pairs, frequency: &[u32]) -> Result<(Vec<u32>, usize), Error> {
    const DIGITS: usize = u32::BITS as usize + 1;
    let digits = |count: u32| (u32::BITS - count.leading_zeros()) as usize;
    let mut hits = [0; DIGITS];
    for (label, &count) in frequency.iter().enumerate() {
        hits[digits(count)] += pairs.n_hits(label);
    }
    let mut group_of = [0u32; DIGITS];
    let (mut group, mut in_group) = (0, 0);
    for (digit, &more) in hits.iter().enumerate() {
        group_of[digit] = group;
        in_group += more;
        if in_group >= ENOUGH_HITS {
            (group, in_group) = (group + 1, 0);
        }
    }
    // The last group has too few hits, so it joins the group before it.
    let n_groups = group.max(1);
    let of_labels = frequency
        .iter()
        .map(|&count| group_of[digits(count)].min(n_groups - 1));
    Ok((collected("number of labels", of_labels)?, n_groups as usize))
}

/// Smallest number of hits of a group. The log-odds of a group then have a standard error of about 0.1, which
/// is less than the differences between groups.
const ENOUGH_HITS: usize = 100;
