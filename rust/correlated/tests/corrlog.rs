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
use manylabel_correlated::{Model, Params};
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
