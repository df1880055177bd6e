//! Compares prediction with its definition, one row, one rule and one label set at a time.
#![allow(clippy::float_cmp, reason = "results must be exactly equal")]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

use manylabel_base::{Error, Watch};
use manylabel_rules::{Bodies, Ensemble, LabelSets, Model, Predictor, Rules, Stage};
use manylabel_score::{Bounds, Model as _};
use manylabel_sparse::{CsrOwned, CsrView};
use proptest::prelude::*;

const N_FEATURES: usize = 9;

/// Predicts the labels with positive scores.
const SIGNS: Predictor = Predictor::Above {
    bound: 0.0,
    best: false,
};

/// Returns the arrays of a matrix. `rows` holds the columns and values of each row.
fn matrix<V: Copy>(rows: &[Vec<(u32, V)>]) -> (Vec<i32>, Vec<i32>, Vec<V>) {
    let mut ends = vec![0];
    for row in rows {
        ends.push(ends[ends.len() - 1] + row.len() as i32);
    }
    let entries = || rows.iter().flatten();
    (
        ends,
        entries().map(|entry| entry.0 as i32).collect(),
        entries().map(|entry| entry.1).collect(),
    )
}

/// The arrays of a model as read from a file. They may be invalid.
#[derive(Debug, Clone)]
struct Arrays {
    indptr: Vec<i64>,
    feature: Vec<i32>,
    operator: Vec<u8>,
    threshold: Vec<f32>,
    heads: Vec<Vec<(u32, f32)>>,
    n_labels: usize,
}

impl Arrays {
    /// Passes the checked rules to `then`, or returns the error of the check.
    fn with<T>(&self, then: impl FnOnce(Rules<'_, i32>) -> Result<T, Error>) -> Result<T, Error> {
        let (ends, labels, scores) = matrix(&self.heads);
        let heads = CsrView::new("heads_", &ends, &labels, &scores, self.n_labels)?;
        let bodies = Bodies {
            indptr: &self.indptr,
            feature: &self.feature,
            operator: &self.operator,
            threshold: &self.threshold,
        };
        then(Rules::new(bodies, heads, N_FEATURES)?)
    }

    /// Returns whether a rule covers a row, computed from the definition.
    fn covers(&self, rule: usize, row: &[(u32, f64)]) -> bool {
        (self.indptr[rule] as usize..self.indptr[rule + 1] as usize).all(|at| {
            let entry = row.iter().find(|entry| entry.0 == self.feature[at] as u32);
            let value = entry.map_or(0.0, |entry| entry.1 as f32);
            let threshold = self.threshold[at];
            match self.operator[at] {
                _ if value.is_nan() => false,
                0 => value <= threshold,
                1 => value > threshold,
                2 => value == threshold,
                _ => value != threshold,
            }
        })
    }

    /// Returns the scores of a row by the rules before `end`, computed from the definition.
    fn scores(&self, row: &[(u32, f64)], end: usize) -> Vec<f64> {
        let mut scores = vec![0.0; self.n_labels];
        for rule in (0..end).filter(|&rule| self.covers(rule, row)) {
            for &(label, score) in &self.heads[rule] {
                scores[label as usize] += f64::from(score);
            }
        }
        scores
    }
}

/// Values that occur in conditions and in rows. Two of them differ only as `f64`.
fn value() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![
        -2.0,
        -1.0,
        0.0,
        0.0,
        1.0,
        1.0 + 1e-12,
        1.5,
        f64::NAN,
        1e30,
    ])
}

fn features() -> impl Strategy<Value = Vec<(u32, f64)>> {
    prop::collection::btree_map(0..N_FEATURES as u32, value(), 0..=N_FEATURES)
        .prop_map(|row| row.into_iter().collect())
}

fn model(n_rules: usize, n_labels: usize) -> impl Strategy<Value = Arrays> {
    let condition = (
        0..N_FEATURES as i32,
        0u8..4,
        value().prop_filter("finite", |value| !value.is_nan()),
    );
    let body = prop::collection::vec(condition, 0..4);
    // Scores differ so much in size that the order of summation changes the sum, even in double
    // precision.
    let score = || (-2.0f32..2.0, -12i32..6).prop_map(|(score, size)| score * 10f32.powi(size));
    let full = prop::collection::vec(score(), n_labels)
        .prop_map(|scores| (0..).zip(scores).collect::<Vec<_>>());
    let part = prop::collection::btree_map(0..n_labels as u32, score(), 0..3)
        .prop_map(|scores| scores.into_iter().collect());
    let head = prop_oneof![8 => full, 1 => part];
    prop::collection::vec((body, head), n_rules).prop_map(move |rules| {
        let mut arrays = Arrays {
            indptr: vec![0],
            feature: Vec::new(),
            operator: Vec::new(),
            threshold: Vec::new(),
            heads: Vec::new(),
            n_labels,
        };
        for (body, head) in rules {
            for (feature, operator, threshold) in body {
                arrays.feature.push(feature);
                arrays.operator.push(operator);
                arrays.threshold.push(threshold as f32);
            }
            arrays.indptr.push(arrays.feature.len() as i64);
            arrays.heads.push(head);
        }
        arrays
    })
}

/// Models with few and many rules and labels. The rows fill some blocks completely and one block
/// partly.
fn problem() -> impl Strategy<Value = (Arrays, Vec<Vec<(u32, f64)>>)> {
    let sizes = (
        prop::sample::select(vec![1usize, 30, 300]),
        prop::sample::select(vec![1usize, 8, 14, 33, 70]),
        // The numbers of rows are near the size of a block, or large enough that one task processes
        // several blocks.
        prop::sample::select(vec![1usize, 63, 64, 65, 1000]),
        prop::sample::select(vec![0u32, 9]),
    );
    sizes.prop_flat_map(|(n_rules, n_labels, n_rows, empty)| {
        let row = prop_oneof![empty => Just(Vec::new()), 1 => features()];
        (model(n_rules, n_labels), prop::collection::vec(row, n_rows))
    })
}

fn label_sets(sets: &[Vec<u32>], n_labels: usize) -> LabelSets {
    let rows: Vec<Vec<(u32, f32)>> = sets
        .iter()
        .map(|set| set.iter().map(|&label| (label, 1.0)).collect())
        .collect();
    let (ends, labels, ones) = matrix(&rows);
    let view = CsrView::new("label_sets_", &ends, &labels, &ones, n_labels).expect("valid");
    LabelSets::new(view, n_labels).expect("small")
}

fn on_threads<T: Send>(n: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
    pool.expect("threads").install(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn scores_are_the_sums_of_covering_rules(
        (arrays, rows) in problem(),
        absent in any::<prop::sample::Index>(),
        stage in any::<prop::sample::Index>(),
        k in 1usize..6,
        n_threads in 1usize..4,
    ) {
        let (n_rules, n_labels, watch) = (arrays.heads.len(), arrays.n_labels, Watch::new());
        let absent = absent.index(n_labels + 1) as u32;
        let named: Vec<u32> = (0..n_labels as u32).filter(|&label| label != absent).collect();
        let sets = label_sets(std::slice::from_ref(&named), n_labels);
        let (ends, features, values) = matrix(&rows);
        let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
        let stage = stage.index(n_rules + 1);
        let mut staged = vec![vec![0.0; rows.len() * n_labels]; 2];
        let (scores, top, above, fired) = on_threads(n_threads, || arrays.with(|rules| {
            for (at, scores) in staged.iter_mut().enumerate() {
                Stage::new(rules, 0..stage)?.add(x, scores, &watch)?;
                if at == 1 {
                    Stage::new(rules, stage..n_rules)?.add(x, scores, &watch)?;
                }
            }
            let ensemble = Ensemble::new(rules, sets.clone(), SIGNS)?;
            Ok((
                ensemble.decision(x.into(), &watch)?,
                ensemble.topk(x.into(), k, &watch)?,
                ensemble.above(x.into(), Bounds::One(0.0), &watch)?,
                Stage::new(rules, 0..n_rules)?.fired(x, &watch)?,
            ))
        })).expect("valid");
        prop_assert_eq!(fired.n_cols, n_rules);
        for (at, row) in rows.iter().enumerate() {
            let covering: Vec<u32> = (0..n_rules).filter(|&rule| arrays.covers(rule, row)).map(|rule| rule as u32).collect();
            prop_assert_eq!(fired.row(at).0, &covering[..]);
            let range = at * n_labels..(at + 1) * n_labels;
            let expected = arrays.scores(row, n_rules);
            prop_assert_eq!(&staged[0][range.clone()], &arrays.scores(row, stage)[..]);
            prop_assert_eq!(&staged[1][range.clone()], &expected[..]);
            let scores = &scores[range];
            for &label in &named {
                prop_assert_eq!(scores[label as usize], expected[label as usize] as f32);
            }
            if (absent as usize) < n_labels {
                prop_assert_eq!(scores[absent as usize], f32::NEG_INFINITY);
            }
            let mut best = named.clone();
            best.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
            best.truncate(k);
            best.sort_unstable();
            prop_assert_eq!(top.row(at).0, &best[..]);
            let positive: Vec<u32> = named.iter().copied().filter(|&label| scores[label as usize] > 0.0).collect();
            prop_assert_eq!(above.row(at).0, &positive[..]);
            for found in [&top, &above] {
                let (labels, values) = found.row(at);
                prop_assert!(labels.iter().zip(values).all(|(&label, &value)| value == scores[label as usize]));
            }
        }
    }

    #[test]
    fn a_damaged_model_is_an_error_or_another_model(
        arrays in model(12, 6),
        changes in prop::collection::vec((0..8, any::<prop::sample::Index>(), prop::sample::select(vec![-1i64, 0, 1, 3, 5, 200, i64::MAX, i64::MIN])), 1..4),
        row in features(),
    ) {
        let mut arrays = arrays;
        for (what, at, number) in changes {
            let at = |len: usize| at.index(len.max(1));
            match what {
                0 => *at_mut(&mut arrays.indptr, at) = number,
                1 if !arrays.feature.is_empty() => *at_mut(&mut arrays.feature, at) = number as i32,
                2 if !arrays.operator.is_empty() => *at_mut(&mut arrays.operator, at) = number as u8,
                3 if !arrays.threshold.is_empty() => *at_mut(&mut arrays.threshold, at) = f32::from_bits(number as u32),
                4 => at_mut(&mut arrays.heads, at).push((number as u32, f32::from_bits(number as u32))),
                5 => arrays.n_labels = number as usize & 0xffff,
                6 => { arrays.indptr.pop(); }
                _ => { arrays.threshold.pop(); }
            }
            if arrays.indptr.is_empty() {
                arrays.indptr.push(0);
            }
        }
        let (ends, features, values) = matrix(std::slice::from_ref(&row));
        let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
        let fired = arrays.with(|rules| Stage::new(rules, 0..rules.n_rules())?.fired(x, &Watch::new()));
        if let Ok(fired) = fired {
            let covering: Vec<u32> = (0..arrays.heads.len()).filter(|&rule| arrays.covers(rule, &row)).map(|rule| rule as u32).collect();
            prop_assert_eq!(fired.row(0).0, &covering[..]);
            prop_assert!(arrays.threshold.iter().all(|threshold| threshold.is_finite()));
            prop_assert!(arrays.heads.iter().flatten().all(|(_, score)| score.is_finite()));
            prop_assert!(arrays.operator.iter().all(|&operator| operator < 4));
        }
    }
}

fn at_mut<T>(values: &mut [T], at: impl Fn(usize) -> usize) -> &mut T {
    let at = at(values.len());
    &mut values[at]
}

fn ensemble<'a>(rules: Rules<'a, i32>, sets: &LabelSets) -> Result<Ensemble<'a, i32>, Error> {
    Ensemble::new(rules, sets.clone(), Predictor::KnownSets)
}

#[test]
fn values_are_removed_from_a_block_before_the_next_one() {
    const N_RULES: usize = 9;
    let arrays = Arrays {
        indptr: (0..=N_RULES as i64).collect(),
        feature: (0..N_RULES as i32).collect(),
        operator: vec![1; N_RULES],
        threshold: vec![0.5; N_RULES],
        heads: vec![vec![(0, 1.0)]; N_RULES],
        n_labels: 1,
    };
    // The rows have so few values that each value is removed by itself.
    let mut rows = vec![Vec::new(); 192];
    for (row, feature) in [(1, 0), (10, 8), (62, 3), (100, 5)] {
        rows[row] = vec![(feature, 1.0)];
    }
    let (ends, features, values) = matrix(&rows);
    let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
    let fired = on_threads(1, || {
        arrays.with(|rules| Stage::new(rules, 0..N_RULES)?.fired(x, &Watch::new()))
    })
    .expect("valid");
    for (at, row) in rows.iter().enumerate() {
        let expected: Vec<u32> = row.iter().map(|&(feature, _)| feature).collect();
        assert_eq!(fired.row(at).0, &expected[..], "row {at}");
    }
}

type Damage = fn(&mut Arrays);

#[test]
fn errors_name_the_array_at_fault() {
    let good = Arrays {
        indptr: vec![0, 0, 2],
        feature: vec![0, 8],
        operator: vec![0, 3],
        threshold: vec![0.5, 1.0],
        heads: vec![vec![(0, 1.0), (1, -1.0)], vec![(1, 0.5)]],
        n_labels: 2,
    };
    let none = |rules: Rules<'_, i32>| Stage::new(rules, 0..2).map(drop);
    good.with(none).expect("nothing is wrong");
    let damages: [(Damage, &str); 11] = [
        (
            |a| a.indptr = vec![0, 2],
            "length of body_indptr_: expected 3, got 2",
        ),
        (
            |a| a.indptr = vec![0, 3, 2],
            "`body_indptr_` must be non-decreasing",
        ),
        (
            |a| a.indptr = vec![1, 1, 2],
            "`body_indptr_` must be non-decreasing",
        ),
        (
            |a| a.indptr = vec![0, 0, 1],
            "`body_indptr_` must be non-decreasing",
        ),
        (
            |a| a.feature[1] = 9,
            "`body_feature_` must be valid feature numbers, got 9 in condition 1",
        ),
        (
            |a| a.feature[0] = -1,
            "`body_feature_` must be valid feature numbers, got -1 in condition 0",
        ),
        (
            |a| a.operator[1] = 4,
            "`body_operator_` must be 0, 1, 2 or 3, got 4",
        ),
        (
            |a| a.operator = vec![0],
            "length of body_operator_: expected 2, got 1",
        ),
        (
            |a| a.threshold[0] = f32::NAN,
            "`body_threshold_` must be finite",
        ),
        (
            |a| a.heads[1][0].1 = f32::INFINITY,
            "`heads_` must be finite",
        ),
        (
            |a| a.n_labels = 1,
            "heads_ is not a valid CSR matrix: column 1",
        ),
    ];
    for (damage, message) in damages {
        let mut bad = good.clone();
        damage(&mut bad);
        let error = bad.with(none).expect_err("something is wrong").to_string();
        assert!(error.contains(message), "{error} for {message}");
    }
    let (ends, features, values) = matrix(&[vec![(0, 1.0f32)]]);
    let x = CsrView::new("X", &ends, &features, &values, 3).expect("valid");
    let (watch, sets) = (Watch::new(), label_sets(&[], 2));
    let of = |then: &dyn Fn(Rules<'_, i32>) -> Result<(), Error>| {
        let error = good.with(then);
        error.expect_err("something is wrong").to_string()
    };
    let error = of(&|rules| ensemble(rules, &sets)?.decision(x.into(), &watch).map(drop));
    assert_eq!(error, "features of X: expected 9, got 3");
    let x = CsrView::new("X", &ends, &features, &values, 9).expect("valid");
    let error = of(&|rules| {
        let named = ensemble(rules, &sets)?.above(x.into(), Bounds::One(0.0), &watch);
        named.map(drop)
    });
    assert_eq!(
        error,
        "`label_sets_` must be at least one label set, got none"
    );
    let error = of(&|rules| ensemble(rules, &label_sets(&[vec![0]], 3)).map(drop));
    assert_eq!(error, "labels of label_sets_: expected 2, got 3");
    let error = of(&|rules| Stage::new(rules, 0..2)?.add(x, &mut [0.0; 3], &watch));
    assert_eq!(error, "size of scores: expected 2, got 3");
    let error = good
        .with(|rules| Stage::new(rules, 1..3).map(drop))
        .expect_err("there are two");
    assert_eq!(
        error.to_string(),
        "`begin, end` must be a range within the rules, got 1..3 of 2 rules"
    );
}

#[test]
fn a_copied_model_is_the_model() {
    let heads = CsrOwned {
        indptr: vec![0, 2, 3],
        indices: vec![0, 1, 1],
        values: vec![0.0, -1.0, 0.5],
        n_cols: 2,
    };
    let model = Model {
        body_indptr: vec![0, 0, 1],
        body_feature: vec![7],
        body_operator: vec![2],
        body_threshold: vec![3.0],
        heads,
        coverage: vec![4.0, 2.0],
        validation_loss: Vec::new(),
    };
    let ends: Vec<u32> = vec![0, 2, 3];
    let heads = CsrView::new(
        "heads_",
        &ends,
        &model.heads.indices,
        &model.heads.values,
        2,
    );
    let rules = Rules::new(model.bodies(), heads.expect("valid"), 8).expect("valid");
    let copy = rules.to_model(&model.coverage, &[]).expect("agrees");
    assert_eq!(copy, model);
    let error = rules.to_model(&[1.0], &[]).expect_err("one is missing");
    assert_eq!(error.to_string(), "length of coverage_: expected 2, got 1");
    let error = rules
        .to_model(&model.coverage, &[1.0])
        .expect_err("one is missing");
    assert_eq!(
        error.to_string(),
        "length of validation_loss_: expected 2, got 1"
    );
}

/// Returns rules and rows. There is one rule for each row. The rule covers only this row and gives
/// it the wanted scores.
fn scoring(scores: &[Vec<f32>]) -> (Arrays, Vec<Vec<(u32, f64)>>) {
    // The rows have the codes 1, 2, … of one nominal feature.
    let codes = 1..=scores.len();
    let arrays = Arrays {
        indptr: (0..=scores.len() as i64).collect(),
        feature: vec![0; scores.len()],
        operator: vec![2; scores.len()],
        threshold: codes.clone().map(|code| code as f32).collect(),
        heads: scores
            .iter()
            .map(|row| (0..).zip(row.iter().copied()).collect())
            .collect(),
        n_labels: scores[0].len(),
    };
    (arrays, codes.map(|code| vec![(0, code as f64)]).collect())
}

fn known_and_marginals(
    scores: &[Vec<f32>],
    sets: &[Vec<u32>],
    n_threads: usize,
) -> (Vec<usize>, Vec<f64>) {
    let (arrays, rows) = scoring(scores);
    let (ends, features, values) = matrix(&rows);
    let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
    let watch = Watch::new();
    let known = label_sets(sets, arrays.n_labels);
    let (named, marginals) = on_threads(n_threads, || {
        arrays.with(|rules| {
            let ensemble = Ensemble::new(rules, known, Predictor::KnownSets)?;
            Ok((
                ensemble.above(x.into(), Bounds::One(0.0), &watch)?,
                ensemble.probabilities(x.into(), &watch)?,
            ))
        })
    })
    .expect("valid");
    // Label sets are distinct.
    let set = |row: usize| sets.iter().position(|set| set == named.row(row).0);
    let found = (0..rows.len()).map(|row| set(row).expect("a known set"));
    (found.collect(), marginals)
}

/// Returns `|p_k|` of the labels on which a set disagrees with the scores.
fn wrong(scores: &[f32], set: &[u32]) -> Vec<f64> {
    let labels = (0..).zip(scores);
    let wrong = labels.filter(|(label, score)| set.contains(label) != (**score > 0.0));
    wrong.map(|(_, score)| f64::from(score.abs())).collect()
}

/// Returns `Σ_k 2 sinh(|p_k|) e^{−scale}`. `wrong` has the numbers `|p_k|` that [`wrong`](fn@wrong)
/// returns.
fn cost(wrong: &[f64], scale: f64) -> f64 {
    let term = |p: &f64| {
        if *p < 1.0 {
            2.0 * p.sinh() * (-scale).exp()
        } else {
            (p - scale).exp() - (-p - scale).exp()
        }
    };
    wrong.iter().map(term).sum()
}

/// Returns `log(1 + Σ_k e^{−y_k p_k})`.
fn loss(scores: &[f32], set: &[u32]) -> f64 {
    let z: Vec<f64> = (0..)
        .zip(scores)
        .map(|(label, &score)| f64::from(if set.contains(&label) { -score } else { score }))
        .collect();
    let most = z.iter().copied().fold(0.0, f64::max);
    let sum: f64 = z.iter().map(|z| (z - most).exp()).sum();
    most + ((-most).exp() + sum).ln()
}

const N_LABELS: usize = 11;

/// Distinct label sets in random order.
fn sets() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let set = prop::collection::btree_set(0..N_LABELS as u32, 0..5);
    prop::collection::btree_set(set, 1..40)
        .prop_map(|sets| {
            let sets = sets.into_iter();
            sets.map(|set| set.into_iter().collect()).collect()
        })
        .prop_shuffle()
}

/// Scores of similar size, of very different sizes, with ties, and mostly negative ones as in
/// practice.
fn scores() -> impl Strategy<Value = Vec<f32>> {
    let row = |score: BoxedStrategy<f32>| prop::collection::vec(score, N_LABELS);
    prop_oneof![
        row((-3.0f32..1.0).boxed()),
        row((-1e-3f32..1e-3).boxed()),
        row((-700.0f32..700.0).boxed()),
        row(prop::sample::select(vec![-700.0f32, 700.0, -2.0, 2.0, -0.0, 0.0, 1e-30]).boxed()),
        row((-9.0f32..-1.0).boxed()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_known_set_has_the_least_loss(
        sets in sets(),
        scores in prop::collection::vec(scores(), 1..90),
        n_threads in 1usize..3,
    ) {
        let (known, marginals) = known_and_marginals(&scores, &sets, n_threads);
        for ((scores, &known), marginals) in scores.iter().zip(&known).zip(marginals.chunks(N_LABELS)) {
            let found = wrong(scores, &sets[known]);
            for (at, other) in sets.iter().enumerate() {
                let other = wrong(scores, other);
                // Both costs use a common scale that fits these two sets.
                let scale = found.iter().chain(&other).copied().fold(0.0, f64::max);
                let (found, other) = (cost(&found, scale), cost(&other, scale));
                prop_assert!(found <= other * (1.0 + 1e-13), "{} of {}, {} of {}", found, known, other, at);
            }
            let losses: Vec<f64> = sets.iter().map(|set| loss(scores, set)).collect();
            let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert!(losses[known] <= least + 1e-12 * (1.0 + least));
            // e^{−loss} is 1 / (1 + Σ e^{−y p}).
            let total: f64 = losses.iter().map(|loss| (least - loss).exp()).sum();
            for label in 0..N_LABELS as u32 {
                let shares = sets.iter().zip(&losses).filter(|(set, _)| set.contains(&label));
                let share: f64 = shares.map(|(_, loss)| (least - loss).exp()).sum();
                prop_assert!((marginals[label as usize] - share / total).abs() < 1e-10);
            }
        }
    }

    #[test]
    fn frequent_sets_win_if_weights_count(
        (sets, weights) in sets().prop_flat_map(|sets| {
            let weights = prop::collection::vec(prop::sample::select(vec![0.0, 0.5, 1.0, 3.0, 400.0]), sets.len());
            (Just(sets), weights)
        }),
        scores in prop::collection::vec(scores(), 1..90),
        power in prop::sample::select(vec![0.0, 0.1, 1.0]),
    ) {
        let (arrays, rows) = scoring(&scores);
        let (ends, features, values) = matrix(&rows);
        let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
        let known = label_sets(&sets, N_LABELS).with_weights(&weights, power).expect("one weight per set");
        let named = arrays.with(|rules| {
            Ensemble::new(rules, known, Predictor::KnownSets)?.above(x.into(), Bounds::One(0.0), &Watch::new())
        }).expect("valid");
        let most = weights.iter().copied().fold(0.0, f64::max);
        for (row, scores) in scores.iter().enumerate() {
            let value = |set: &Vec<u32>, weight: f64| {
                // A weight of 0 counts as a very small weight.
                let ratio = if power > 0.0 && most > 0.0 { most / weight } else { 1.0 };
                loss(scores, set) + (power * ratio.ln()).min(100.0 * 10f64.ln())
            };
            let values: Vec<f64> = sets.iter().zip(&weights).map(|(set, &weight)| value(set, weight)).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let found = sets.iter().position(|set| set == named.row(row).0).expect("a known set");
            prop_assert!(values[found] <= least + 1e-9 * (1.0 + least), "{} of {}, least {}", values[found], found, least);
        }
    }

    #[test]
    fn labels_above_the_bound_and_the_best_label_are_predicted(
        scores in prop::collection::vec(scores(), 1..90),
        bound in prop::sample::select(vec![-800.0f32, -2.0, -1e-30, 0.0, 0.3, 2.0, 800.0]),
        best in any::<bool>(),
        absent in 0..=N_LABELS as u32,
    ) {
        let (arrays, rows) = scoring(&scores);
        let (ends, features, values) = matrix(&rows);
        let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
        let seen: Vec<u32> = (0..N_LABELS as u32).filter(|&label| label != absent).collect();
        let sets = label_sets(std::slice::from_ref(&seen), N_LABELS);
        let named = arrays.with(|rules| {
            Ensemble::new(rules, sets, Predictor::Above { bound, best })?.above(x.into(), Bounds::One(0.0), &Watch::new())
        }).expect("valid");
        for (row, scores) in scores.iter().enumerate() {
            let score = |label: u32| scores[label as usize];
            let highest = seen.iter().copied().map(score).fold(f32::NEG_INFINITY, f32::max);
            let first = seen.iter().copied().find(|&label| score(label) == highest);
            let wanted = seen.iter().copied().filter(|&label| score(label) > bound || (best && first == Some(label)));
            prop_assert_eq!(named.row(row).0, &wanted.collect::<Vec<_>>()[..]);
        }
    }

    #[test]
    fn ties_go_to_the_first_set(
        sets in sets(),
        signs in prop::collection::vec(any::<bool>(), N_LABELS),
        size in prop::sample::select(vec![0.0f32, 1e-20, 0.3, 50.0, 1e30]),
    ) {
        let scores: Vec<f32> = signs.iter().map(|&sign| if sign { size } else { -size }).collect();
        let (known, _) = known_and_marginals(std::slice::from_ref(&scores), &sets, 1);
        // If all scores have the same magnitude, the loss grows with the number of labels that
        // disagree.
        let distance = |set: &Vec<u32>| if size == 0.0 { 0 } else { wrong(&scores, set).len() };
        let nearest = (0..sets.len()).min_by_key(|&set| (distance(&sets[set]), set));
        prop_assert_eq!(Some(known[0]), nearest);
        // Equal weights change nothing, unless the rounding of the common part of the losses hides the costs.
        if size > 0.0 && size < 1e-9 {
            return Ok(());
        }
        let (arrays, rows) = scoring(std::slice::from_ref(&scores));
        let (ends, features, values) = matrix(&rows);
        let x = CsrView::new("X", &ends, &features, &values, N_FEATURES).expect("valid");
        let weighted = label_sets(&sets, N_LABELS).with_weights(&vec![3.0; sets.len()], 0.25).expect("one per set");
        let named = arrays.with(|rules| {
            Ensemble::new(rules, weighted, Predictor::KnownSets)?.above(x.into(), Bounds::One(0.0), &Watch::new())
        }).expect("valid");
        prop_assert_eq!(named.row(0).0, &sets[known[0]][..]);
    }
}

#[test]
fn the_least_differences_count_beside_enormous_scores() {
    let sets = [vec![0, 1], vec![0, 2], vec![0, 3], vec![]];
    for enormous in [800.0f32, 1e30, f32::MAX] {
        // All sets but the last agree with the enormous score. Among these, the second set is best.
        let agreed = vec![enormous, -3.0, -1.0, -2.0];
        let mirrored = vec![-enormous, -3.0, -1.0, -2.0];
        let (known, marginals) = known_and_marginals(&[agreed, mirrored], &sets, 1);
        assert_eq!(known, [1, 3]);
        let weight = |p: f64| {
            let others: f64 = [-3.0f64, -1.0, -2.0].iter().map(|q| q.exp()).sum();
            (1.0 + others - (-p).exp() + p.exp()).recip()
        };
        let weights = [weight(3.0), weight(1.0), weight(2.0)];
        let total: f64 = weights.iter().sum();
        assert_eq!(marginals[0], 1.0);
        for (found, weight) in marginals[1..4].iter().zip(weights) {
            assert!((found - weight / total).abs() < 1e-15);
        }
        assert!(marginals[4..].iter().all(|&found| found < 1e-300));
    }
}
