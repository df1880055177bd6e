//! Tests fits on random data. Results must be the same for any number of threads. A stopped fit and
//! sizes that disagree must be errors. The Python tests in `tests/correlated` compare fits with the
//! definition of the model.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

use fastrand::Rng;
use manylabel_base::{Error, Watch};
use manylabel_correlated::{Model, Params, Solver, Task};
use manylabel_sparse::CsrView;

/// Sparse random rows of `d` columns. Each entry is present with the same probability.
struct Rows {
    indptr: Vec<i32>,
    indices: Vec<i32>,
    values: Vec<f32>,
    d: usize,
}

impl Rows {
    fn new(n: usize, d: usize, share: f64, rng: &mut Rng, value: fn(&mut Rng) -> f32) -> Self {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for _ in 0..n {
            for col in 0..d as i32 {
                if rng.f64() < share {
                    indices.push(col);
                    values.push(value(rng));
                }
            }
            indptr.push(indices.len() as i32);
        }
        Self {
            indptr,
            indices,
            values,
            d,
        }
    }

    /// Returns the rows twice, one copy after the other.
    fn twice(&self) -> Self {
        let n = self.indices.len() as i32;
        let again = self.indptr[1..].iter().map(|end| end + n);
        Self {
            indptr: self.indptr.iter().copied().chain(again).collect(),
            indices: self.indices.repeat(2),
            values: self.values.repeat(2),
            d: self.d,
        }
    }

    fn view(&self) -> CsrView<'_, i32, f32> {
        CsrView::new("rows", &self.indptr, &self.indices, &self.values, self.d).expect("valid")
    }
}

fn fit(x: &Rows, y: &Rows, threads: usize, watch: &Watch) -> Result<Model, Error> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let params = Params::default().check().expect("in range");
    pool.expect("threads")
        .install(|| params.fit(x.view().into(), y.view().into(), None, None, None, watch))
}

#[test]
fn bits_do_not_depend_on_threads() {
    // With few labels, rows are divided among threads. With many labels, labels are divided among
    // threads. X is dense or sparse.
    for (m, share) in [(5, 0.9), (5, 0.1), (120, 0.1)] {
        let mut rng = Rng::with_seed(m as u64);
        let x = Rows::new(700, 30, share, &mut rng, Rng::f32);
        let y = Rows::new(700, m, 0.2, &mut rng, |_| 1.0);
        let one = fit(&x, &y, 1, &Watch::new()).expect("sound data");
        assert!(one.converged && one.weights.values.len() > 30);
        for threads in [2, 5] {
            let other = fit(&x, &y, threads, &Watch::new()).expect("sound data");
            assert_eq!(one.weights, other.weights);
            assert_eq!(one.couplings, other.couplings);
            assert_eq!(one.intercept, other.intercept);
        }
    }
}

#[test]
fn rows_twice_are_the_same_problem() {
    // The original rows are too few for quasi-Newton steps. The doubled rows are enough.
    for share in [0.9, 0.2] {
        let mut rng = Rng::with_seed(1);
        let x = Rows::new(100, 40, share, &mut rng, Rng::f32);
        let y = Rows::new(100, 12, 0.3, &mut rng, |_| 1.0);
        let once = fit(&x, &y, 1, &Watch::new()).expect("sound data");
        let twice = fit(&x.twice(), &y.twice(), 1, &Watch::new()).expect("sound data");
        assert!(once.converged && twice.converged && twice.n_iter < once.n_iter);
        let difference = (once.objective - twice.objective).abs();
        assert!(difference < 1e-4 * once.objective, "{difference}");
        for (a, b) in once.intercept.iter().zip(&twice.intercept) {
            assert!((a - b).abs() < 0.05, "{a} {b}");
        }
    }
}

#[test]
fn a_stop_and_sizes_that_disagree_are_errors() {
    let mut rng = Rng::with_seed(0);
    let x = Rows::new(100, 5, 0.5, &mut rng, Rng::f32);
    let y = Rows::new(100, 3, 0.5, &mut rng, |_| 1.0);
    let watch = Watch::new();
    watch.stop();
    assert!(matches!(fit(&x, &y, 1, &watch), Err(Error::Stopped)));
    let short = Rows::new(99, 3, 0.5, &mut rng, |_| 1.0);
    let error = fit(&x, &short, 1, &Watch::new()).expect_err("a row is missing");
    assert_eq!(error.to_string(), "rows of Y: expected 100, got 99");
}

/// Makes every round with results that are computed in several ranges of units, and continues each round in a new
/// task that reads the state of the task before it.
fn fit_in_rounds(params: &Params, x: &Rows, y: &Rows, rng: &mut Rng) -> (Model, usize) {
    let watch = Watch::new();
    let params = params.clone().check().expect("in range");
    let new = || -> Task {
        let task = params.task(x.view().into(), y.view().into(), None, None, None, &watch);
        task.expect("sound data")
    };
    let mut task = new();
    while task.n_units() > 0 {
        let n = task.n_units();
        let mut other = new();
        let state = task.state().expect("fits");
        let restored = other.restore(&state, x.view().into(), &watch);
        restored.expect("its state");
        assert_eq!((other.n_units(), other.n_rounds()), (n, task.n_rounds()));
        assert_eq!(other.state().expect("fits"), state);
        let cut = rng.usize(0..=n);
        let first = task.compute(&(0..cut), &watch).expect("sound data");
        let second = other.compute(&(cut..n), &watch).expect("sound data");
        assert_eq!((first.len(), second.len()), (cut, n - cut));
        let (first, second) = (first.concat(), second.concat());
        let results: [&[u8]; 2] = [&first, &second];
        let wrong = new().complete(&results[1..], x.view().into(), &watch);
        assert!(cut == 0 || wrong.is_err());
        let done = other.complete(&results, x.view().into(), &watch);
        done.expect("the results of all units");
        task = other;
    }
    let n_rounds = task.n_rounds();
    let model = task.model(y.view().into(), &watch);
    (model.expect("the fit has ended"), n_rounds)
}

#[test]
fn rounds_of_other_processes_and_restored_states_give_the_same_bits() {
    let plain = Params {
        l2_features: 1e-3,
        l2_pairs: 1e-3,
        ..Params::default()
    };
    let variants = [
        (plain.clone(), 5, 0.9),
        (plain.clone(), 120, 0.2),
        (
            Params {
                solver: Solver::Fista,
                tol: 1e-7,
                ..plain.clone()
            },
            20,
            0.2,
        ),
        (
            Params {
                tol: 1e-8,
                ..plain.clone()
            },
            5,
            0.2,
        ),
        (
            Params {
                solver: Solver::Reference,
                max_iter: 30,
                ..plain.clone()
            },
            20,
            0.2,
        ),
        // The limit on gradients ends the fit, so the pairs without a coupling are examined at the end.
        (
            Params {
                max_iter: 27,
                tol: 1e-9,
                ..plain
            },
            100,
            0.2,
        ),
    ];
    for (params, m, share) in variants {
        let mut rng = Rng::with_seed(m as u64);
        let x = Rows::new(400, 30, share, &mut rng, Rng::f32);
        let y = Rows::new(400, m, 0.2, &mut rng, |_| 1.0);
        let checked = params.clone().check().expect("in range");
        let watch = Watch::new();
        let expected = checked
            .fit(x.view().into(), y.view().into(), None, None, None, &watch)
            .expect("sound data");
        let (got, n_rounds) = fit_in_rounds(&params, &x, &y, &mut rng);
        assert!(n_rounds > 5, "{n_rounds}");
        assert_eq!(expected.weights, got.weights);
        assert_eq!(expected.couplings, got.couplings);
        assert_eq!(expected.intercept, got.intercept);
        assert_eq!(expected.sets, got.sets);
        assert_eq!(
            (expected.objective, expected.violation, expected.n_iter),
            (got.objective, got.violation, got.n_iter)
        );
        assert_eq!(expected.converged, got.converged);
    }
}

#[test]
fn a_damaged_state_is_an_error() {
    let mut rng = Rng::with_seed(0);
    let x = Rows::new(100, 5, 0.5, &mut rng, Rng::f32);
    let y = Rows::new(100, 3, 0.5, &mut rng, |_| 1.0);
    let (watch, params) = (Watch::new(), Params::default().check().expect("in range"));
    let new = || params.task(x.view().into(), y.view().into(), None, None, None, &watch);
    let state = new().and_then(|task| task.state()).expect("sound data");
    for end in [0, 5, 9, state.len() / 2, state.len() - 1] {
        let mut task = new().expect("sound data");
        let restored = task.restore(&state[..end], x.view().into(), &watch);
        let error = restored.expect_err("the rest is missing").to_string();
        assert!(error.starts_with("`checkpoint` must be"), "{error}");
        assert!(task.model(y.view().into(), &watch).is_err());
    }
}
