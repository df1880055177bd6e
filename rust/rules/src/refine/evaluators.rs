//! The quality of candidate sets, by the kind of their head.

use super::sweep::Evaluator;
use super::{Parent, ParentBins};
use crate::binning::{Binner, TINY};
use crate::gram::Gram;
use crate::head::bins::{BinnedRows, Move, System, find_moves};
use crate::head::solve::{CANDIDATE, Near, Outer, Solver, length};
use crate::head::{alone, best_label};
use crate::lanes::{Aligned, WIDTH, add_scaled, chunks, total};
use crate::statistics::{Statistics, Sums};

/// The sums of the growing set and of its complement.
pub(crate) struct Halves<'a> {
    pub(crate) statistics: &'a Statistics<'a>,
    pub(crate) weights: &'a [f64],
    parent: &'a Parent<'a>,
    pub(crate) taken: Sums,
    pub(crate) others: Sums,
}

impl<'a> Halves<'a> {
    pub(crate) fn new(statistics: &'a Statistics<'a>, parent: &'a Parent<'a>) -> Self {
        let empty = parent.moments.sums.emptied();
        let weights = parent.weights;
        Self {
            statistics,
            weights,
            parent,
            taken: empty.clone(),
            others: empty,
        }
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, rows: &[u32]) {
        for batch in self.statistics.batches(rows, self.weights) {
            self.taken.add(&batch);
        }
    }

    #[inline(always)]
    pub(crate) fn subtract(&mut self) {
        self.others
            .set_difference(&self.parent.moments.sums, &self.taken);
    }
}

/// Which labels a head scores.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scored {
    All,
    /// The one that gains most.
    Best,
    One(usize),
}

/// Labels that do not depend on one another.
pub(crate) struct Independent<'a> {
    halves: Halves<'a>,
    l2: f64,
    scored: Scored,
}

impl<'a> Independent<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
        l2: f64,
        scored: Scored,
    ) -> Self {
        Self {
            halves: Halves::new(statistics, parent),
            l2,
            scored,
        }
    }

    #[inline(always)]
    fn quality(&self, sums: &Sums) -> f64 {
        match self.scored {
            Scored::All => {}
            Scored::Best => return best_label(sums, self.l2, None).1,
            Scored::One(label) => return best_label(sums, self.l2, Some(label)).1,
        }
        let mut gains = [0.0; WIDTH];
        for (g, h) in chunks(sums.g()).iter().zip(chunks(sums.h())) {
            for lane in 0..WIDTH {
                gains[lane] += g[lane] * alone(g[lane], h[lane], self.l2);
            }
        }
        0.5 * total(&gains)
    }
}

impl Evaluator for Independent<'_> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        self.halves.take(rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Option<f64> {
        Some(self.quality(&self.halves.taken))
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Option<f64> {
        self.halves.subtract();
        Some(self.quality(&self.halves.others))
    }
}

/// A growing set of rows, judged by bins of its own sums.
pub(crate) struct OwnBins<'a> {
    statistics: &'a Statistics<'a>,
    weights: &'a [f64],
    binner: Binner,
    system: System,
    rows: Vec<u32>,
    /// The roots of their weights.
    roots: Vec<f64>,
    next: Vec<f64>,
    criteria: Vec<f64>,
    moves: Vec<Move>,
    binned: BinnedRows,
}

impl<'a> OwnBins<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        weights: &'a [f64],
        binner: Binner,
        l2: f64,
        restricted: bool,
    ) -> Self {
        let stride = statistics.stride;
        Self {
            statistics,
            weights,
            binner,
            system: System::new(binner.n_bins, l2, restricted),
            rows: Vec::new(),
            roots: Vec::new(),
            next: vec![0.0; stride],
            criteria: vec![0.0; stride],
            moves: Vec::new(),
            binned: BinnedRows::new(binner.n_bins, stride),
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.roots.clear();
        self.binned.clear();
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, rows: &[u32]) {
        self.rows.extend_from_slice(rows);
        let roots = rows.iter().map(|&row| self.weights[row as usize].sqrt());
        self.roots.extend(roots);
    }

    /// Brings bins up to date with `sums`, which need not be those of the rows.
    #[inline(always)]
    fn rebin(&mut self, sums: &Sums) {
        self.binner
            .assign(sums.g(), sums.h(), &mut self.criteria, &mut self.next);
        self.system.set_bins(sums, &self.next);
        find_moves(&self.binned.bins, &self.next, &mut self.moves);
        let (statistics, rows, roots) = (self.statistics, &self.rows, &self.roots);
        let gradient = |i: usize| statistics.gradient(rows[i]);
        self.binned
            .update(&self.moves, rows.len(), gradient, |i| roots[i]);
    }

    /// The quality of the rows, whose sums are given.
    #[inline(always)]
    pub(crate) fn quality(&mut self, sums: &Sums) -> f64 {
        self.rebin(sums);
        self.system.quality(|a, b| self.binned.product(a, b))
    }

    /// The quality of the parent set without the rows, whose sums are given.
    #[inline(always)]
    fn quality_without(&mut self, sums: &Sums, gram: &Gram, all: &mut ParentBins) -> f64 {
        self.rebin(sums);
        all.update(gram, &self.moves);
        self.system
            .quality(|a, b| all.product(a, b) - self.binned.product(a, b))
    }
}

/// Bins of each candidate's own sums, under the example-wise loss.
pub(crate) struct Binned<'a> {
    halves: Halves<'a>,
    gram: &'a Gram,
    /// All rows of the parent by its own bins, which large complements want much the same of.
    parent: &'a ParentBins,
    taken: OwnBins<'a>,
    /// The growing set again, by the bins of its complement.
    others: OwnBins<'a>,
    /// All rows of the parent, by the same.
    all: ParentBins,
}

impl<'a> Binned<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
        gram: &'a Gram,
        bins: &'a ParentBins,
        binner: Binner,
        l2: f64,
        restricted: bool,
    ) -> Self {
        let own = || OwnBins::new(statistics, parent.weights, binner, l2, restricted);
        Self {
            halves: Halves::new(statistics, parent),
            gram,
            parent: bins,
            taken: own(),
            others: own(),
            all: bins.clone(),
        }
    }
}

impl Evaluator for Binned<'_> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.taken.clear();
        self.others.clear();
        self.others.binned.bins.copy_from_slice(&self.parent.bins);
        self.all.copy_from(self.parent);
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        self.halves.take(rows);
        self.taken.take(rows);
        self.others.take(rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Option<f64> {
        Some(self.taken.quality(&self.halves.taken))
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Option<f64> {
        self.halves.subtract();
        let sums = &self.halves.others;
        Some(self.others.quality_without(sums, self.gram, &mut self.all))
    }
}

/// Bins of each candidate's own sums, under the label-wise loss.
pub(crate) struct IndependentBins<'a> {
    halves: Halves<'a>,
    binner: Binner,
    system: System,
    bins: Vec<f64>,
    criteria: Vec<f64>,
}

impl<'a> IndependentBins<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
        binner: Binner,
        l2: f64,
    ) -> Self {
        Self {
            halves: Halves::new(statistics, parent),
            binner,
            system: System::new(binner.n_bins, l2, false),
            bins: vec![0.0; statistics.stride],
            criteria: vec![0.0; statistics.stride],
        }
    }

    #[inline(always)]
    fn quality(&mut self, others: bool) -> f64 {
        let sums = if others {
            &self.halves.others
        } else {
            &self.halves.taken
        };
        self.binner
            .assign(sums.g(), sums.h(), &mut self.criteria, &mut self.bins);
        self.system.set_bins(sums, &self.bins);
        self.system.quality(|_, _| 0.0)
    }
}

impl Evaluator for IndependentBins<'_> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        self.halves.take(rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Option<f64> {
        Some(self.quality(false))
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Option<f64> {
        self.halves.subtract();
        Some(self.quality(true))
    }
}

/// All labels under the example-wise loss; rows have `C` chunks, or any number if `C` is 0.
pub(crate) struct Full<'a, const C: usize> {
    halves: Halves<'a>,
    solver: Solver<C>,
    /// Heads of candidates shortly before. Most candidates are known by them not to be the best.
    of_taken: Near,
    of_others: Near,
    /// The head of the best candidate so far, or nearly so.
    pub(crate) best: Aligned,
    rows: Vec<u32>,
    /// `Σ w g gᵀ` of the first rows, and of how many.
    gram: Gram,
    n_gram: usize,
    /// Rows that products have gone through since the matrix had all.
    gone_through: usize,
}

impl<'a, const C: usize> Full<'a, C> {
    pub(crate) fn new(statistics: &'a Statistics<'a>, parent: &'a Parent<'a>, l2: f64) -> Self {
        let stride = statistics.stride;
        Self {
            halves: Halves::new(statistics, parent),
            solver: Solver::new(stride, l2),
            of_taken: Near::zero(stride),
            of_others: parent.moments.near.clone(),
            best: parent.moments.near.x.clone(),
            rows: Vec::new(),
            gram: Gram::new(0),
            n_gram: 0,
            gone_through: 0,
        }
    }

    /// Makes the matrix that of all rows, if it would have been worth it before.
    #[inline(always)]
    fn choose_form(&mut self) {
        // A product by the rows is 2·K operations for each; adding one to the matrix is K².
        let stride = self.halves.statistics.stride;
        self.gone_through += PRODUCTS * self.rows.len();
        if 2 * self.gone_through > stride * (self.rows.len() - self.n_gram) {
            if self.gram.stride == 0 {
                self.gram = Gram::new(stride);
            }
            for &row in &self.rows[self.n_gram..] {
                let gradient = self.halves.statistics.gradient(row);
                (self.gram).add_outer(self.halves.weights[row as usize], gradient);
            }
            self.n_gram = self.rows.len();
            self.gone_through = 0;
        }
    }
}

/// Products that a head takes, about.
const PRODUCTS: usize = 4;

impl<const C: usize> Evaluator for Full<'_, C> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.rows.clear();
        if self.n_gram > 0 {
            self.gram.data.fill(0.0);
            self.n_gram = 0;
        }
        self.gone_through = 0;
        self.of_taken.x.fill(0.0);
        self.of_taken.product.fill(0.0);
        self.of_others.copy_from(&self.halves.parent.moments.near);
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        let (statistics, weights) = (self.halves.statistics, self.halves.weights);
        let is_first = self.rows.is_empty();
        for batch in statistics.batches(rows, weights) {
            self.halves.taken.add(&batch);
            self.of_others.add::<C>(-1.0, &batch);
            // A head of zeros has a product of zeros.
            if !is_first {
                self.of_taken.add::<C>(1.0, &batch);
            }
        }
        self.rows.extend_from_slice(rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, bound: f64) -> Option<f64> {
        let l2 = self.solver.l2;
        let (all, taken) = (&self.halves.parent.moments.sums, &self.halves.taken);
        if excludes::<C, false>(&self.of_taken, all, taken, l2, bound) {
            return None;
        }
        self.choose_form();
        let (statistics, sums) = (self.halves.statistics, &self.halves.taken);
        let gram = (self.n_gram > 0 && self.n_gram == self.rows.len()).then_some(&self.gram);
        let parts = [(1.0, Outer::of(gram, &self.rows, self.halves.weights))];
        let near = &mut self.of_taken;
        let quality = (self.solver).quality(statistics, sums, &parts, bound, CANDIDATE, near);
        if quality.is_some_and(|quality| quality < bound) {
            self.best.copy_from_slice(&near.x);
        }
        quality
    }

    #[inline(always)]
    fn of_others(&mut self, bound: f64) -> Option<f64> {
        let l2 = self.solver.l2;
        let (all, taken) = (&self.halves.parent.moments.sums, &self.halves.taken);
        if excludes::<C, true>(&self.of_others, all, taken, l2, bound) {
            return None;
        }
        self.halves.subtract();
        self.choose_form();
        let (statistics, sums) = (self.halves.statistics, &self.halves.others);
        let gram = (self.n_gram > 0 && self.n_gram == self.rows.len()).then_some(&self.gram);
        let taken = Outer::of(gram, &self.rows, self.halves.weights);
        let parts = [(1.0, self.halves.parent.outer()), (-1.0, taken)];
        let near = &mut self.of_others;
        let quality = (self.solver).quality(statistics, sums, &parts, bound, CANDIDATE, near);
        if quality.is_some_and(|quality| quality < bound) {
            self.best.copy_from_slice(&near.x);
        }
        quality
    }
}

/// Whether the head of a set cannot have a quality below `bound`, by the argument at
/// [`Solver`]. The set is what was taken, or what was not.
#[inline(always)]
fn excludes<'s, const C: usize, const OTHERS: bool>(
    near: &'s Near,
    all: &'s Sums,
    taken: &'s Sums,
    l2: f64,
    bound: f64,
) -> bool {
    let n = length::<C>(all.stride) / WIDTH;
    let cut = |sums: &'s [f64]| &chunks(sums)[..n];
    let (x, product) = (cut(&near.x), cut(&near.product));
    let [all_g, all_d, all_f] = [cut(all.g()), cut(all.d()), cut(all.f())];
    let [taken_g, taken_d, taken_f] = [cut(taken.g()), cut(taken.d()), cut(taken.f())];
    let side = |all: f64, taken: f64| if OTHERS { all - taken } else { taken };
    let mut gains = [0.0; WIDTH];
    let mut missing = [0.0; WIDTH];
    for c in 0..n {
        for lane in 0..WIDTH {
            let g = side(all_g[c][lane], taken_g[c][lane]);
            let d = side(all_d[c][lane], taken_d[c][lane]);
            let f = side(all_f[c][lane], taken_f[c][lane]);
            let residual = product[c][lane] - (d + l2) * x[c][lane] - g;
            gains[lane] += x[c][lane] * (residual - g);
            let least = if f > 0.0 { f } else { 0.0 } + l2 + TINY;
            missing[lane] += residual * residual / least;
        }
    }
    -0.5 * (total(&gains) + total(&missing)) > bound
}

impl ParentBins {
    /// `Σ w g gᵀ` added up by `bins` on both sides.
    pub(crate) fn new(gram: &Gram, bins: Vec<f64>, n_bins: usize) -> Self {
        let stride = gram.stride;
        let mut by_bin = vec![0.0; n_bins * stride];
        for (k, &bin) in bins.iter().enumerate() {
            if bin >= 0.0 {
                let at = bin as usize * stride;
                add_scaled(&mut by_bin[at..at + stride], 1.0, gram.row(k));
            }
        }
        let mut all = Self {
            bins,
            n_bins,
            by_bin,
            products: vec![0.0; n_bins * n_bins],
        };
        (0..n_bins).for_each(|bin| all.add_up(bin));
        all
    }

    fn copy_from(&mut self, other: &Self) {
        self.bins.copy_from_slice(&other.bins);
        self.by_bin.copy_from_slice(&other.by_bin);
        self.products.copy_from_slice(&other.products);
    }

    /// Adds up one bin's row by bins.
    #[inline(always)]
    fn add_up(&mut self, bin: usize) {
        let stride = self.bins.len();
        let row = &self.by_bin[bin * stride..(bin + 1) * stride];
        let products = &mut self.products[bin * self.n_bins..(bin + 1) * self.n_bins];
        crate::binning::add_up(row, &self.bins, products);
        for other in 0..self.n_bins {
            self.products[other * self.n_bins + bin] = self.products[bin * self.n_bins + other];
        }
    }

    /// Changes the bins.
    #[inline(always)]
    fn update(&mut self, gram: &Gram, moves: &[Move]) {
        if moves.is_empty() {
            return;
        }
        let stride = self.bins.len();
        let mut changed = 0u128;
        for &(label, from, to) in moves {
            self.bins[label] = to;
            for (bin, sign) in [(from, -1.0), (to, 1.0)] {
                if bin >= 0.0 {
                    let at = bin as usize * stride;
                    add_scaled(&mut self.by_bin[at..at + stride], sign, gram.row(label));
                    changed |= 1 << (bin as usize % 128);
                }
            }
        }
        for bin in 0..self.n_bins {
            if changed >> (bin % 128) & 1 == 1 {
                self.add_up(bin);
            }
        }
    }

    #[inline(always)]
    fn product(&self, a: usize, b: usize) -> f64 {
        self.products[a * self.n_bins + b]
    }
}
