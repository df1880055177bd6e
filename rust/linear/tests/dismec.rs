//! Compares `DiSMEC` with its definition. The gradient of the objective is recomputed in `f64`. The
//! tests also check that results depend neither on other labels nor on threads.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

mod support;

use manylabel_base::Watch;
use manylabel_linear::Scorer;
use manylabel_linear::dismec::{Model, Params, Solver};
use manylabel_score::{Bounds, Model as _};
use manylabel_sparse::{CsrOwned, CsrView};
use proptest::prelude::*;
use support::sparse;

fn fit(params: &Params, x: &CsrOwned, y: &CsrOwned, weights: Option<&[f32]>) -> Model {
    let indptr: Vec<i64> = x.indptr.iter().map(|&end| end as i64).collect();
    let indices: Vec<i64> = x.indices.iter().map(|&col| col.into()).collect();
    let view = CsrView::new("X", &indptr, &indices, &x.values, x.n_cols).expect("valid");
    let params = params.clone().check().expect("in range");
    params
        .fit(view.into(), y, weights, &Watch::new())
        .expect("nobody stops it")
}

/// Returns the norms of the gradient of the objective at the model and at zero, for one label.
fn gradient_norms(
    model: &Model,
    params: &Params,
    x: &CsrOwned,
    y: &CsrOwned,
    weights: &[f32],
    label: u32,
) -> (f64, f64) {
    let at = |feature: usize| {
        let (labels, weights) = model.weights.row(feature);
        let found = labels.iter().position(|&other| other == label);
        found.map_or(0.0, |found| f64::from(weights[found]))
    };
    let w: Vec<f64> = (0..x.n_cols).map(at).collect();
    let b = f64::from(model.intercept[label as usize]);
    let mut gradient: Vec<f64> = w.clone();
    gradient.push(b);
    let mut at_zero = vec![0.0; x.n_cols + 1];
    for row in 0..x.n_rows() {
        let (cols, values) = x.row(row);
        let sign = if y.row(row).0.contains(&label) {
            1.0
        } else {
            -1.0
        };
        let norm = values
            .iter()
            .map(|&v| f64::from(v).powi(2))
            .sum::<f64>()
            .sqrt();
        let scale = if norm > 0.0 { norm.recip() } else { 1.0 };
        let pairs = || {
            let features = cols.iter().map(|&col| col as usize);
            features
                .zip(values.iter().map(|&value| f64::from(value) * scale))
                .chain([(x.n_cols, 1.0)])
        };
        let score: f64 = pairs()
            .map(|(col, value)| value * w.get(col).unwrap_or(&b))
            .sum();
        let cost = 2.0 * params.c * f64::from(weights[row]);
        let pull = -cost * sign * (1.0 - sign * score).max(0.0);
        for (col, value) in pairs() {
            gradient[col] += pull * value;
            at_zero[col] -= cost * sign * value;
        }
    }
    let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    (norm(&gradient), norm(&at_zero))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn exact_reaches_a_stationary_point(
        x in sparse(30, 12, 5, prop::sample::select(vec![-1.5f32, -0.5, 0.25, 1.0, 3.0])),
        y in sparse(30, 20, 4, Just(1.0)),
        weights in prop::collection::vec(0.5f32..3.0, 30),
        c in prop::sample::select(vec![0.1, 1.0, 10.0]),
    ) {
        let params = Params { c, prune: 0.0, tol: 1e-4, solver: Solver::Exact, ..Params::default() };
        let model = fit(&params, &x, &y, Some(&weights));
        for label in 0..20 {
            if model.intercept[label as usize] == f32::NEG_INFINITY {
                prop_assert!(y.indices.iter().all(|&other| other != label));
                continue;
            }
            prop_assert!((model.n_iter[label as usize] as usize) < params.max_iter);
            let (norm, at_zero) = gradient_norms(&model, &params, &x, &y, &weights, label);
            // Rounding in single precision adds about 1e-5 of the sum of the terms.
            prop_assert!(norm <= 2e-4 * at_zero, "label {}: {} of {}", label, norm, at_zero);
        }
    }

    #[test]
    fn labels_threads_and_neighbours_are_independent(
        x in sparse(400, 30, 6, 0.1f32..2.0),
        y in sparse(400, 40, 2, Just(1.0)),
        exact in any::<bool>(),
    ) {
        // With 400 rows and about 20 positive rows per label, no label is rare, and "fast" would not
        // differ from "exact". So remove most positive rows of all labels except the first labels.
        let mut y = y;
        let mut kept = [0usize; 40];
        let keep: Vec<bool> = y.indices.iter().map(|&label| {
            kept[label as usize] += 1;
            label < 5 || kept[label as usize] <= 3
        }).collect();
        for row in (0..y.n_rows()).rev() {
            for at in (y.indptr[row]..y.indptr[row + 1]).rev() {
                if !keep[at] {
                    y.indices.remove(at);
                    y.values.remove(at);
                    for end in &mut y.indptr[row + 1..] {
                        *end -= 1;
                    }
                }
            }
        }
        let solver = if exact { Solver::Exact } else { Solver::Fast };
        let params = Params { solver, ..Params::default() };
        let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
        let one = pool(1).install(|| fit(&params, &x, &y, None));
        let two = pool(2).install(|| fit(&params, &x, &y, None));
        prop_assert_eq!(&one, &two);
        // Without the labels before and after them, these labels share their panel with other labels.
        let mut alone = y.clone();
        for (label, value) in alone.indices.iter().zip(&mut alone.values) {
            *value = if (10..13).contains(label) { 1.0 } else { 0.0 };
        }
        let indptr = alone.indptr_u32();
        let view = CsrView::new("Y", &indptr, &alone.indices, &alone.values, 40).expect("valid");
        let alone = CsrOwned::from_view(view, false).expect("small");
        let alone = fit(&params, &x, &alone, None);
        for label in 10..13 {
            prop_assert_eq!(one.intercept[label].to_bits(), alone.intercept[label].to_bits());
            prop_assert_eq!(one.n_iter[label], alone.n_iter[label]);
        }
        let only = |model: &Model| -> Vec<(usize, u32, u32)> {
            (0..30).flat_map(|feature| {
                let (labels, weights) = model.weights.row(feature);
                labels.iter().zip(weights).filter(|(label, _)| (10..13).contains(*label))
                    .map(move |(&label, weight)| (feature, label, weight.to_bits())).collect::<Vec<_>>()
            }).collect()
        };
        prop_assert_eq!(only(&one), only(&alone));
    }

    #[test]
    fn rankings_equal_a_sort_of_all_scores(
        weights in sparse(15, 40, 40, -2.0f32..2.0),
        intercept in prop::collection::vec(prop::option::of(-1.0f32..1.0), 40),
        // From 512 rows on, frequent features are copied densely. The scores must be exactly the same.
        x in sparse(600, 15, 6, -2.0f32..2.0),
        k in 1usize..50,
    ) {
        let intercept: Vec<f32> = intercept.iter().map(|b| b.unwrap_or(f32::NEG_INFINITY)).collect();
        let scorer = Scorer::new(&weights.indptr, &weights.indices, &weights.values, &intercept, true).expect("agrees");
        let numbers = |of: &[u32]| of.iter().map(|&number| number as i32).collect::<Vec<_>>();
        let (ends, cols) = (numbers(&x.indptr_u32()), numbers(&x.indices));
        let view = CsrView::new("X", &ends, &cols, &x.values, 15).expect("valid");
        let watch = Watch::new();
        let scores = scorer.decision(view.into(), &watch).expect("small");
        let top = scorer.topk(view.into(), k, &watch).expect("small");
        let above = scorer.above(view.into(), Bounds::One(0.25), &watch).expect("small");
        for row in 0..600 {
            let scores = &scores[row * 40..][..40];
            let mut order: Vec<u32> = (0..40).filter(|&l| scores[l as usize] > f32::NEG_INFINITY).collect();
            order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
            order.truncate(k);
            order.sort_unstable();
            prop_assert_eq!(top.row(row).0, &order[..]);
            prop_assert!(top.row(row).0.iter().zip(top.row(row).1).all(|(&l, &s)| s.to_bits() == scores[l as usize].to_bits()));
            let expected: Vec<u32> = (0..40).filter(|&l| scores[l as usize] > 0.25).collect();
            prop_assert_eq!(above.row(row).0, &expected[..]);
        }
        // Score one row at a time, without the dense copy.
        for row in [0usize, 299, 599] {
            let (cols, values) = x.row(row);
            let ends = [0, cols.len() as i32];
            let one = CsrView::new("X", &ends, &numbers(cols), values, 15).map(|view| scorer.decision(view.into(), &watch));
            prop_assert_eq!(one.expect("valid").expect("small"), &scores[row * 40..][..40]);
        }
    }
}

/// Converts row ends to `u32`, because a view needs row ends and columns of the same type.
trait Ends {
    fn indptr_u32(&self) -> Vec<u32>;
}

impl Ends for CsrOwned {
    fn indptr_u32(&self) -> Vec<u32> {
        self.indptr.iter().map(|&end| end as u32).collect()
    }
}
