//! The quality of candidate sets, by the kind of their head.

use super::sweep::Evaluator;
use super::{Parent, ParentBins};
use crate::binning::Binner;
use crate::head::bins::{BinnedRows, Move, System, find_moves};
use crate::head::solve::{Outer, Solver};
use crate::head::{alone, best_label};
use crate::lanes::{WIDTH, add_scaled, chunks, total};
use crate::statistics::{Gram, Statistics, Sums};

/// The sums of the growing set and of its complement.
struct Halves<'a> {
    statistics: &'a Statistics,
    weights: &'a [f64],
    parent: &'a Parent<'a>,
    taken: Sums,
    others: Sums,
}

impl<'a> Halves<'a> {
    fn new(statistics: &'a Statistics, parent: &'a Parent<'a>) -> Self {
        let empty = parent.sums.emptied();
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
    fn take(&mut self, row: u32) {
        self.taken
            .add(self.statistics, row, self.weights[row as usize]);
    }

    #[inline(always)]
    fn subtract(&mut self) {
        self.others.set_difference(&self.parent.sums, &self.taken);
    }
}

/// Labels that do not depend on one another: all of them, the best one, or a given one.
pub(crate) struct Independent<'a> {
    halves: Halves<'a>,
    l2: f64,
    /// Whether a head scores one label, and which, if that is settled.
    single: Option<Option<usize>>,
}

impl<'a> Independent<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics,
        parent: &'a Parent<'a>,
        l2: f64,
        single: Option<Option<usize>>,
    ) -> Self {
        Self {
            halves: Halves::new(statistics, parent),
            l2,
            single,
        }
    }

    #[inline(always)]
    fn quality(&self, sums: &Sums) -> f64 {
        if let Some(label) = self.single {
            return best_label(sums, self.l2, label).1;
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
    fn take(&mut self, row: u32) {
        self.halves.take(row);
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

/// Bins of each candidate's own sums, under the label-wise loss or the example-wise.
pub(crate) struct Binned<'a> {
    halves: Halves<'a>,
    binner: Binner,
    system: System,
    /// Rows of the growing set, and the roots of their weights.
    rows: Vec<u32>,
    roots: Vec<f64>,
    next: Vec<f64>,
    criteria: Vec<f64>,
    moves: Vec<Move>,
    /// For the example-wise loss: the rows by the bins of the growing set, the same rows by those
    /// of the complement, and all rows of the parent by the latter.
    products: Option<(BinnedRows, BinnedRows, ParentBins)>,
}

impl<'a> Binned<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics,
        parent: &'a Parent<'a>,
        binner: Binner,
        l2: f64,
        restricted: bool,
    ) -> Self {
        let stride = statistics.stride;
        let products = parent.bins.as_ref().map(|bins| {
            let empty = BinnedRows::new(binner.n_bins, stride);
            let mut others = empty.clone();
            others.bins.copy_from_slice(&bins.bins);
            (empty, others, bins.clone())
        });
        Self {
            halves: Halves::new(statistics, parent),
            binner,
            system: System::new(binner.n_bins, stride, l2, restricted),
            rows: Vec::new(),
            roots: Vec::new(),
            next: vec![0.0; stride],
            criteria: vec![0.0; stride],
            moves: Vec::new(),
            products,
        }
    }
}

impl Evaluator for Binned<'_> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.rows.clear();
        self.roots.clear();
        if let Some((taken, others, _)) = &mut self.products {
            taken.clear();
            others.clear();
        }
    }

    #[inline(always)]
    fn take(&mut self, row: u32) {
        self.halves.take(row);
        if self.products.is_some() {
            self.rows.push(row);
            self.roots.push(self.halves.weights[row as usize].sqrt());
        }
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Option<f64> {
        let sums = &self.halves.taken;
        self.binner
            .assign(sums.g(), sums.h(), &mut self.criteria, &mut self.next);
        self.system.set_bins(sums, &self.next);
        let Some((taken, ..)) = &mut self.products else {
            return Some(self.system.quality(|_, _| 0.0));
        };
        find_moves(&taken.bins, &self.next, &mut self.moves);
        let (statistics, rows, roots) = (self.halves.statistics, &self.rows, &self.roots);
        let gradient = |i: usize| statistics.gradient(rows[i]);
        taken.update(&self.moves, rows.len(), gradient, |i| roots[i]);
        Some(self.system.quality(|a, b| taken.product(a, b)))
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Option<f64> {
        self.halves.subtract();
        let sums = &self.halves.others;
        self.binner
            .assign(sums.g(), sums.h(), &mut self.criteria, &mut self.next);
        self.system.set_bins(sums, &self.next);
        let Some((_, others, all)) = &mut self.products else {
            return Some(self.system.quality(|_, _| 0.0));
        };
        find_moves(&others.bins, &self.next, &mut self.moves);
        let (statistics, rows, roots) = (self.halves.statistics, &self.rows, &self.roots);
        let gradient = |i: usize| statistics.gradient(rows[i]);
        others.update(&self.moves, rows.len(), gradient, |i| roots[i]);
        if let Some(gram) = self.halves.parent.gram {
            all.update(gram, &self.moves);
        }
        Some(
            self.system
                .quality(|a, b| all.product(a, b) - others.product(a, b)),
        )
    }
}

/// All labels under the example-wise loss.
pub(crate) struct Full<'a> {
    halves: Halves<'a>,
    solver: Solver,
    rows: Vec<u32>,
    /// `Σ w g gᵀ` of the growing set, where that is cheaper than its rows.
    gram: Option<Gram>,
    /// Heads of the candidates before.
    of_taken: Vec<f64>,
    of_others: Vec<f64>,
}

impl<'a> Full<'a> {
    /// `n_rows` rows will be taken, and quality asked for after `n_steps` of them.
    pub(crate) fn new(
        statistics: &'a Statistics,
        parent: &'a Parent<'a>,
        l2: f64,
        n_rows: usize,
        n_steps: usize,
    ) -> Self {
        let stride = statistics.stride;
        // Two candidates a step. A product is 2·K operations for each row, or K² by the matrix;
        // adding a row to which is K², too.
        let by_rows = 2 * n_steps * n_rows;
        let by_matrix = stride * (n_rows + 2 * n_steps);
        Self {
            halves: Halves::new(statistics, parent),
            solver: Solver::new(stride, l2),
            rows: Vec::new(),
            gram: (by_matrix < by_rows).then(|| Gram::new(stride)),
            of_taken: vec![0.0; stride],
            of_others: parent.head.clone(),
        }
    }
}

impl Evaluator for Full<'_> {
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.rows.clear();
        if let Some(gram) = &mut self.gram {
            gram.data.fill(0.0);
        }
        self.of_taken.fill(0.0);
        self.of_others.copy_from_slice(&self.halves.parent.head);
    }

    #[inline(always)]
    fn take(&mut self, row: u32) {
        self.halves.take(row);
        match &mut self.gram {
            Some(gram) => {
                let gradient = self.halves.statistics.gradient(row);
                gram.add_outer(self.halves.weights[row as usize], gradient);
            }
            None => self.rows.push(row),
        }
    }

    #[inline(always)]
    fn of_taken(&mut self, bound: f64) -> Option<f64> {
        let taken = match &self.gram {
            Some(gram) => Outer::Matrix(gram),
            None => Outer::Rows(&self.rows, self.halves.weights),
        };
        let (statistics, sums) = (self.halves.statistics, &self.halves.taken);
        self.solver
            .quality(statistics, sums, &[(1.0, taken)], bound, &mut self.of_taken)
    }

    #[inline(always)]
    fn of_others(&mut self, bound: f64) -> Option<f64> {
        self.halves.subtract();
        let taken = match &self.gram {
            Some(gram) => Outer::Matrix(gram),
            None => Outer::Rows(&self.rows, self.halves.weights),
        };
        let parts = [(1.0, self.halves.parent.outer()), (-1.0, taken)];
        let (statistics, sums) = (self.halves.statistics, &self.halves.others);
        self.solver
            .quality(statistics, sums, &parts, bound, &mut self.of_others)
    }
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
