//! Checks the solution of PD-Sparse's block problem with its optimality condition.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

use manylabel_linear::pdsparse::solve_block;
use proptest::prelude::*;

proptest! {
    /// `(u, t)` is the point of the polytope nearest to `(b, e)` if and only if no vertex has a larger
    /// scalar product with `(b − u, e − t)` than `(u, t)` has. The vertices are 0 and the points in
    /// which one entry of u and one entry of t equal `most` and all other entries are 0.
    #[test]
    fn is_the_nearest_feasible_point(
        b in prop::collection::vec(prop_oneof![-3.0..3.0, Just(0.5), Just(-0.5)], 1..9),
        e in prop::collection::vec(prop_oneof![-3.0..3.0, Just(0.5), Just(-0.5)], 1..6),
        most in prop::sample::select(vec![1e-3, 0.3, 1.0, 7.0, 1e6]),
    ) {
        let (mut u, mut t) = (b.clone(), e.clone());
        solve_block(&mut u, &mut t, most).expect("small");
        prop_assert!(u.iter().chain(&t).all(|&value| value >= 0.0));
        let (of_u, of_t): (f64, f64) = (u.iter().sum(), t.iter().sum());
        prop_assert!((of_u - of_t).abs() < 1e-9 && of_u <= most + 1e-9);
        let (to_b, to_e): (Vec<f64>, Vec<f64>) = (
            b.iter().zip(&u).map(|(b, u)| b - u).collect(),
            e.iter().zip(&t).map(|(e, t)| e - t).collect(),
        );
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let own = dot(&to_b, &u) + dot(&to_e, &t);
        let furthest = |to: &[f64]| to.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let vertex = (most * (furthest(&to_b) + furthest(&to_e))).max(0.0);
        prop_assert!(vertex <= own + 1e-9 * (1.0 + most), "{vertex} > {own}");
    }
}
