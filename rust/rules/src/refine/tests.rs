//! Tests every evaluator against computations with dense matrices. The tests build the full Hessian of each
//! row, sum the Hessians, assign bins directly from the definition, and solve by elimination.

use super::full::Full;
use super::halves::{BySums, Independent, IndependentBins, Scored};
use super::own_bins::Binned;
use super::parent_bins::{BinnedStatistics, FewRows};
use super::sweep::Evaluator;
use super::two_bins::TwoBins;
use super::{ABSENT, Context, Groups, Moments, Parent, RowSet};
use crate::columns::Columns;
use crate::gram::{Gram, add_products};
use crate::head::Method;
use crate::statistics::Statistics;
use crate::{Binning, Head, Hessian, Loss, Params, Search, Step};
use fastrand::Rng;
use manylabel_base::Watch;
use manylabel_sparse::{CsrOwned, CsrView};

const N_ROWS: usize = 60;

/// The reason why allocations do not fail in these tests.
const SMALL: &str = "it is small";

/// Rows with random labels, random scores between −3 and 1, and weights from 0 to 3.
struct Problem<'w> {
    n_labels: usize,
    statistics: Statistics<'w>,
    weights: Vec<f64>,
    columns: Columns,
}

/// Creates a problem of [`N_ROWS`] rows. Each label is present with probability `density`.
fn problem(loss: Loss, n_labels: usize, density: f64, watch: &Watch) -> Problem<'_> {
    let mut rng = Rng::with_seed(n_labels as u64);
    let mut y = CsrOwned {
        indptr: vec![0],
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: n_labels,
    };
    for _ in 0..N_ROWS {
        y.indices
            .extend((0..n_labels as u32).filter(|_| rng.f64() < density));
        y.values.resize(y.indices.len(), 1.0);
        y.indptr.push(y.indices.len());
    }
    let mut statistics = Statistics::new(loss, &y, None, watch).expect(SMALL);
    for row in 0..N_ROWS as u32 {
        let mut scores = vec![0.0; statistics.stride];
        scores[..n_labels].fill_with(|| 4.0 * rng.f64() - 3.0);
        statistics.add(&[row], &scores).expect(SMALL);
    }
    let weights = (0..N_ROWS).map(|_| f64::from(rng.u32(0..4))).collect();
    let x = CsrView::new("X", &[0i32; N_ROWS + 1], &[], &[0.0f32; 0], 1).expect("it is valid");
    let columns = Columns::new(x, &[], &Watch::new()).expect(SMALL);
    Problem {
        n_labels,
        statistics,
        weights,
        columns,
    }
}

/// Solves a dense system by elimination with partial pivoting.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for i in 0..n {
        let pivot = (i..n)
            .max_by(|&a, &b| matrix[a][i].abs().total_cmp(&matrix[b][i].abs()))
            .expect("it is not empty");
        matrix.swap(i, pivot);
        right.swap(i, pivot);
        for j in i + 1..n {
            let factor = matrix[j][i] / matrix[i][i];
            for k in i..n {
                matrix[j][k] -= factor * matrix[i][k];
            }
            right[j] -= factor * right[i];
        }
    }
    for i in (0..n).rev() {
        let rest: f64 = (i + 1..n).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - rest) / matrix[i][i];
    }
    right
}

impl Problem<'_> {
    /// Returns `½ gᵀp` of the optimal head of some rows, computed from the definition.
    fn quality(&self, params: &Params, rows: &[u32]) -> f64 {
        let n = self.n_labels;
        let mut g = vec![0.0; n];
        let mut hessian = vec![vec![0.0; n]; n];
        for &row in rows {
            let weight = self.weights[row as usize];
            let gradient = self.statistics.gradient(row);
            for a in 0..n {
                g[a] += weight * gradient[a];
                for b in 0..n {
                    hessian[a][b] += weight
                        * match (a == b, params.loss) {
                            (true, _) => gradient[a].abs() * (1.0 - gradient[a].abs()),
                            (false, Loss::LabelWise) => 0.0,
                            (false, Loss::ExampleWise) => -gradient[a] * gradient[b],
                        };
                }
            }
        }
        let alone = |k: usize| -g[k] / (hessian[k][k] + params.l2);
        if params.head == Head::Single {
            return (0..n).map(|k| 0.5 * g[k] * alone(k)).fold(0.0, f64::min);
        }
        // Assigns labels to bins.
        let bins: Vec<Vec<usize>> = match params.binning {
            None => (0..n).map(|k| vec![k]).collect(),
            Some(binning) => {
                let mut bins = Vec::new();
                for positive in [false, true] {
                    let these: Vec<usize> = (0..n)
                        .filter(|&k| g[k] != 0.0 && (alone(k) > 0.0) == positive)
                        .collect();
                    let share = (binning.ratio * these.len() as f64 - 1e-9).ceil() as usize;
                    let count = share
                        .clamp(binning.min_bins, binning.max_bins)
                        .min(these.len());
                    let low = these
                        .iter()
                        .map(|&k| alone(k))
                        .fold(f64::INFINITY, f64::min);
                    let high = these
                        .iter()
                        .map(|&k| alone(k))
                        .fold(f64::NEG_INFINITY, f64::max);
                    let mut of_sign = vec![Vec::new(); count];
                    for &k in &these {
                        let at = (alone(k) - low) / (high - low) * count as f64;
                        of_sign[(at as usize).min(count - 1)].push(k);
                    }
                    bins.extend(of_sign.into_iter().filter(|bin| !bin.is_empty()));
                }
                bins
            }
        };
        let right: Vec<f64> = bins
            .iter()
            .map(|bin| -bin.iter().map(|&k| g[k]).sum::<f64>())
            .collect();
        let matrix = bins
            .iter()
            .enumerate()
            .map(|(i, a)| {
                let entry = |(j, b): (usize, &Vec<usize>)| -> f64 {
                    let mut sum = if i == j {
                        params.l2 * a.len() as f64
                    } else {
                        0.0
                    };
                    for &k in a {
                        for &l in b {
                            let dropped = i == j && k != l && params.hessian == Hessian::Paper;
                            sum += if dropped { 0.0 } else { hessian[k][l] };
                        }
                    }
                    sum
                };
                bins.iter().enumerate().map(entry).collect()
            })
            .collect();
        let head = solve(matrix, right.clone());
        -0.5 * right
            .iter()
            .zip(&head)
            .map(|(right, p)| right * p)
            .sum::<f64>()
    }

    fn check_two_bins<const C: usize>(&self, params: &Params, parent: &Parent<'_>, gram: &Gram) {
        let judge = TwoBins::<C>::new(self.statistics.stride, gram, params.l2).expect(SMALL);
        let mut evaluator = BySums::new(&self.statistics, parent, judge).expect(SMALL);
        self.check(params, "two bins", parent.rows, &mut evaluator);
    }

    /// Grows a set row by row with `evaluator` and compares both halves with the definition at every step.
    /// The test runs without a bound, with a bound slightly above the quality, and with a bound slightly
    /// below the quality. Returns the number of qualities that were not computed in the last case.
    fn check(
        &self,
        params: &Params,
        name: &str,
        rows: &[u32],
        evaluator: &mut impl Evaluator,
    ) -> usize {
        let mut n_left_out = 0;
        for bound_by in [f64::INFINITY, 1e-6, -1e-3] {
            evaluator.restart();
            for taken in 1..rows.len() {
                evaluator.take(&rows[taken - 1..taken]);
                let expected =
                    [&rows[..taken], &rows[taken..]].map(|rows| self.quality(params, rows));
                let bounds =
                    expected.map(|expected| expected + bound_by * expected.abs().max(1e-3));
                let got = [
                    evaluator.of_taken(bounds[0]).expect(SMALL),
                    evaluator.of_others(bounds[1]).expect(SMALL),
                ];
                for (got, expected) in got.into_iter().zip(expected) {
                    let Some(got) = got else {
                        assert!(bound_by < 0.0, "{name} withholds a quality below the bound");
                        n_left_out += 1;
                        continue;
                    };
                    let error = (got - expected).abs() / expected.abs().max(1e-3);
                    assert!(
                        error < 1e-9,
                        "{name}, {} labels, {params:?}: {got} {expected}",
                        self.n_labels
                    );
                }
            }
        }
        n_left_out
    }
}

#[test]
fn qualities_are_those_of_dense_matrices() {
    let watch = Watch::new();
    let binnings = [(0.04, usize::MAX), (0.3, usize::MAX), (1.0, 1)];
    let binnings = binnings.map(|(ratio, max_bins)| {
        Some(Binning {
            ratio,
            min_bins: 1,
            max_bins,
        })
    });
    for n_labels in [1, 5, 14, 20, 30, 45] {
        for loss in [Loss::LabelWise, Loss::ExampleWise] {
            let problem = problem(loss, n_labels, 0.2, &watch);
            let statistics = &problem.statistics;
            let rows: Vec<u32> = (0..N_ROWS as u32)
                .filter(|&row| problem.weights[row as usize] > 0.0)
                .collect();
            for head in [Head::Complete, Head::Single] {
                for binning in [None, binnings[0], binnings[1], binnings[2]] {
                    for hessian in [Hessian::Paper, Hessian::Restricted] {
                        let search = Search::Exact;
                        let step = Step::Newton;
                        let params = Params {
                            loss,
                            head,
                            binning,
                            hessian,
                            step,
                            search,
                            ..Params::default()
                        };
                        let method = Method::new(&params, n_labels);
                        let context = Context::new(statistics, &problem.columns, &params, method);
                        let moments =
                            Moments::over(&context, &rows, &problem.weights).expect(SMALL);
                        let parent =
                            Parent::new(&context, &rows, &problem.weights, &moments).expect(SMALL);
                        let l2 = params.l2;
                        match method {
                            Method::Single | Method::Diagonal => {
                                let single = head == Head::Single;
                                let scored = if single { Scored::Best } else { Scored::All };
                                let judge = Independent { l2, scored };
                                let mut evaluator =
                                    BySums::new(statistics, &parent, judge).expect(SMALL);
                                problem.check(&params, "independent", &rows, &mut evaluator);
                            }
                            Method::DiagonalBins(binner) => {
                                let judge = IndependentBins::new(statistics.stride, binner, l2)
                                    .expect(SMALL);
                                let mut evaluator =
                                    BySums::new(statistics, &parent, judge).expect(SMALL);
                                problem.check(&params, "independent bins", &rows, &mut evaluator);
                            }
                            Method::Bins { binner, restricted } => {
                                let gram = parent.gram().expect("exact search keeps it");
                                let bins = parent.bins.as_ref().expect("exact search keeps them");
                                let mut evaluator = Binned::new(
                                    statistics, &parent, gram, bins, binner, l2, restricted, N_ROWS,
                                )
                                .expect(SMALL);
                                problem.check(&params, "binned", &rows, &mut evaluator);
                                if binner.signs_only && !restricted && statistics.stride == 16 {
                                    problem.check_two_bins::<2>(&params, &parent, gram);
                                }
                                if binner.signs_only && !restricted && statistics.stride == 32 {
                                    problem.check_two_bins::<4>(&params, &parent, gram);
                                }
                            }
                            Method::Full => {
                                let mut evaluator =
                                    Full::<0>::new(statistics, &parent, l2, N_ROWS).expect(SMALL);
                                let n = problem.check(&params, "full", &rows, &mut evaluator);
                                // With the bound below the quality, the evaluator must reject more than half
                                // of all candidates.
                                assert!(n > rows.len(), "{n} of {}", 2 * rows.len());
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn estimates_are_exact_where_all_sets_want_the_bins_of_their_parent() {
    // Without a positive label, all gradients have the same sign, and one bin holds all labels.
    let watch = Watch::new();
    for hessian in [Hessian::Paper, Hessian::Restricted] {
        for n_labels in [3, 20, 60] {
            let problem = problem(Loss::ExampleWise, n_labels, 0.0, &watch);
            let binning = Some(Binning {
                ratio: 1.0,
                min_bins: 1,
                max_bins: 1,
            });
            let params = Params {
                binning,
                hessian,
                ..Params::default()
            };
            let context = Context::new(
                &problem.statistics,
                &problem.columns,
                &params,
                Method::new(&params, n_labels),
            );
            let rows: Vec<u32> = (0..N_ROWS as u32)
                .filter(|&row| problem.weights[row as usize] > 0.0)
                .collect();
            let mut positions = vec![ABSENT; N_ROWS];
            for (position, &row) in rows.iter().enumerate() {
                positions[row as usize] = position as u32;
            }
            let set = RowSet {
                rows: &rows,
                positions: &positions,
                weights: &problem.weights,
            };
            let moments = Moments::over(&context, &rows, &problem.weights).expect(SMALL);
            let mut room = Vec::new();
            let estimates =
                BinnedStatistics::new(&context, set, &moments.sums, &mut room).expect(SMALL);
            let groups = Groups {
                rows: rows.clone(),
                ..Groups::default()
            };
            let mut evaluator = FewRows::new(&estimates, &context, set, &groups).expect(SMALL);
            problem.check(&params, "few rows", &rows, &mut evaluator);
        }
    }
}

#[test]
fn tiles_of_a_gram_matrix_have_the_same_bits() {
    for n_labels in [1, 5, 20, 53, 64] {
        let watch = Watch::new();
        let problem = problem(Loss::ExampleWise, n_labels, 0.2, &watch);
        let (statistics, weights) = (&problem.statistics, &problem.weights);
        let stride = statistics.stride;
        // Rows in an order of their own, some of them twice, so that there is more than one block of rows.
        let rows: Vec<u32> = (0..100).map(|i| i * 7 % N_ROWS as u32).collect();
        let mut tiled = [vec![0.0; stride * stride], vec![0.0; stride * stride]];
        add_products::<4>(&mut tiled[0], statistics, &rows, weights);
        add_products::<8>(&mut tiled[1], statistics, &rows, weights);
        let gram = Gram::over(statistics, &rows, weights).expect(SMALL);
        for k in 0..stride {
            for j in 0..=k {
                let at = k * stride + j;
                assert_eq!(tiled[0][at].to_bits(), tiled[1][at].to_bits());
                let entry = |&row: &u32| {
                    let g = statistics.gradient(row);
                    weights[row as usize] * g[j] * g[k]
                };
                let expected: f64 = rows.iter().map(entry).sum();
                for found in [tiled[0][at], gram.row(k)[j], gram.row(j)[k]] {
                    assert!((found - expected).abs() < 1e-12 * (1.0 + expected.abs()));
                }
            }
        }
    }
}
