//! Fits the router, which predicts one class per row. For each class, one L2-regularized logistic
//! regression separates the class from all other classes.
//!
//! For one class, let `s_i` be 1 for the rows of the class and −1 for other rows, and let `m_i` be the weight
//! of row `x_i`. C is the weight of the loss. The regression finds the weights w that minimize
//!
//! ```text
//! ½‖w‖² + Σ_i C m_i ln(1 + exp(−s_i w·x_i))
//! ```
//!
//! The dual problem has one variable `0 < α_i < C_i = C m_i` for each row, and
//! `w = Σ_i α_i s_i x_i`. Rows are visited in random order. Each visit minimizes over the variable
//! of one row by Newton's method. The method works on the smaller of the two numbers `α_i` and
//! `C_i − α_i`, because its absolute rounding error is smaller. This is algorithm 5 of Yu, Huang
//! and Lin, "Dual coordinate descent methods for logistic regression and maximum entropy models"
//! (2011), which LIBLINEAR also uses.
//!
//! Classes are independent and are fitted in parallel. The order of rows depends only on the seed
//! and the class, so results do not depend on the number of threads.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_partition::Router;
//! use manylabel_sparse::{CsrView, Rows};
//!
//! let x = CsrView::new("X", &[0i32, 1, 2, 3], &[0, 0, 1], &[1.0f32; 3], 2)?;
//! let router = Router { c: 1.0, fit_intercept: false, tol: 0.01, max_iter: 100, seed: 0 };
//! let routes = router.fit(Rows::copied(x.into(), true)?, &[0, 0, 1], 2, None, &Watch::new())?;
//! // Feature 0 is evidence for class 0 and against class 1.
//! let (classes, weights) = routes.weights.row(0);
//! assert_eq!(classes, [0, 1]);
//! assert!(weights[0] > 0.0 && weights[1] < 0.0);
//! # Ok::<(), manylabel_base::Error>(())
//! ```

use crate::each::each;
use fastrand::Rng;
use manylabel_base::range::{at_least_one, positive, same};
use manylabel_base::{Error, Watch, collected, filled, push};
use manylabel_sparse::{CsrOwned, Rows, Stored};

/// Number of rows that are visited between two checks for a stop request.
const ROWS_AT_ONCE: usize = 8192;
/// The maximum number of Newton steps for the dual variable of one row, in one pass.
const STEPS: usize = 100;

/// Parameters of the router, which predicts one class per row.
#[derive(Debug, Clone)]
pub struct Router {
    /// `C`: the weight of the loss relative to the regularization; finite, > 0.
    pub c: f64,
    /// `fit_intercept`: whether to add a feature that is 1 in all rows. The weight of this feature is
    /// the intercept. It is regularized like the other weights.
    pub fit_intercept: bool,
    /// `tol`: a class has converged after a pass in which the absolute value of every dual gradient
    /// is below this number; finite, > 0.
    pub tol: f64,
    /// `max_iter`: maximum number of passes over the rows; ≥ 1.
    pub max_iter: usize,
    /// The seed of the random order in which rows are visited.
    pub seed: u64,
}

/// A fitted router. The predicted class of a row is the class with the largest linear score. Rows
/// must have unit length.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes {
    /// The weights, one column per class; shape (`n_features`, `n_classes`). Zeros are not stored.
    pub weights: CsrOwned,
    /// The intercepts; shape (`n_classes`,). They are zero if no intercepts are fitted.
    pub intercept: Vec<f32>,
    /// Number of passes over the rows for each class; shape (`n_classes`,). It is `max_iter` for a class
    /// that did not converge earlier.
    pub n_iter: Vec<u32>,
}

/// The data that all classes share.
struct Problem<'a> {
    /// Rows of unit length. Empty columns of sparse rows are left out. If intercepts are fitted, the last column
    /// is a column of ones.
    x: Stored<'a>,
    /// The squared length of each row, including the column of ones.
    squared: Vec<f64>,
    /// The class of each row.
    classes: &'a [u32],
    /// One weight per row, if given.
    weights: Option<&'a [f32]>,
}

impl Router {
    /// Fits the router to the rows of `x`, which must have unit length, and their classes.
    ///
    /// `classes` has one class per row, below `n_classes`. `weights` has one weight > 0 per row,
    /// which multiplies the loss of the row. None means that all weights are 1.
    ///
    /// The time is O(nnz(X)) per pass and class. Dense rows are copied. Each class takes 4 bytes per
    /// feature and 8 bytes per nonzero weight. Each thread takes 20 bytes per row and 8 bytes per feature.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a parameter is out of its range, if a class is not below `n_classes`,
    /// or if a value of dense rows is infinite. Returns [`Error::Shape`] if there is not exactly one class and
    /// one weight per row. Returns [`Error::TooLarge`] if there is not enough memory. Returns
    /// [`Error::Stopped`] if the caller requested a stop.
    pub fn fit(
        &self,
        x: Rows<'_>,
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
                got: format!("{class}, and there are {n_classes} classes"),
            });
        }
        let n_features = x.n_features();
        let mut x = x.stored(watch)?;
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

    /// Fits the regression of one class. Returns the weights and the number of passes. If
    /// intercepts are fitted, the last weight is the intercept.
    fn solve(
        &self,
        problem: &Problem<'_>,
        class: u32,
        watch: &Watch,
    ) -> Result<(Vec<f32>, usize), Error> {
        let x = problem.x.view();
        let sign = |row: usize| {
            if problem.classes[row] == class {
                1.0
            } else {
                -1.0
            }
        };
        let bound = |row: usize| {
            let weight = |weights: &[f32]| f64::from(weights[row]);
            // This upper bound of α is used as a divisor, so it must not become zero for tiny
            // weights.
            (self.c * problem.weights.map_or(1.0, weight)).max(f64::MIN_POSITIVE * 1e20)
        };
        // α and C − α are stored separately, so that the smaller number keeps its precision.
        let start = |row| {
            let alpha = (1e-3 * bound(row)).min(1e-8);
            [alpha, bound(row) - alpha]
        };
        let mut alpha: Vec<[f64; 2]> = collected("number of rows", (0..x.n_rows()).map(start))?;
        let mut w = filled("number of features", 0.0, x.n_cols())?;
        for row in 0..x.n_rows() {
            if row % ROWS_AT_ONCE == 0 {
                watch.step(0)?;
            }
            add_row(&mut w, x.row(row), alpha[row][0] * sign(row));
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
                    let (entries, sign) = (x.row(row), sign(row));
                    let visit = Visit {
                        a: problem.squared[row],
                        b: sign * product(&w, entries),
                        c: bound(row),
                    };
                    let (gradient, taken, change) = visit.minimize(&mut alpha[row], inner_tol);
                    largest = largest.max(gradient.abs());
                    steps += taken;
                    if taken > 0 {
                        add_row(&mut w, entries, change * sign);
                    }
                }
            }
            if largest < self.tol {
                break;
            }
            // If this pass took only a few Newton steps, the next passes use a smaller tolerance.
            if steps <= x.n_rows() / 10 {
                inner_tol = (0.1 * inner_tol).max(self.tol.min(1e-8));
            }
        }
        let w = w.into_iter().map(|w| w as f32);
        Ok((collected("number of features", w)?, n_iter))
    }

    /// Combines the weights of all classes into a matrix with one row per original feature.
    /// `features` holds the original feature of each column.
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
                    push(
                        "number of weights of the router",
                        &mut weights.indices,
                        class,
                    )?;
                    push(
                        "number of weights of the router",
                        &mut weights.values,
                        w[at],
                    )?;
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

/// The one-dimensional problem of a visit to a row: minimize
/// `½ a (z − α)² + b (z − α) + z ln z + (c − z) ln(c − z)` over z in (0, c). Here, α is the current value
/// of the dual variable.
struct Visit {
    /// `‖x_i‖²`, the squared length of the row.
    a: f64,
    /// `s_i w·x_i`, the score of the row times the sign of its class.
    b: f64,
    /// The upper bound `C_i` of the dual variable.
    c: f64,
}

impl Visit {
    /// Minimizes over the dual variable α by Newton's method, and updates `pair`, which is (α, c − α). The
    /// method works on whichever of these two numbers is smaller at the minimum.
    ///
    /// Newton's method ends when the absolute value of the gradient is below `tol`, or after
    /// [`STEPS`] steps. Returns the gradient at the start, the number of steps, and the change of
    /// α. If there is no step, the pair does not change.
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
                0.5 * (z + c) // only rounding errors can cause this case
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

/// Number of entries of a row that one step of a loop processes.
const ENTRIES: usize = 4;

/// Returns the dot product of `w` and a row, given by its columns and values. The products are added in
/// order.
// This function is not inlined. In the loop of `solve`, it would need more registers than available.
#[inline(never)]
fn product(w: &[f64], (cols, values): (&[u32], &[f32])) -> f64 {
    let (cols, last_cols) = cols.as_chunks::<ENTRIES>();
    let (values, last_values) = values.as_chunks::<ENTRIES>();
    let mut sum = 0.0;
    for (cols, values) in cols.iter().zip(values) {
        for (&col, &value) in cols.iter().zip(values) {
            sum += w[col as usize] * f64::from(value);
        }
    }
    for (&col, &value) in last_cols.iter().zip(last_values) {
        sum += w[col as usize] * f64::from(value);
    }
    sum
}

/// Adds `scale` times a row, given by its columns and values, to `w`.
// This function is not inlined for the same reason as `product`.
#[inline(never)]
fn add_row(w: &mut [f64], (cols, values): (&[u32], &[f32]), scale: f64) {
    let (cols, last_cols) = cols.as_chunks::<ENTRIES>();
    let (values, last_values) = values.as_chunks::<ENTRIES>();
    for (cols, values) in cols.iter().zip(values) {
        for (&col, &value) in cols.iter().zip(values) {
            w[col as usize] += scale * f64::from(value);
        }
    }
    for (&col, &value) in last_cols.iter().zip(last_values) {
        w[col as usize] += scale * f64::from(value);
    }
}
