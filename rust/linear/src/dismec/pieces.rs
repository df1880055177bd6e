//! Fits the labels of DiSMEC in pieces. A piece is a range of panels, which are groups of labels of similar
//! frequency: sixteen labels that are not rare, or thirty-two rare labels. The weights of a piece depend only on
//! the data, the parameters and the piece. So pieces can be fitted at different times, in different processes and
//! on different machines, and the result is the same as that of one fit, bit for bit.

use super::fit::{Model, Solved, Spaces, by_label};
use super::packed::GROUP;
use super::params::Checked;
use super::problem::{Columns, Problem};
use super::start::Start;
use super::unseen::{Sample, Unseen};
use super::{Effort, Targets, active, optimum};
use crate::Tally;
use crate::panel::LANES;
use manylabel_base::range::same_rows;
use manylabel_base::{Error, Watch, collected, copied, few, parts};
use manylabel_sparse::{CsrOwned, CsrRef, Sparse, Stored};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Rows whose arrays belong to the caller, such as arrays that are mapped from files.
///
/// [`scale_into`](manylabel_sparse::scale_into) writes `x` with the parameters `normalize` and `fit_intercept` of
/// the fit. [`CsrRef::transpose_into`] writes `xt`.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    /// The scaled rows without empty columns, and with a column of ones if intercepts are fitted.
    pub x: CsrRef<'a>,
    /// The transpose of `x`. It is needed only if some labels are not rare.
    pub xt: Option<CsrRef<'a>>,
    /// The original number of each column of `x`, in increasing order, without the column of ones.
    pub features: &'a [u32],
    /// The number of features of the original X.
    pub n_features: usize,
}

/// A training set with its labels in the order in which they are fitted.
#[derive(Debug)]
pub struct Task<'a> {
    params: Checked,
    problem: Problem<'a>,
    /// The transpose of the rows, if the caller owns it.
    xt: Option<CsrRef<'a>>,
    /// The labels that have positive rows, in the order in which they are fitted. Labels that are not rare come
    /// first.
    labels: Vec<u32>,
    /// The number of labels that are not rare.
    n_frequent: usize,
    /// The samples of frequent and of rare labels. Held-out rows are scored for the labels in the samples.
    samples: (Sample, Sample),
    /// The held-out rows.
    unseen: Option<Unseen>,
    /// Weights from which the solver of frequent labels begins.
    start: Option<Start>,
    /// The training set by column. It is computed when the first panel of frequent labels is fitted.
    columns: OnceLock<Columns<'a>>,
    /// Locked by the thread that computes `columns`.
    computing: Mutex<()>,
    /// The workspaces of the solvers.
    spaces: Spaces,
}

/// The fitted weights of a range of panels.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The labels of the piece, in increasing order.
    pub labels: Vec<u32>,
    /// The weights that remain after pruning; shape (labels of the piece, `n_features`).
    pub weights: CsrOwned,
    /// The intercepts, in the order of `labels`.
    pub intercept: Vec<f32>,
    /// The number of steps of each label, in the order of `labels`.
    pub n_iter: Vec<u32>,
    /// The scores of held-out rows that may influence the threshold. `None` if no threshold is learned.
    pub tally: Option<Tally>,
}

impl Checked {
    /// Copies a training set, to fit ranges of panels with these parameters.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub fn task<'a, 'y>(
        &self,
        x: Sparse<'_>,
        y: impl Into<Targets<'y>>,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Task<'a>, Error> {
        let y = y.into();
        y.check()?;
        same_rows(x.n_rows(), y.labels.ones.n_rows(), weights, None)?;
        Task::new(self, Problem::new(x, y, weights, &self.0, watch)?, None)
    }

    /// Borrows prepared rows, to fit ranges of panels with these parameters. Unlike [`task`](Self::task), this
    /// method does not copy X.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub fn prepared_task<'a, 'y>(
        &self,
        rows: Prepared<'a>,
        y: impl Into<Targets<'y>>,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Task<'a>, Error> {
        let y = y.into();
        y.check()?;
        same_rows(rows.x.n_rows(), y.labels.ones.n_rows(), weights, None)?;
        let features = copied("number of features", rows.features)?;
        let problem = Problem::of_stored(
            Stored::Borrowed(rows.x),
            (features, rows.n_features),
            y.to_outputs()?,
            weights,
            &self.0,
            watch,
        )?;
        Task::new(self, problem, rows.xt)
    }
}

impl<'a> Task<'a> {
    fn new(params: &Checked, problem: Problem<'a>, xt: Option<CsrRef<'a>>) -> Result<Self, Error> {
        // Labels are sorted by frequency, because labels of similar frequency need similar numbers of steps.
        // So the labels of a panel finish at about the same time.
        let (labels, n_frequent) = params.by_frequency(&problem, &Effort::FULL, None)?;
        let (frequent, rare) = labels.split_at(n_frequent);
        let samples = (Sample::of(frequent.len()), Sample::of(rare.len()));
        let unseen = if params.0.learn_cut {
            let drawn = samples.0.labels(frequent).chain(samples.1.labels(rare));
            Unseen::new(&problem.cost, |label| problem.positives(label), drawn)?
        } else {
            None
        };
        Ok(Self {
            params: params.clone(),
            problem,
            xt,
            labels,
            n_frequent,
            samples,
            unseen,
            start: None,
            columns: OnceLock::new(),
            computing: Mutex::new(()),
            spaces: Spaces::default(),
        })
    }

    /// Makes the solver of frequent labels begin with given weights, such as those of a fit to fewer rows. The
    /// result is the same within the tolerance. Rare labels do not use these weights: coordinate descent begins
    /// with dual variables, and with the rows that violate the margin of its own intermediate weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the numbers of labels or features differ from those of the task.
    pub fn start_from(&mut self, start: Start) -> Result<(), Error> {
        start.check(self.n_labels(), self.n_features())?;
        self.start = Some(start);
        Ok(())
    }

    /// Returns the number of panels.
    pub fn n_panels(&self) -> usize {
        let n_rare = self.labels.len() - self.n_frequent;
        self.n_frequent.div_ceil(LANES) + n_rare.div_ceil(GROUP)
    }

    /// Returns the number of labels, including labels without a positive row.
    pub fn n_labels(&self) -> usize {
        self.problem.n_labels()
    }

    /// Returns the number of features of the original X.
    pub fn n_features(&self) -> usize {
        self.problem.n_features
    }

    /// Fits a range of panels, on all threads of the pool. `watch` counts finished labels.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Checked::fit`]. Also returns [`Error::Param`] if a panel has labels that are
    /// not rare, and the caller owns the rows but has no transpose.
    pub fn fit(&self, panels: Range<usize>, watch: &Watch) -> Result<Piece, Error> {
        let (solved, tally) = self.solve(panels, watch)?;
        let labels = solved.iter().flatten().map(|solved| solved.label);
        let mut labels = collected("number of labels", labels)?;
        labels.sort_unstable();
        let solution = by_label(labels.iter().copied(), self.problem.n_features, solved)?;
        Ok(Piece {
            labels,
            weights: solution.weights,
            intercept: solution.intercept,
            n_iter: solution.n_iter,
            tally,
        })
    }

    /// Fits all panels.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub fn model(&self, watch: &Watch) -> Result<Model, Error> {
        let (solved, tally) = self.solve(0..self.n_panels(), watch)?;
        let solved = by_label(0..self.n_labels() as u32, self.n_features(), solved)?;
        Ok(Model {
            weights: solved.weights.transpose()?,
            intercept: solved.intercept,
            n_iter: solved.n_iter,
            cut: tally.and_then(|mut tally| tally.cut(0.0)),
        })
    }

    /// Fits a range of panels. Returns the weights of the labels of each panel, and the scores of the held-out
    /// rows or `None`.
    pub(super) fn solve(
        &self,
        panels: Range<usize>,
        watch: &Watch,
    ) -> Result<(Vec<Vec<Solved>>, Option<Tally>), Error> {
        let (frequent, rare) = self.labels.split_at(self.n_frequent);
        let n_frequent = frequent.len().div_ceil(LANES);
        let all = frequent.chunks(LANES).chain(rare.chunks(GROUP));
        let all = all.enumerate().skip(panels.start).take(panels.len());
        let all: Vec<(usize, &[u32])> = few(all);
        if panels.start < n_frequent {
            self.columns(watch)?;
        }
        let tally = self
            .unseen
            .as_ref()
            .map(|unseen| Mutex::new(unseen.tally()));
        let fitted = all.par_iter().map(|&(panel, labels)| {
            let solved = match panel.checked_sub(n_frequent) {
                None => self.frequent(panel, labels, tally.as_ref(), watch),
                Some(panel) => self.rare(panel, labels, tally.as_ref(), watch),
            }?;
            watch.step(labels.len())?;
            Ok(solved)
        });
        let fitted = parts(fitted)?;
        // After a panic the fit fails in any case, so the value behind a poisoned lock may be used.
        let tally = tally.map(|tally| tally.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok((fitted, tally))
    }

    /// Fits a panel of labels that are not rare.
    fn frequent(
        &self,
        panel: usize,
        labels: &[u32],
        tally: Option<&Mutex<Tally>>,
        watch: &Watch,
    ) -> Result<Vec<Solved>, Error> {
        let (problem, params) = (&self.problem, &self.params);
        let columns = self.columns(watch)?;
        let new = || optimum::Workspace::new(problem);
        self.spaces.optimum.with(new, |space| {
            let rule = (params.0.tol, params.0.max_iter);
            let start = self.start.as_ref();
            let n_iter = optimum::solve(problem, columns, labels, start, rule, space, watch)?;
            let kept = |lane, prune| space.kept(problem.features.len(), lane, prune);
            let solved = params.prune_panel(problem, labels, &n_iter, kept)?;
            let unseen = self.unseen.as_ref().zip(tally);
            if let (Some((unseen, tally)), Some(weight)) = (unseen, self.samples.0.weight(panel)) {
                let n_steps = optimum::steps_to_unlearn(n_iter.into_iter().max().unwrap_or(0));
                let sizes = (labels.len(), n_steps);
                unseen.count(problem, labels.len(), weight, tally, |tell| {
                    optimum::unlearn(problem, columns, unseen, sizes, space, watch, tell)
                })?;
            }
            Ok(solved)
        })
    }

    /// Fits a panel of rare labels.
    fn rare(
        &self,
        panel: usize,
        labels: &[u32],
        tally: Option<&Mutex<Tally>>,
        watch: &Watch,
    ) -> Result<Vec<Solved>, Error> {
        let (problem, params) = (&self.problem, &self.params);
        let new = || active::Workspace::new(problem);
        self.spaces.active.with(new, |space| {
            let n_iter = active::solve(
                problem,
                labels,
                None,
                &params.0,
                &Effort::FULL,
                space,
                watch,
            )?;
            let kept = |lane, prune| space.kept(problem, lane, prune);
            let solved = params.prune_panel(problem, labels, &n_iter, kept)?;
            for (half, labels) in labels.chunks(LANES).enumerate() {
                let unseen = self.unseen.as_ref().zip(tally);
                let weight = self.samples.1.weight(GROUP / LANES * panel + half);
                if let (Some((unseen, tally)), Some(weight)) = (unseen, weight) {
                    let labels_of_half = (half * LANES, labels);
                    let params = &params.0;
                    active::unlearn(problem, unseen, labels_of_half, params, space, watch)?;
                    unseen.count(problem, labels.len(), weight, tally, |tell| {
                        active::score_unseen(problem, unseen, labels_of_half, space, watch, tell)
                    })?;
                }
            }
            Ok(solved)
        })
    }

    /// Returns the training set by column. The first call computes it.
    fn columns(&self, watch: &Watch) -> Result<&Columns<'a>, Error> {
        if let Some(columns) = self.columns.get() {
            return Ok(columns);
        }
        let _computing = self
            .computing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.columns.get().is_none() {
            let frequent = &self.labels[..self.n_frequent];
            let columns = match self.xt {
                Some(xt) => self.problem.columns_of(Stored::Borrowed(xt))?,
                None => self.problem.columns(frequent, watch)?,
            };
            let _ = self.columns.set(columns);
        }
        Ok(self.columns.get().expect("set under the lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dismec::{Factors, Params};
    use fastrand::Rng;
    use manylabel_sparse::{CsrMut, CsrView, Labels, scale_into};

    /// Rows of twelve features. Label 0 is frequent, and the others are rare.
    fn data() -> (Vec<i32>, Vec<i32>, Vec<f32>, CsrOwned) {
        let mut rng = Rng::with_seed(3);
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        let (mut ends, mut labels) = (vec![0], Vec::new());
        for row in 0..4000u32 {
            let label = row % 160;
            for col in 0..12 {
                if col == label % 12 || rng.f32() < 0.3 {
                    indices.push(col as i32);
                    values.push(rng.f32() + 0.5);
                }
            }
            indptr.push(indices.len() as i32);
            if row % 5 == 0 {
                labels.push(0);
            }
            if label > 0 {
                labels.push(label);
            }
            ends.push(labels.len());
        }
        let y = CsrOwned {
            indptr: ends,
            values: vec![1.0; labels.len()],
            indices: labels,
            n_cols: 170,
        };
        (indptr, indices, values, y)
    }

    #[test]
    fn pieces_and_prepared_rows_give_the_bits_of_one_fit() {
        let (.., y) = data();
        check_pieces(Targets::from(&y));
    }

    #[test]
    fn pieces_with_unknown_pairs_and_factors_give_the_bits_of_one_fit() {
        let (.., y) = data();
        let unknown = unknown(&y);
        let factor = |label| Factors {
            positive: 1.0 + (label % 7) as f32,
            negative: 1.0 + (label % 3) as f32 / 4.0,
        };
        let factors: Vec<_> = (0..170).map(factor).collect();
        check_pieces(Targets {
            labels: Labels {
                ones: &y,
                unknown: Some(&unknown),
            },
            factors: Some(&factors),
        });
    }

    /// Marks about a twentieth of the pairs that are not ones.
    fn unknown(y: &CsrOwned) -> CsrOwned {
        let mut rng = Rng::with_seed(4);
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for row in 0..y.n_rows() {
            let absent = (0..170).filter(|label| !y.row(row).0.contains(label));
            indices.extend(absent.filter(|_| rng.f32() < 0.05));
            indptr.push(indices.len());
        }
        CsrOwned {
            indptr,
            values: vec![1.0; indices.len()],
            indices,
            n_cols: 170,
        }
    }

    /// Compares a fit with fits of pieces, of copied rows and of prepared rows.
    fn check_pieces(y: Targets<'_>) {
        let (indptr, indices, values, _) = data();
        let watch = Watch::new();
        let x = CsrView::new("X", &indptr, &indices, &values, 12).expect("valid");
        let params = Params {
            learn_cut: true,
            ..Params::default()
        };
        let params = params.check().expect("in range");
        let whole = params
            .fit(Sparse::I32F32(x), y, None, &watch)
            .expect("fits");
        assert!(whole.cut.is_some());

        let room = x.nnz() + x.n_rows();
        let mut arrays = (vec![0; x.n_rows() + 1], vec![0; room], vec![0.0; room]);
        let mut out = CsrMut {
            indptr: &mut arrays.0,
            indices: &mut arrays.1,
            values: &mut arrays.2,
        };
        let features = scale_into(x, true, true, &mut out, &watch).expect("room");
        let rows = CsrRef::new(&arrays.0, &arrays.1, &arrays.2, 13).expect("valid");
        let mut turned = (vec![0; 14], vec![0; room], vec![0.0; room]);
        let mut out = CsrMut {
            indptr: &mut turned.0,
            indices: &mut turned.1,
            values: &mut turned.2,
        };
        rows.transpose_into(&mut out, &watch).expect("room");
        let xt = CsrRef::new(&turned.0, &turned.1, &turned.2, 4000).expect("valid");
        let prepared = |xt| Prepared {
            x: rows,
            xt,
            features: &features,
            n_features: 12,
        };
        let copied = params
            .task(Sparse::I32F32(x), y, None, &watch)
            .expect("fits");
        let mapped = params.prepared_task(prepared(Some(xt)), y, None, &watch);
        for task in [copied, mapped.expect("fits")] {
            assert_eq!((task.n_panels(), task.n_labels()), (6, 170));
            let mut tally = None;
            for panels in [4..6, 0..1, 1..4] {
                let piece = task.fit(panels, &watch).expect("fits");
                let of_piece = piece.tally.expect("learned");
                match &mut tally {
                    None => tally = Some(of_piece),
                    Some(tally) => tally.merge(of_piece).expect("small"),
                }
                let whole_by_label = whole.weights.transpose().expect("small");
                for (at, &label) in piece.labels.iter().enumerate() {
                    let label = label as usize;
                    assert_eq!(piece.weights.row(at), whole_by_label.row(label));
                    assert_eq!(
                        piece.intercept[at].to_bits(),
                        whole.intercept[label].to_bits()
                    );
                    assert_eq!(piece.n_iter[at], whole.n_iter[label]);
                }
            }
            assert_eq!(tally.and_then(|mut tally| tally.cut(0.0)), whole.cut);
        }
        let without = params
            .prepared_task(prepared(None), y, None, &watch)
            .expect("fits");
        assert!(without.fit(0..1, &watch).is_err());
        assert!(without.fit(1..2, &watch).is_ok());
    }
}
