//! The router: one L2-regularized logistic regression for each class, in its dual.
//!
//! For one class, with `s_i = 1` for its rows and −1 for the others,
//!
//! ```text
//! min_w ½‖w‖² + Σ_i C m_i ln(1 + exp(−s_i w·x_i))
//! ```
//!
//! whose dual has a variable `0 < α_i < C_i = C m_i` for each row and `w = Σ_i α_i s_i x_i`. Rows
//! are visited in random order; each visit minimizes over one variable by Newton's method, working
//! on whichever of `α_i` and `C_i − α_i` is the smaller, near zero where digits are many.
//! (Yu, Huang, Lin: Dual coordinate descent methods for logistic regression and maximum entropy
//! models, 2011, algorithm 5.)

use crate::each::each;
use fastrand::Rng;
use manylabel_base::range::{at_least_one, positive, same};
use manylabel_base::{Error, Watch, collected, filled, push};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};

/// Rows between two looks at the watch.
const ROWS_AT_ONCE: usize = 8192;
/// Newton steps of one visit.
const STEPS: usize = 100;

/// Parameters of the router.
#[derive(Debug, Clone)]
pub struct Router {
    /// `C`: weight of the loss against the regularizer; finite, > 0.
    pub c: f64,
    /// Whether there is an intercept: the weight of a feature that is 1 everywhere.
    pub fit_intercept: bool,
    /// A class is done when no dual gradient of a pass exceeds this; finite, > 0.
    pub tol: f64,
    /// Passes over the rows at most; ≥ 1.
    pub max_iter: usize,
    /// Seeds the order of rows.
    pub seed: u64,
}

/// What finds a row's class: the one of the largest linear score.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes {
    /// Row j of (`n_features`, `n_classes`): the classes' weights for feature j.
    pub weights: CsrOwned,
    /// (`n_classes`).
    pub intercept: Vec<f32>,
    /// Passes of each class; `max_iter` where it did not converge.
    pub n_iter: Vec<u32>,
}

/// The rows as every class sees them.
struct Problem<'a> {
    x: CsrOwned,
    squared: Vec<f64>,
    classes: &'a [u32],
    weights: Option<&'a [f32]>,
}

impl Router {
    /// Learns the class of each row of `x` from its features, rows scaled to unit length.
    ///
    /// `weights`, if given, multiplies the loss of each row; all are > 0. Time O(nnz(X)) a pass
    /// and class; memory 8 bytes a feature and class, and for each thread 8 bytes a row and feature.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for a parameter out of its range or a class that is none of `n_classes`,
    /// [`Error::Shape`] if lengths differ, [`Error::TooLarge`], [`Error::Stopped`].
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        classes: &[u32],
        n_classes: usize,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Routes, Error> {
        positive("C", self.c)?;
        positive("tol", self.tol)?;
        at_least_one("max_iter", self.max_iter)?;
        for (what, got) in [
            ("length of classes", classes.len()),
            (
                "length of sample_weight",
                weights.map_or(x.n_rows(), <[f32]>::len),
            ),
        ] {
            same(what, x.n_rows(), got)?;
        }
        if let Some(class) = classes.iter().find(|&&class| class as usize >= n_classes) {
            return Err(Error::Param {
                name: "classes",
                expected: "below the number of classes",
                got: format!("{class} of {n_classes}"),
            });
        }
        let n_features = x.n_cols();
        let mut x = CsrOwned::from_view(x, true)?;
        watch.step(0)?;
        let features = x.drop_empty_columns()?;
        watch.step(0)?;
        if self.fit_intercept {
            x.append_ones()?;
            watch.step(0)?;
        }
        let squared = (0..x.n_rows()).map(|row| {
            let values = x.row(row).1.iter();
            values.map(|&value| f64::from(value).powi(2)).sum()
        });
        let problem = Problem {
            squared: collected("number of rows", squared)?,
            x,
            classes,
            weights,
        };
        let numbers = collected("number of classes", 0..n_classes as u32)?;
        let solved = each("number of classes", &numbers, |&class| {
            self.solve(&problem, class, watch)
        })?;
        self.assemble(&solved, &features, n_features, watch)
    }

    /// The weights of one class, the intercept last if there is one, and the passes they took.
    fn solve(
        &self,
        problem: &Problem<'_>,
        class: u32,
        watch: &Watch,
    ) -> Result<(Vec<f32>, usize), Error> {
        let x = &problem.x;
        let sign = |row: usize| {
            if problem.classes[row] == class {
                1.0
            } else {
                -1.0
            }
        };
        let bound = |row: usize| {
            let weight = |weights: &[f32]| f64::from(weights[row]);
            // Weights so small that a bound of the dual vanishes would divide by it.
            (self.c * problem.weights.map_or(1.0, weight)).max(f64::MIN_POSITIVE * 1e20)
        };
        // α and C − α, each kept for its own sake: the smaller one must not lose its digits.
        let start = |row| {
            let alpha = (1e-3 * bound(row)).min(1e-8);
            [alpha, bound(row) - alpha]
        };
        let mut alpha: Vec<[f64; 2]> = collected("number of rows", (0..x.n_rows()).map(start))?;
        let mut w = filled("number of features", 0.0, x.n_cols)?;
        for row in 0..x.n_rows() {
            if row % ROWS_AT_ONCE == 0 {
                watch.step(0)?;
            }
            add_row(&mut w, x, row, alpha[row][0] * sign(row));
        }
        let mut rng =
            Rng::with_seed(self.seed ^ u64::from(class).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut order = collected("number of rows", 0..x.n_rows() as u32)?;
        let mut inner_tol = 1e-2;
        let mut n_iter = 0;
        while n_iter < self.max_iter {
            n_iter += 1;
            rng.shuffle(&mut order);
            let (mut largest, mut steps) = (0.0f64, 0);
            for rows in order.chunks(ROWS_AT_ONCE) {
                watch.step(0)?;
                for &row in rows {
                    let row = row as usize;
                    let visit = Visit {
                        a: problem.squared[row],
                        b: sign(row) * product(&w, x, row),
                        c: bound(row),
                    };
                    let (gradient, taken, change) = visit.minimize(&mut alpha[row], inner_tol);
                    largest = largest.max(gradient.abs());
                    steps += taken;
                    if taken > 0 {
                        add_row(&mut w, x, row, change * sign(row));
                    }
                }
            }
            if largest < self.tol {
                break;
            }
            // Where visits need next to no steps, they may be asked for more.
            if steps <= x.n_rows() / 10 {
                inner_tol = (0.1 * inner_tol).max(self.tol.min(1e-8));
            }
        }
        let w = w.into_iter().map(|w| w as f32);
        Ok((collected("number of features", w)?, n_iter))
    }

    fn assemble(
        &self,
        solved: &[(Vec<f32>, usize)],
        features: &[u32],
        n_features: usize,
        watch: &Watch,
    ) -> Result<Routes, Error> {
        let mut weights = CsrOwned {
            indptr: filled("number of features", 0, n_features + 1)?,
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: solved.len(),
        };
        for (at, &feature) in features.iter().enumerate() {
            watch.step(0)?;
            let before = weights.indices.len();
            for (class, (w, _)) in (0..).zip(solved) {
                if w[at] != 0.0 {
                    push("weights of the router", &mut weights.indices, class)?;
                    push("weights of the router", &mut weights.values, w[at])?;
                }
            }
            weights.indptr[feature as usize + 1] = weights.indices.len() - before;
        }
        for feature in 0..n_features {
            weights.indptr[feature + 1] += weights.indptr[feature];
        }
        let intercept = |(w, _): &(Vec<f32>, usize)| {
            if self.fit_intercept {
                w[features.len()]
            } else {
                0.0
            }
        };
        let n_iter = solved.iter().map(|&(_, n_iter)| n_iter as u32);
        Ok(Routes {
            weights,
            intercept: collected("number of classes", solved.iter().map(intercept))?,
            n_iter: collected("number of classes", n_iter)?,
        })
    }
}

/// One variable's problem: `½ a (z − α)² + b (z − α) + z ln z + (C − z) ln(C − z)` over z.
struct Visit {
    a: f64,
    b: f64,
    c: f64,
}

impl Visit {
    /// Moves the pair `(α, C − α)`; returns the gradient before, Newton steps, and the change of α.
    fn minimize(&self, pair: &mut [f64; 2], tol: f64) -> (f64, usize, f64) {
        let Self { a, b, c } = *self;
        let second = 0.5 * a * (pair[1] - pair[0]) + b < 0.0;
        let (at, sign) = if second { (1, -1.0) } else { (0, 1.0) };
        let old = pair[at];
        let slope = |z: f64| a * (z - old) + sign * b + (z / (c - z)).ln();
        let mut z = if c - old < 0.5 * c { 0.1 * old } else { old };
        let mut gradient = slope(z);
        let first = gradient;
        let mut steps = 0;
        while gradient.abs() >= tol && steps < STEPS {
            let newton = z - gradient / (a + c / ((c - z) * z));
            z = if newton <= 0.0 {
                0.1 * z
            } else if newton >= c {
                0.5 * (z + c) // only rounding leads here
            } else {
                newton
            };
            gradient = slope(z);
            steps += 1;
        }
        if steps == 0 {
            return (first, 0, 0.0);
        }
        pair[at] = z;
        pair[1 - at] = c - z;
        (first, steps, sign * (z - old))
    }
}

#[inline(always)]
fn product(w: &[f64], x: &CsrOwned, row: usize) -> f64 {
    let (cols, values) = x.row(row);
    let both = cols.iter().zip(values);
    both.map(|(&col, &value)| w[col as usize] * f64::from(value))
        .sum()
}

#[inline(always)]
fn add_row(w: &mut [f64], x: &CsrOwned, row: usize, scale: f64) {
    let (cols, values) = x.row(row);
    for (&col, &value) in cols.iter().zip(values) {
        w[col as usize] += scale * f64::from(value);
    }
}
