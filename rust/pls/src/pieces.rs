//! Fits an embedding in pieces, which several machines can compute.
//!
//! A fit has the stages of [`Stage`], one after the other. A stage consists of units: strips of the Gram
//! matrix, or panels of 32 right-hand sides. A piece is the result of some units of one stage. A [`Task`] holds
//! the training data and the results of all stages that are complete.
//!
//! A fit of a panel makes passes over all rows, so it needs nothing from other panels. Pieces that are blocks
//! of rows would have to add up their sums of shape (`n_features`, 32) after each conjugate gradient step.
//!
//! Units are exactly the units of work of [`Checked::fit`], in which no sum is computed by several threads. The
//! result therefore has the same bits as the result of this method, for any pieces. The orthogonalizations
//! between two stages and the factorizations are computed again by each task.

use crate::choice::choose;
use crate::design::{Design, Matrix, Rows, cross};
use crate::fit::{Found, Model, Range as Finder, rows_of};
use crate::params::Checked;
use crate::solve::{Gram, Problem, Regression, Strips};
use crate::tall::Tall;
use crate::{Components, Embedding, Params, Ridge};
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, extend, few, parts, push, reserved};
use manylabel_sparse::{ColumnOrder, CsrView, DenseView, Index, LANES, Lanes, Real};
use rayon::prelude::*;
use std::ops::Range;

/// Names of arrays in error messages about memory.
const STAGES: &str = "number of iterations";
const PANELS: &str = "number of values in the panels of a piece";
const GRAM: &str = "the Gram matrix";

/// A stage of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The Gram matrix. A unit is a strip of rows of the matrix.
    Gram,
    /// The choice of the ridge for U. There is one unit.
    Ridge,
    /// A product of the range finder. A unit is a panel.
    Product,
    /// The choice of the ridge for W. There is one unit.
    RidgeOfCoef,
    /// The regression for W. A unit is a panel.
    Weights,
    /// The model. There is one unit.
    End,
}

/// The result of some units of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece<T> {
    /// Rows of the Gram matrix, or the chosen ridge.
    pub numbers: Vec<f64>,
    /// The panels, one after the other. Each panel has 32 numbers for every row of its matrix.
    pub panels: Vec<T>,
    /// Largest number of steps of conjugate gradients.
    pub n_steps: usize,
    /// Number of right-hand sides that have not reached the tolerance.
    pub n_unfinished: usize,
}

impl<T> Piece<T> {
    /// Returns a piece without panels.
    fn of(numbers: Vec<f64>) -> Self {
        Self {
            numbers,
            panels: Vec::new(),
            n_steps: 1,
            n_unfinished: 0,
        }
    }
}

/// The training data of a fit, and the results of all complete stages.
pub struct Task<'x, T: 'static> {
    params: Params,
    /// The number of components that was asked for.
    k: usize,
    problem: Problem<'x, T>,
    /// The numbers of features and labels.
    sizes: (usize, usize),
    weight_scale: f64,
    strips: Strips,
    /// Each stage, with its units.
    stages: Vec<(Stage, Range<usize>)>,
    /// The number of complete stages.
    n_complete: usize,
    gram: Gram,
    /// The ridges of U and W, relative to the mean diagonal of `XᵀΩX`. They are 0 until they are chosen.
    l2: f64,
    l2_of_coef: f64,
    /// The last ridge that was used, and its regression.
    regression: Option<(f64, Regression<T>)>,
    /// The matrix Q of the next product.
    q: Tall<T>,
    u: Tall<T>,
    w: Tall<T>,
    eigenvalues: Option<Vec<f64>>,
    n_steps: usize,
    n_unfinished: usize,
}

impl Checked {
    /// Prepares a fit to a sparse `x` in pieces. The arguments are the same as those of [`fit`](Self::fit). All
    /// entries of `y` must be known, and the embedding must not be [`Embedding::Pca`].
    ///
    /// The task copies `x` and `y`, like a fit.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit). Also returns [`Error::Param`] if the fit cannot be divided
    /// into pieces.
    pub fn task<I: Index, J: Index, T: Real + 'static>(
        &self,
        x: CsrView<'_, I, T>,
        y: CsrView<'_, J, f32>,
        sample_weight: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Task<'static, T>, Error> {
        let (ones, center) = (self.0.has_ones(), self.0.center);
        let design = |rows: &Rows<T>| Design::sparse_features(x, rows, ones, center, watch);
        self.task_of(Matrix::Sparse(x), design, y, sample_weight, watch)
    }

    /// Prepares a fit to a dense `x` in pieces, as [`task`](Self::task) does. The task reads `x` in place.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`task`](Self::task).
    pub fn dense_task<'x, J: Index, T: Real + 'static>(
        &self,
        x: DenseView<'x, T>,
        y: CsrView<'_, J, f32>,
        sample_weight: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Task<'x, T>, Error> {
        let (ones, center) = (self.0.has_ones(), self.0.center);
        let x = Matrix::<i32, T>::Dense(x);
        let design = |rows: &Rows<T>| Design::features(x, rows, ones, center, watch);
        self.task_of(x, design, y, sample_weight, watch)
    }

    /// Prepares a fit in pieces. `design` makes the design matrix of the features `x`.
    fn task_of<'x, I: Index, J: Index, T: Real + 'static>(
        &self,
        x: Matrix<'_, I, T>,
        design: impl Fn(&Rows<T>) -> Result<Design<'x, T>, Error>,
        y: CsrView<'_, J, f32>,
        sample_weight: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Task<'x, T>, Error> {
        let params = &self.0;
        let Components::Count(k) = params.n_components else {
            return Err(refused("n_components", "an integer", "a fraction"));
        };
        if params.embedding == Embedding::Pca {
            return Err(refused(
                "embedding",
                "\"rembrandt\" or \"gaussian\"",
                "\"pca\"",
            ));
        }
        same("rows of Y", x.n_rows(), y.n_rows())?;
        if (0..y.n_rows()).any(|row| y.row(row).1.iter().any(|value| value.is_nan())) {
            return Err(refused(
                "Y",
                "without unknown entries (NaN)",
                "unknown entries",
            ));
        }
        let n_values = |row: usize| x.n_values(row) + y.row(row).0.len() + 1;
        let (rows, weight_scale) = rows_of(x.n_rows(), n_values, sample_weight)?;
        let order = ColumnOrder::new(y)?;
        watch.step(0)?;
        let problem = Problem {
            y: Design::labels(y, &order, &rows, params.center, watch)?,
            x: design(&rows)?,
            rows,
        };
        let sizes = (x.n_cols(), y.n_cols());
        let nothing = || Tall::from_fn(0, 0, |_, _| 0.0);
        let (q, u) = match params.embedding {
            Embedding::Gaussian => (nothing()?, problem.gaussian(params.seed, k, sizes.1)?),
            _ => (problem.first_basis(params, k, watch)?, nothing()?),
        };
        let strips = Strips::new(params, &problem);
        let stages = stages(params, strips.len(), (q.panels.len(), u.panels.len()), k)?;
        let l2 = match params.l2 {
            Ridge::Of(l2) => l2,
            Ridge::Auto => 0.0,
        };
        let mut task = Task {
            params: params.clone(),
            k,
            problem,
            sizes,
            weight_scale,
            strips,
            stages,
            n_complete: 0,
            gram: Gram::None,
            l2: 0.0,
            l2_of_coef: 0.0,
            regression: None,
            q,
            u,
            w: nothing()?,
            eigenvalues: None,
            n_steps: 1,
            n_unfinished: 0,
        };
        task.set_ridge(l2);
        Ok(task)
    }
}

/// Returns the stages of a fit. `n_strips` is the number of strips of the Gram matrix. `n_panels` are the numbers
/// of panels of the first Q and of a given U.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory for the stages of all iterations.
fn stages(
    params: &Params,
    n_strips: usize,
    (of_q, of_u): (usize, usize),
    k: usize,
) -> Result<Vec<(Stage, Range<usize>)>, Error> {
    let mut sizes = Vec::new();
    if n_strips > 0 {
        push(STAGES, &mut sizes, (Stage::Gram, n_strips))?;
    }
    if params.l2 == Ridge::Auto {
        push(STAGES, &mut sizes, (Stage::Ridge, 1))?;
    }
    let mut of_w = of_u;
    if params.embedding != Embedding::Gaussian {
        let products = (0..=params.n_iter).map(|_| (Stage::Product, of_q));
        extend(STAGES, &mut sizes, products)?;
        // U has at least one column, and at most as many as Q.
        of_w = k.div_ceil(LANES).min(of_q).max(1);
    }
    if params.l2_final == Ridge::Auto && !matches!(params.l2, Ridge::Of(l2) if l2 <= 0.0) {
        push(STAGES, &mut sizes, (Stage::RidgeOfCoef, 1))?;
    }
    push(STAGES, &mut sizes, (Stage::Weights, of_w))?;
    push(STAGES, &mut sizes, (Stage::End, 1))?;
    let mut first = 0;
    let with_units = sizes.into_iter().map(|(stage, size)| {
        let units = first..first + size;
        first = units.end;
        (stage, units)
    });
    collected(STAGES, with_units)
}

impl<T: Real + 'static> Task<'_, T> {
    /// Returns the first unit of each stage, and the number of units.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub fn stages(&self) -> Result<Vec<usize>, Error> {
        let starts = self.stages.iter().map(|(_, units)| units.start);
        let end = self.stages.last().map(|(_, units)| units.end);
        collected(STAGES, starts.chain(end))
    }

    /// Sets the ridge of U, and the ridge of W unless it is chosen later.
    fn set_ridge(&mut self, l2: f64) {
        self.l2 = l2;
        self.l2_of_coef = match self.params.l2_final {
            Ridge::Auto => l2,
            Ridge::Of(ratio) => l2 * ratio,
        };
    }

    /// Prepares the regression with a ridge, unless it is the last one that was used.
    fn prepare(&mut self, l2: f64, watch: &Watch) -> Result<(), Error> {
        if !matches!(&self.regression, Some((known, _)) if known.to_bits() == l2.to_bits()) {
            self.regression = None; // frees its memory
            let n_equations = self.n_equations();
            let problem = &self.problem;
            let with = Regression::new(&self.params, problem, &self.gram, l2, n_equations, watch)?;
            self.regression = Some((l2, with));
        }
        Ok(())
    }

    /// Returns the number of features, plus 1 if there is a column of ones.
    fn n_equations(&self) -> usize {
        self.sizes.0 + usize::from(self.problem.x.ones)
    }

    /// Computes units of the first stage that is not complete. `watch` counts the finished panels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the units are not in this stage, or if a regression has no finite solution.
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub fn fit(&mut self, units: &Range<usize>, watch: &Watch) -> Result<Piece<T>, Error> {
        let (stage, own) = &self.stages[self.n_complete];
        if units.start < own.start || units.end > own.end || *stage == Stage::End {
            let got = format!("{units:?}, but the stage has {own:?}");
            return Err(refused("units", "units of the present stage", &got));
        }
        let local = units.start - own.start..units.end - own.start;
        match *stage {
            Stage::Gram => {
                let rows = self.strips.compute(&self.problem, &local, watch)?;
                Ok(Piece::of(rows))
            }
            Stage::Ridge => {
                let q = self.problem.probe(self.params.seed, LANES)?;
                self.ridge(&q, 1.0, watch)
            }
            Stage::RidgeOfCoef => self.ridge(&self.u, self.l2, watch),
            Stage::Product => {
                self.prepare(self.l2, watch)?;
                self.panels(&self.q, &local, true, watch)
            }
            Stage::Weights | Stage::End => {
                self.prepare(self.l2_of_coef, watch)?;
                self.panels(&self.u, &local, false, watch)
            }
        }
    }

    /// Chooses a ridge for the first panel of `q`. The search starts at `l2`.
    fn ridge(&self, q: &Tall<T>, l2: f64, watch: &Watch) -> Result<Piece<T>, Error> {
        let (problem, q) = (&self.problem, &q.panels[0]);
        let n_equations = self.n_equations();
        let chosen = choose(&self.params, problem, &self.gram, n_equations, q, l2, watch)?;
        Ok(Piece::of(few([chosen.l2])))
    }

    /// Fits some panels of `q`. If `product` is true, multiplies the solutions by `YᵀΩX`. Panels beyond the last
    /// panel of `q` are left out, since Q may have lost columns since the stages were made.
    fn panels(
        &self,
        q: &Tall<T>,
        wanted: &Range<usize>,
        product: bool,
        watch: &Watch,
    ) -> Result<Piece<T>, Error> {
        let (_, regression) = self.regression.as_ref().expect("prepared by the caller");
        let Problem { rows, x, y } = &self.problem;
        let end = wanted.end.min(q.panels.len());
        let fits = q.panels[wanted.start.min(end)..end].par_iter().map(|q| {
            let mut fit = regression.fit(&self.problem, q, watch)?;
            if product {
                fit.z = cross(rows, x, y, &fit.z, watch)?;
            }
            watch.step(1)?;
            Ok(fit)
        });
        let mut piece = Piece::of(Vec::new());
        for fit in parts(fits)? {
            piece.n_steps = piece.n_steps.max(fit.n_steps);
            piece.n_unfinished += fit.n_unfinished;
            let numbers = fit.z.iter().flat_map(|lanes| lanes.0);
            extend(PANELS, &mut piece.panels, numbers)?;
        }
        Ok(piece)
    }

    /// Completes a stage with the pieces of all its units, in order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the pieces are not those of the stage. Returns [`Error::TooLarge`] if there is
    /// not enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn complete(&mut self, pieces: &[Piece<T>], watch: &Watch) -> Result<(), Error> {
        let (stage, _) = self.stages[self.n_complete];
        match stage {
            Stage::Gram => {
                let side = self.strips.side;
                let size = side.saturating_mul(side);
                let mut rows = reserved(GRAM, size)?;
                for piece in pieces {
                    extend(GRAM, &mut rows, piece.numbers.iter().copied())?;
                }
                same("cells of the Gram matrix", size, rows.len())?;
                self.gram = self.strips.gram(rows);
            }
            Stage::Ridge | Stage::RidgeOfCoef => {
                let &[Piece { ref numbers, .. }] = pieces else {
                    return Err(refused("piece", "one piece with a ridge", "several"));
                };
                same("ridges in a piece", 1, numbers.len())?;
                if stage == Stage::Ridge {
                    self.set_ridge(numbers[0]);
                } else {
                    self.l2_of_coef = numbers[0];
                }
            }
            Stage::Product => {
                let t = self.joined(pieces, (self.q.n_rows, self.q.n_cols))?;
                let spectrum = t.spectrum(watch)?;
                if self.stages[self.n_complete + 1].0 == Stage::Product {
                    self.q = t.orthonormal(&spectrum, self.q.n_cols, watch)?;
                } else {
                    let q = std::mem::replace(&mut self.q, Tall::from_fn(0, 0, |_, _| 0.0)?);
                    let found = Finder { q, t, spectrum };
                    let (u, eigenvalues) = found.basis(self.params.variant, self.k, watch)?;
                    (self.u, self.eigenvalues) = (u, Some(eigenvalues));
                }
            }
            Stage::Weights => {
                self.w = self.joined(pieces, (self.problem.x.n_cols(), self.u.n_cols))?;
                self.regression = None;
            }
            Stage::End => return Err(refused("piece", "no piece after the last stage", "one")),
        }
        self.n_complete += 1;
        Ok(())
    }

    /// Joins the panels of all pieces of a stage to a matrix of the given shape, and adds up their numbers of
    /// steps and of unfinished right-hand sides.
    fn joined(
        &mut self,
        pieces: &[Piece<T>],
        (n_rows, n_cols): (usize, usize),
    ) -> Result<Tall<T>, Error> {
        let size = n_cols.div_ceil(LANES) * n_rows * LANES;
        let got = pieces.iter().map(|piece| piece.panels.len()).sum();
        same("numbers in the panels of all pieces", size, got)?;
        let mut panels = Vec::new();
        for piece in pieces {
            self.n_steps = self.n_steps.max(piece.n_steps);
            self.n_unfinished += piece.n_unfinished;
            for panel in piece.panels.chunks((n_rows * LANES).max(1)) {
                same("numbers in a panel", n_rows * LANES, panel.len())?;
                let (lines, _) = panel.as_chunks::<LANES>();
                let lines = lines.iter().map(|&line| Lanes(line));
                push(PANELS, &mut panels, collected(PANELS, lines)?)?;
            }
        }
        Ok(Tall {
            n_rows,
            n_cols,
            panels,
        })
    }

    /// Returns the model, when all stages except the last are complete. W and U move out of the task, so this
    /// method can be called only once.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a stage is not complete, or if the model is not finite. Returns
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn model(&mut self) -> Result<Model<T>, Error> {
        if self.n_complete + 1 != self.stages.len() {
            return Err(refused("piece", "the pieces of all stages", "fewer"));
        }
        let nothing = || Tall::from_fn(0, 0, |_, _| 0.0);
        let found = Found {
            u: std::mem::replace(&mut self.u, nothing()?),
            w: std::mem::replace(&mut self.w, nothing()?),
            eigenvalues: self.eigenvalues.take(),
        };
        let model = self.problem.model(found, self.sizes, self.weight_scale)?;
        Ok(Model {
            l2: self.l2,
            l2_of_coef: self.l2_of_coef,
            n_steps: self.n_steps,
            n_unfinished: self.params.reported_unfinished(self.n_unfinished),
            ..model
        })
    }
}

/// Returns an error that names an argument.
fn refused(name: &'static str, expected: &'static str, got: &str) -> Error {
    Error::Param {
        name,
        expected,
        got: got.into(),
    }
}
