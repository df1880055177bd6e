//! Quasi-Newton steps, each of all labels together after one gradient.
//!
//! The loss of a label is modelled as a quadratic of what moves in it: weights and couplings that are
//! not zero or should not be, and the intercept. Its curvature starts as a multiple of the second
//! moments of those columns, which are the curvature where predictions are constant, and takes up
//! the last few differences of gradients (Broyden, Fletcher, Goldfarb and Shanno). The sum of the
//! models and of the penalties is lowered by coordinate descent, label after label; a coupling is in
//! the models of both its labels. Labels without a coupling in common are worked on at the same time.
//!
//! It takes a fraction of the gradients of the first-order descent, since that has to wait for the least
//! curvature of correlated columns; but for every label a matrix of what moves in it.

use super::curvature::{Curvature, Halves, Local, Secant, Shape, Tie};
use super::{Descent, Net, soft, violation};
use crate::gradient::Gradient;
use crate::gram::Gram;
use crate::wide::Float;
use manylabel_base::{Error, Watch};
use manylabel_simd::wide;
use rayon::prelude::*;

/// Gradients at most before the first-order descent takes over: by then few labels are left, and its
/// gradients of a few panels cost less.
const MOST: usize = 25;

/// Sweeps over the coordinates of a label at most, and the share of its violation that may be left.
const SWEEPS: usize = 10;
const LEFT: f64 = 0.1;

/// A step is too long if the objective rises at its end by more than this share of how it fell at its
/// beginning.
const OVERSHOT: f64 = 0.5;

/// The solution of a label's problem.
struct Solved<T> {
    label: usize,
    local: Local<T>,
    values: Vec<T>,
    slopes: Vec<T>,
    curvatures: Vec<T>,
}

/// One coordinate of a label's problem besides its own model.
#[derive(Clone, Copy)]
struct Coordinate<T> {
    net: Net<T>,
    /// What the other label of a coupling adds to its slope and curvature.
    slope: T,
    curvature: T,
    /// Whether the other label has just retreated.
    fixed: bool,
}

impl<T: Float, const N: usize> Descent<T, N> {
    /// Descends as [`run`](Self::run) does, and may give up. A label within half of `tol` rests, and a
    /// panel of labels needs a new gradient only if something has moved in one of them.
    pub(super) fn newton(
        &mut self,
        known: &mut Curvature<T>,
        gradient: &mut Gradient<'_, T, N>,
        tol: f64,
        max_iter: usize,
        watch: &Watch,
    ) -> Result<bool, Error> {
        let height = gradient.height();
        let ties = ties(&self.pairs.list, self.variance.len());
        let Curvature { gram, shapes } = known;
        let mut halves: Vec<Halves<T>> = Vec::new();
        let mut shares = vec![1.0; self.variance.len()];
        let mut moved: Vec<(usize, Local<T>)> = Vec::new();
        let last = max_iter.min(self.n_iter + MOST);
        let rest = tol / 2.0;
        self.settle();
        loop {
            self.n_iter += 1;
            let active = &self.active;
            gradient.evaluate(active, &self.y, &self.pairs, &self.d, false, watch)?;
            self.c.clone_from(&self.d);
            self.g
                .par_chunks_mut(height)
                .enumerate()
                .filter(|&(panel, _)| active[panel])
                .for_each(|(panel, g)| gradient.write(panel, g));
            halves.clear();
            halves.extend(gradient.halves(&self.pairs).map(|half| Halves {
                slope: half.map(T::of),
                curvature: [T::default(); 2],
            }));
            let free = self.judge(height, &halves, rest);
            self.report(tol, watch)?;
            if self.violation() <= tol {
                return Ok(true);
            }
            if self.n_iter >= last {
                return Ok(false);
            }
            for (half, &pair) in halves.iter_mut().zip(&self.pairs.list) {
                half.curvature = self.prior(gram, shapes, &gradient.labels.share, pair, half.slope);
            }
            let this = &*self;
            let learned = moved.par_drain(..).map(|(label, before)| {
                let (columns, ties) = (before.columns.clone(), before.ties.clone());
                let after = this.at(label, columns, ties, &halves);
                let secant = Secant::new(&before, &after);
                (label, this.share(&before, &after), before, secant)
            });
            let mut back = Vec::new();
            shares.fill(1.0);
            for (label, share, before, secant) in learned.collect::<Vec<_>>() {
                shapes[label].learn(
                    gram,
                    secant,
                    self.variance[label],
                    share,
                    &before.ties,
                    &halves,
                );
                if share < 1.0 {
                    shares[label] = share;
                    back.push((label, before));
                }
            }
            self.active.fill(false);
            for (label, before) in &back {
                self.retreat(*label, before, &shares);
            }
            for class in self.classes(&ties, &free, &shares, rest) {
                let this = &*self;
                let solved = class.par_iter().map_init(Vec::new, |matrix, &label| {
                    watch.step(0)?;
                    let local = this.free(label, &ties[label], &free, &halves, rest);
                    shapes[label].fill(gram, &local, &halves, matrix);
                    Ok(this.solve(label, local, matrix, &halves, &shares))
                });
                for solved in solved.collect::<Result<Vec<_>, Error>>()? {
                    if solved.values.iter().all(|value| value.f64().is_finite()) {
                        self.take(&solved, &mut halves);
                        moved.push((solved.label, solved.local));
                    }
                }
            }
        }
    }

    /// The curvature of a coupling in the losses of its labels, before any secant.
    ///
    /// Who holds one label is often in doubt about the other, far more than all rows are on average:
    /// where the mean prediction is q, the mean of σ(1−σ) is at most q(1−q), of which half is taken.
    fn prior(
        &self,
        gram: &Gram<T>,
        shapes: &[Shape<T>],
        share: &[f64],
        (i, k): (u32, u32),
        slope: [T; 2],
    ) -> [T; 2] {
        let (i, k) = (i as usize, k as usize);
        let width = self.features.len() - 1;
        let both = gram.row(width + i)[width + k].f64() + share[i] * share[k];
        std::array::from_fn(|side| {
            let (label, other) = if side == 0 { (i, k) } else { (k, i) };
            let bias = self.g[label / N * (width + 1) + width].0[label % N].f64();
            let m = share[other];
            let holders = slope[side].f64() + m * bias + both;
            let others = share[label] + bias - holders;
            let bound = |sum: f64, of: f64| {
                let q = (sum / of).clamp(0.0, 1.0);
                of * q * (1.0 - q)
            };
            let seen = (1.0 - m).powi(2) * bound(holders, m) + m * m * bound(others, 1.0 - m);
            T::of((0.5 * seen).max(shapes[label].scale * self.variance[other]))
        })
    }

    /// Takes back a part of a label's last step, and of its couplings what either label wants back.
    fn retreat(&mut self, label: usize, before: &Local<T>, shares: &[f64]) {
        let (height, lane) = (self.features.len(), label % N);
        let panel = label / N;
        self.active[panel] = true;
        let part = |old: T, new: T, share: f64| old + T::of(share) * (new - old);
        for (&col, &old) in before.columns.iter().zip(&before.values) {
            let col = col as usize;
            if col < height - 1 || col == height - 1 + self.variance.len() {
                let value = &mut self.y[panel * height + col.min(height - 1)].0[lane];
                *value = part(old, *value, shares[label]);
            }
        }
        for &(at, tie) in &before.ties {
            let share = shares[label].min(shares[tie.other as usize]);
            let pair = tie.pair as usize;
            self.d[pair] = part(before.values[at], self.c[pair], share);
            self.active[tie.other as usize / N] = true;
        }
    }

    /// Finds violations of optimality, and which couplings can move.
    fn judge(&mut self, height: usize, halves: &[Halves<T>], rest: f64) -> Vec<bool> {
        self.measure_weights(height);
        let mut free = Vec::with_capacity(halves.len());
        for ((&(i, k), half), &value) in self.pairs.list.iter().zip(halves).zip(&self.d) {
            let found = violation(value, half.slope[0] + half.slope[1], self.pair).f64();
            for label in [i, k] {
                let pace = &mut self.pace[label as usize];
                pace.violation = pace.violation.max(found);
            }
            free.push(found > LEFT * rest || value.f64() != 0.0);
        }
        free
    }

    /// Labels that are not within `rest` and have not retreated, in classes of which no two can move a
    /// coupling in common.
    fn classes(
        &self,
        ties: &[Vec<Tie>],
        free: &[bool],
        shares: &[f64],
        rest: f64,
    ) -> Vec<Vec<usize>> {
        let mut classes: Vec<Vec<usize>> = Vec::new();
        let mut class_of = vec![usize::MAX; self.variance.len()];
        // The last label that kept another out of each class.
        let mut taken: Vec<usize> = Vec::new();
        for label in 0..self.variance.len() {
            if self.pace[label].violation <= rest || shares[label] < 1.0 {
                continue;
            }
            for tie in &ties[label] {
                let class = class_of[tie.other as usize];
                if free[tie.pair as usize] && class != usize::MAX {
                    taken[class] = label;
                }
            }
            let class = taken.iter().position(|&by| by != label);
            let class = class.unwrap_or(classes.len());
            if class == classes.len() {
                classes.push(Vec::new());
                taken.push(usize::MAX);
            }
            classes[class].push(label);
            class_of[label] = class;
        }
        classes
    }

    /// What can move in a label: what is not zero, or should not be.
    fn free(
        &self,
        label: usize,
        ties: &[Tie],
        free: &[bool],
        halves: &[Halves<T>],
        rest: f64,
    ) -> Local<T> {
        let (height, lane) = (self.features.len(), label % N);
        let rows = label / N * height..(label / N + 1) * height;
        let (y, g) = (&self.y[rows.clone()], &self.g[rows]);
        let width = height - 1;
        let mut columns = Vec::new();
        for (col, &net) in self.features[..width].iter().enumerate() {
            let (y, g) = (y[col].0[lane], g[col].0[lane]);
            if y.f64() != 0.0 || violation(y, g, net).f64() > LEFT * rest {
                columns.push(col as u32);
            }
        }
        let mut found = Vec::new();
        for tie in ties.iter().filter(|tie| free[tie.pair as usize]) {
            found.push((columns.len(), *tie));
            columns.push(width as u32 + tie.other);
        }
        columns.push((width + self.variance.len()) as u32);
        self.at(label, columns, found, halves)
    }

    /// Values and slopes of some columns at the last gradient.
    fn at(
        &self,
        label: usize,
        columns: Vec<u32>,
        ties: Vec<(usize, Tie)>,
        halves: &[Halves<T>],
    ) -> Local<T> {
        let (height, lane) = (self.features.len(), label % N);
        // The row of the intercept comes after those of features.
        let row = |&col: &u32| label / N * height + (col as usize).min(height - 1);
        let mut values: Vec<T> = columns.iter().map(|col| self.y[row(col)].0[lane]).collect();
        let mut slopes: Vec<T> = columns.iter().map(|col| self.g[row(col)].0[lane]).collect();
        let mut shares = slopes.clone();
        for &(at, tie) in &ties {
            let half = &halves[tie.pair as usize];
            values[at] = self.c[tie.pair as usize];
            slopes[at] = half.slope[tie.side];
            shares[at] = T::of(0.5) * (half.slope[0] + half.slope[1]);
        }
        Local {
            columns,
            ties,
            values,
            slopes,
            shares,
        }
    }

    /// The share of a label's last step that it should have made. The objective is convex: it has not
    /// risen if its slope along the step is not positive at the end.
    fn share(&self, before: &Local<T>, after: &Local<T>) -> f64 {
        let cost = |net: &Net<T>, value: T| {
            let value = value.f64();
            net.l2.f64() * value * value + net.l1.f64() * value.abs()
        };
        let width = self.features.len() - 1;
        let (mut start, mut end) = (0.0, 0.0);
        let mut ties = before.ties.iter().map(|&(at, _)| at).peekable();
        for (at, &col) in before.columns.iter().enumerate() {
            let (old, new) = (before.values[at], after.values[at]);
            let penalty = if ties.next_if_eq(&at).is_some() {
                0.5 * (cost(&self.pair, new) - cost(&self.pair, old))
            } else {
                let net = &self.features[(col as usize).min(width)];
                cost(net, new) - cost(net, old)
            };
            let step = new.f64() - old.f64();
            start += before.shares[at].f64() * step + penalty;
            end += after.shares[at].f64() * step + penalty;
        }
        if end > OVERSHOT * start.abs() {
            (start / (start - end)).clamp(0.1, 0.9)
        } else {
            1.0
        }
    }

    /// Lowers the models and penalties along the columns of a label.
    fn solve(
        &self,
        label: usize,
        local: Local<T>,
        matrix: &[T],
        halves: &[Halves<T>],
        shares: &[f64],
    ) -> Solved<T> {
        let n = local.columns.len();
        let zero = T::default();
        let (mut values, mut slopes) = (local.values.clone(), local.slopes.clone());
        let width = self.features.len() - 1;
        let mut coordinates: Vec<Coordinate<T>> = local
            .columns
            .iter()
            .map(|&col| Coordinate {
                net: self.features[(col as usize).min(width)],
                slope: zero,
                curvature: zero,
                fixed: false,
            })
            .collect();
        for &(at, tie) in &local.ties {
            let half = &halves[tie.pair as usize];
            coordinates[at] = Coordinate {
                net: self.pair,
                slope: half.slope[1 - tie.side],
                curvature: half.curvature[1 - tie.side],
                fixed: shares[tie.other as usize] < 1.0,
            };
            // The other label may have moved it since the gradient.
            let moved = self.d[tie.pair as usize] - values[at];
            if moved.f64() != 0.0 {
                values[at] = self.d[tie.pair as usize];
                for (slope, &curvature) in slopes.iter_mut().zip(&matrix[at * n..][..n]) {
                    *slope += moved * curvature;
                }
            }
        }
        let enough = T::of(LEFT * self.pace[label].violation);
        sweep(matrix, &mut coordinates, enough, &mut values, &mut slopes);
        let curvatures = (0..n).map(|at| matrix[at * n + at]).collect();
        Solved {
            label,
            local,
            values,
            slopes,
            curvatures,
        }
    }

    /// Moves a label to the solution of its problem.
    fn take(&mut self, solved: &Solved<T>, halves: &mut [Halves<T>]) {
        let (height, lane) = (self.features.len(), solved.label % N);
        let panel = solved.label / N;
        self.active[panel] = true;
        for (&col, &value) in solved.local.columns.iter().zip(&solved.values) {
            let col = col as usize;
            if col < height - 1 || col == height - 1 + self.variance.len() {
                self.y[panel * height + col.min(height - 1)].0[lane] = value;
            }
        }
        for &(at, tie) in &solved.local.ties {
            self.d[tie.pair as usize] = solved.values[at];
            self.active[tie.other as usize / N] = true;
            let half = &mut halves[tie.pair as usize];
            half.slope[tie.side] = solved.slopes[at];
            half.curvature[tie.side] = solved.curvatures[at];
        }
    }
}

/// The pairs of each label, in order of the other.
fn ties(list: &[(u32, u32)], n_labels: usize) -> Vec<Vec<Tie>> {
    let mut ties = vec![Vec::new(); n_labels];
    for (pair, &(i, k)) in (0..).zip(list) {
        for (side, label, other) in [(0, i, k), (1, k, i)] {
            ties[label as usize].push(Tie { other, pair, side });
        }
    }
    for of_label in &mut ties {
        of_label.sort_unstable_by_key(|tie| tie.other);
    }
    ties
}

/// Sweeps over coordinates until none moves its slope by more than `enough`.
#[wide]
fn sweep<T: Float>(
    matrix: &[T],
    coordinates: &mut [Coordinate<T>],
    enough: T,
    values: &mut [T],
    slopes: &mut [T],
) {
    let n = values.len();
    for _ in 0..SWEEPS {
        let mut most = T::default();
        for at in 0..n {
            let row = &matrix[at * n..][..n];
            let Coordinate {
                net,
                slope,
                curvature,
                fixed,
            } = &mut coordinates[at];
            let total = row[at] + *curvature;
            if *fixed || total <= T::default() {
                continue;
            }
            let old = values[at];
            let target = total * old - (slopes[at] + *slope);
            let scale = total + (net.l2 + net.l2);
            let new = soft(target, net.l1).over(scale);
            let step = new - old;
            if step != T::default() {
                values[at] = new;
                *slope += *curvature * step;
                for (slope, &value) in slopes.iter_mut().zip(row) {
                    *slope += step * value;
                }
                let moved = (step * scale).size();
                if moved > most {
                    most = moved;
                }
            }
        }
        if most <= enough {
            break;
        }
    }
}
