//! Scores, label sets and probabilities of rows by a fitted model, sixteen rows at a time.
//!
//! Weights lie by feature: a row adds to the labels its features have weights for. The decoder turns
//! the sums into log-odds given the most probable set; positive ones are the set.

use crate::decode::{Decoder, Method, ROWS, Scratch, Sets};
use crate::model::Matrix;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, Picked, TopK, Value};
use rayon::prelude::*;

/// Rows one thread decodes between two looks at the watch; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = ROWS;

/// Decodes rows by the parts of a [`Model`](crate::Model).
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a, P, L> {
    ends: &'a [P],
    labels: &'a [L],
    weights: &'a [f64],
    intercept: &'a [f64],
    couplings: &'a Matrix,
    sets: Sets<'a>,
    method: Method,
}

impl<'a, P: Index, L: Index> Scorer<'a, P, L> {
    /// Borrows weights (`n_features`, `n_labels`) in compressed rows, an intercept for each label (−∞
    /// for one that is never to be named) and couplings.
    ///
    /// Takes O(1) but for the couplings, whose symmetry is checked.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths do not agree; [`Error::Csr`] if `couplings` is not symmetric or
    /// has a diagonal.
    pub fn new(
        (ends, labels, weights): (&'a [P], &'a [L], &'a [f64]),
        intercept: &'a [f64],
        couplings: &'a Matrix,
        method: Method,
    ) -> Result<Self, Error> {
        let n_labels = intercept.len();
        for (what, expected, got) in [
            ("values of coef_", labels.len(), weights.len()),
            (
                "end of indptr of coef_",
                labels.len(),
                ends.last().map_or(usize::MAX, |end| end.get()),
            ),
            ("rows of correlations_", n_labels, couplings.ends.len() - 1),
            ("columns of correlations_", n_labels, couplings.n_cols),
        ] {
            if expected != got {
                return Err(Error::Shape {
                    what,
                    expected,
                    got,
                });
            }
        }
        couplings.check_symmetric()?;
        Ok(Self {
            ends,
            labels,
            weights,
            intercept,
            couplings,
            sets: Sets {
                ends: &[0],
                labels: &[],
                energies: &[],
            },
            method,
        })
    }

    /// Lets the search start from label sets: set s is `labels[ends[s]..ends[s + 1]]`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths do not agree, [`Error::Csr`] if a set is none of labels.
    pub fn with_sets(
        self,
        ends: &'a [usize],
        labels: &'a [u32],
        energies: &'a [f64],
    ) -> Result<Self, Error> {
        if ends.len() != energies.len() + 1 {
            return Err(Error::Shape {
                what: "length of label_set_energies_",
                expected: ends.len().saturating_sub(1),
                got: energies.len(),
            });
        }
        let n_labels = self.intercept.len();
        // Whoever hands over sets has checked their structure.
        if let Some(at) = labels.iter().position(|&label| label as usize >= n_labels) {
            return Err(Error::Csr {
                matrix: "label_sets_",
                row: ends.partition_point(|&end| end <= at) - 1,
                rule: format!("column {} is outside 0..{n_labels}", labels[at]),
            });
        }
        Ok(Self {
            sets: Sets {
                ends,
                labels,
                energies,
            },
            ..self
        })
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    /// The `k` most probable labels of each row with the log-odds of their probabilities, whatever the
    /// others are; labels in increasing order. Ties go to the lower label, and labels with intercept −∞
    /// are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `x` has another number of features, [`Error::Stopped`].
    ///
    /// # Panics
    ///
    /// If the weights name a label or position that does not exist, here as in every method.
    pub fn topk<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        k: usize,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        let decoder = Decoder::for_marginals(self.couplings, self.sets)?;
        let n_labels = self.n_labels();
        let decode = |scratch: &mut Scratch| {
            let Scratch { u, odds, work } = scratch;
            odds.clone_from(u);
            let mut rows = u.chunks(n_labels).zip(odds.chunks_mut(n_labels));
            rows.try_for_each(|(u, odds)| decoder.marginal_odds(u, work, odds, watch))
        };
        self.select(x, watch, decode, |scores, out| {
            let mut best = TopK::new(k.min(n_labels));
            for (label, &score) in (0..).zip(scores) {
                best.push(label, score as f32);
            }
            best.drain_by_label(|label, score| out.push((label, score)));
        })
    }

    /// The most probable label set of each row, with log-odds.
    ///
    /// # Errors
    ///
    /// As [`topk`](Self::topk), and [`Error::Param`] if the decoder does not take so many labels.
    pub fn predict<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        let decoder = Decoder::new(self.method, self.couplings, self.sets)?;
        let decode = |scratch: &mut Scratch| decoder.decode(scratch, watch);
        self.select(x, watch, decode, |scores, out| {
            let scored = (0..).zip(scores.iter().map(|&score| score as f32));
            out.extend(scored.filter(|&(_, score)| score > 0.0));
        })
    }

    /// All log-odds, row after row: `n_rows × n_labels` of them.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if they do not fit in memory, otherwise as [`predict`](Self::predict).
    pub fn decision<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        watch: &Watch,
    ) -> Result<Vec<f32>, Error> {
        let decoder = Decoder::new(self.method, self.couplings, self.sets)?;
        self.all(x, "the dense score matrix", watch, |scratch, out| {
            decoder.decode(scratch, watch)?;
            for (out, odds) in out.iter_mut().zip(&scratch.odds) {
                *out = *odds as f32;
            }
            Ok(())
        })
    }

    /// The probability of every label, row after row.
    ///
    /// # Errors
    ///
    /// As [`decision`](Self::decision).
    pub fn marginals<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        watch: &Watch,
    ) -> Result<Vec<f64>, Error> {
        let decoder = Decoder::for_marginals(self.couplings, self.sets)?;
        let n_labels = self.n_labels();
        self.all(x, "the matrix of probabilities", watch, |scratch, out| {
            let Scratch { u, work, .. } = scratch;
            let mut rows = u.chunks(n_labels).zip(out.chunks_mut(n_labels));
            rows.try_for_each(|(u, out)| decoder.marginals(u, work, out, watch))
        })
    }

    fn check<I: Index, V: Value>(&self, x: CsrView<'_, I, V>) -> Result<(), Error> {
        if x.n_cols() == self.ends.len() - 1 {
            return Ok(());
        }
        Err(Error::Shape {
            what: "features of X",
            expected: self.ends.len() - 1,
            got: x.n_cols(),
        })
    }

    /// Fills a matrix with what `then` makes of blocks of rows.
    fn all<I: Index, V: Value, T: Send + Clone + Default>(
        &self,
        x: CsrView<'_, I, V>,
        what: &'static str,
        watch: &Watch,
        then: impl Fn(&mut Scratch, &mut [T]) -> Result<(), Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        self.check(x)?;
        let n_labels = self.n_labels();
        let size = x.n_rows().checked_mul(n_labels);
        let size = size.ok_or_else(|| Error::TooLarge {
            what,
            got: format!("{} x {n_labels} numbers", x.n_rows()),
        })?;
        let mut all = filled(what, T::default(), size)?;
        let fill = |scratch: &mut Scratch, block: usize, out: &mut [T]| {
            watch.step(0)?;
            self.score(x, block * ROWS, out.len() / n_labels, scratch);
            then(scratch, out)
        };
        if x.n_rows() <= ROWS {
            fill(&mut Scratch::default(), 0, &mut all)?;
        } else {
            all.par_chunks_mut(ROWS * n_labels)
                .enumerate()
                .try_for_each_init(Scratch::default, |scratch, (block, out)| {
                    fill(scratch, block, out)
                })?;
        }
        Ok(all)
    }

    /// Decodes every row, into `odds` of its scratch, and keeps what `pick` pushes for it.
    fn select<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        watch: &Watch,
        decode: impl Fn(&mut Scratch) -> Result<(), Error> + Sync,
        pick: impl Fn(&[f64], &mut Vec<(u32, f32)>) + Sync,
    ) -> Result<CsrOwned, Error> {
        self.check(x)?;
        let n_labels = self.n_labels();
        Picked::by_blocks(
            x.n_rows(),
            ROWS,
            n_labels,
            Scratch::default,
            |scratch, rows, picked| {
                watch.step(0)?;
                self.score(x, rows.start, rows.len(), scratch);
                decode(scratch)?;
                for odds in scratch.odds.chunks(n_labels) {
                    pick(odds, &mut picked.pairs);
                    picked.end_row();
                }
                Ok(())
            },
        )
    }

    /// Scores without couplings of some rows, written to `scratch.u`.
    fn score<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        first: usize,
        n_rows: usize,
        scratch: &mut Scratch,
    ) {
        scratch.u.clear();
        for row in first..first + n_rows {
            let at = scratch.u.len();
            scratch.u.extend_from_slice(self.intercept);
            let u = &mut scratch.u[at..];
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let (feature, value) = (col.get(), value.f64());
                let range = self.ends[feature].get()..self.ends[feature + 1].get();
                let (labels, weights) = (&self.labels[range.clone()], &self.weights[range]);
                for (label, &weight) in labels.iter().zip(weights) {
                    u[label.get()] += value * weight;
                }
            }
        }
    }
}
