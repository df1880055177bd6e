//! Checks that fits agree for all solvers, for sparse and dense X, and for any number of threads.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

use manylabel_base::Watch;
use manylabel_pls::{Components, Embedding, Matrix, Model, Params, Ridge, Solver, project};
use manylabel_sparse::{CsrView, DenseView};
use ndarray::ArrayView2;
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

/// A problem of small integers: X, which can be stored sparse or dense, Y, and row weights.
#[derive(Debug)]
struct Problem {
    n: usize,
    d: usize,
    c: usize,
    cells: Vec<f64>,
    y: Vec<Vec<i32>>,
    weights: Vec<f32>,
}

fn problem() -> impl Strategy<Value = Problem> {
    (1..60usize, 1..50usize, 1..60usize).prop_flat_map(|(n, d, c)| {
        let value = prop_oneof![Just(0.0), Just(0.0), Just(1.0), Just(-2.0)];
        let labels = prop::collection::btree_set(0..c as i32, 0..=c.min(6));
        (
            prop::collection::vec(value, n * d),
            prop::collection::vec(labels, n),
            prop::collection::vec(prop::sample::select(vec![0.5, 1.0, 4.0]), n),
        )
            .prop_map(move |(cells, y, weights)| Problem {
                n,
                d,
                c,
                cells,
                y: y.into_iter().map(|row| row.into_iter().collect()).collect(),
                weights,
            })
    })
}

impl Problem {
    fn dense(&self) -> DenseView<'_, f64> {
        let x = ArrayView2::from_shape((self.n, self.d), &self.cells).expect("the sizes agree");
        DenseView::new(&x).expect("in C order")
    }

    fn fit(&self, params: &Params, sparse: bool, n_threads: usize) -> Model<f64> {
        let (mut ends, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in self.cells.chunks(self.d) {
            for (col, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                cols.push(col as i32);
                values.push(value);
            }
            ends.push(cols.len() as i32);
        }
        let x = if sparse {
            Matrix::Sparse(CsrView::new("X", &ends, &cols, &values, self.d).expect("valid"))
        } else {
            Matrix::Dense(self.dense())
        };
        let labels = self.y.concat();
        let mut label_ends = vec![0];
        for row in &self.y {
            label_ends.push(label_ends[label_ends.len() - 1] + row.len() as i32);
        }
        let ones = vec![1.0; labels.len()];
        let y = CsrView::new("Y", &label_ends, &labels, &ones, self.c).expect("valid");
        let params = params.clone().check().expect("in range");
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).build();
        let fit = || params.fit(x, y, Some(&self.weights), &Watch::new());
        pool.expect("threads").install(fit).expect("not stopped")
    }

    fn project(&self, model: &Model<f64>) -> Vec<f64> {
        let x = Matrix::<i32, f64>::Dense(self.dense());
        project(x, &model.coef, &model.intercept, &Watch::new()).expect("not stopped")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_by_other_ways(
        problem in problem(),
        center in any::<bool>(),
        fit_intercept in any::<bool>(),
        embedding in prop::sample::select(vec![Embedding::Rembrandt, Embedding::Gaussian, Embedding::Pca]),
    ) {
        let params = |solver| Params {
            n_components: Components::Count(40),
            n_iter: 2,
            l2: Ridge::Of(0.5),
            l2_final: Ridge::Of(1.0),
            max_iter: 500,
            tol: Some(1e-12),
            embedding,
            center,
            fit_intercept,
            solver,
            ..Params::default()
        };
        let first = problem.fit(&params(Solver::Cholesky), true, 1);
        let total = |model: &Model<f64>| model.eigenvalues.iter().flatten().sum::<f64>();
        for solver in [Solver::Cholesky, Solver::Cg, Solver::Dual] {
            for sparse in [true, false] {
                let one = problem.fit(&params(solver), sparse, 1);
                prop_assert_eq!(&one, &problem.fit(&params(solver), sparse, 3));
                prop_assert_eq!(one.n_components, first.n_components);
                let scale = total(&first).max(1.0);
                prop_assert!((total(&one) - total(&first)).abs() < 1e-6 * scale);
                // The test compares lengths of projected rows, because eigenvectors of equal
                // eigenvalues may be rotated.
                let k = one.n_components;
                let lengths = |model| {
                    let rows = problem.project(model);
                    let square = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
                    rows.chunks(k).map(square).collect::<Vec<_>>()
                };
                for (a, b) in lengths(&one).into_iter().zip(lengths(&first)) {
                    prop_assert!((a - b).abs() < 1e-5 * a.abs().max(scale), "{a} is not {b}");
                }
            }
        }
    }
}
