//! Checks that results of LEML do not depend on threads, and that a score depends only on its row.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

mod support;

use manylabel_base::Watch;
use manylabel_linear::leml::{Loss, Model, Params, Scorer, Targets};
use manylabel_score::{Bounds, Model as _};
use manylabel_sparse::{CsrOwned, CsrView};
use proptest::prelude::*;
use support::sparse;

/// Calls `with` with a view of some rows.
fn viewed<R>(
    x: &CsrOwned,
    rows: std::ops::Range<usize>,
    with: impl FnOnce(CsrView<'_, i32, f32>) -> R,
) -> R {
    let first = x.indptr[rows.start];
    let ends: Vec<i32> = x.indptr[rows.start..=rows.end]
        .iter()
        .map(|&end| (end - first) as i32)
        .collect();
    let range = first..x.indptr[rows.end];
    let cols: Vec<i32> = x.indices[range.clone()]
        .iter()
        .map(|&col| col as i32)
        .collect();
    let view = CsrView::new("X", &ends, &cols, &x.values[range], x.n_cols);
    with(view.expect("valid"))
}

fn fit(params: &Params, x: &CsrOwned, y: &CsrOwned, observed: Option<&CsrOwned>) -> Model {
    let params = params.clone().check().expect("in range");
    let watch = Watch::new();
    viewed(x, 0..x.n_rows(), |x| {
        let targets = Targets {
            observed,
            ..Targets::from(manylabel_sparse::Labels::from(y))
        };
        params.fit(x.into(), &targets, &watch)
    })
    .expect("nobody stops it")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn threads_change_nothing(
        x in sparse(700, 50, 9, 0.1f32..2.0),
        y in sparse(700, 600, 4, 0.1f32..2.0),
        observed in prop::option::of(sparse(700, 600, 40, 0.1f32..2.0)),
        loss in prop::sample::select(vec![Loss::Squared, Loss::Logistic, Loss::SquaredHinge]),
    ) {
        let newton = loss != Loss::Squared || observed.is_some();
        let params = Params {
            rank: if newton { 5 } else { 70 },
            loss,
            // With Newton's method, a search for `alpha` would take too long here.
            alpha: newton.then_some(0.1),
            learn_cut: true,
            max_iter: if newton { 1 } else { 3 },
            cg_max_iter: if newton { 2 } else { 20 },
            ..Params::default()
        };
        let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
        let one = pool(1).install(|| fit(&params, &x, &y, observed.as_ref()));
        let three = pool(3).install(|| fit(&params, &x, &y, observed.as_ref()));
        prop_assert_eq!(one, three);
    }

    #[test]
    fn rankings_equal_a_sort_of_all_scores_of_each_row_alone(
        x in sparse(70, 30, 6, 0.1f32..2.0),
        y in sparse(70, 75, 3, 0.1f32..2.0),
        rank in prop::sample::select(vec![1, 3, 16, 40]),
        k in 1usize..90,
    ) {
        let model = fit(&Params { rank, max_iter: 1, ..Params::default() }, &x, &y, None);
        let shape = (30, model.rank);
        let scorer = Scorer::new(&model.features, &model.w, &model.ht, &model.intercept, shape, true).expect("agrees");
        let watch = Watch::new();
        let top = viewed(&x, 0..70, |x| scorer.topk(x.into(), k, &watch)).expect("small");
        let above = viewed(&x, 0..70, |x| scorer.above(x.into(), Bounds::One(0.1), &watch)).expect("small");
        for row in 0..70 {
            let scores = viewed(&x, row..row + 1, |x| scorer.decision(x.into(), &watch)).expect("small");
            let mut order: Vec<u32> = (0..75).filter(|&l| scores[l as usize] > f32::NEG_INFINITY).collect();
            order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
            order.truncate(k);
            order.sort_unstable();
            prop_assert_eq!(top.row(row).0, &order[..]);
            prop_assert!(top.row(row).0.iter().zip(top.row(row).1).all(|(&l, s)| s.to_bits() == scores[l as usize].to_bits()));
            let expected: Vec<u32> = (0..75).filter(|&l| scores[l as usize] > 0.1).collect();
            prop_assert_eq!(above.row(row).0, &expected[..]);
        }
    }
}
