//! Compares rankings, label sets and scores of block models with their definition, one row at a time.
#![allow(clippy::float_cmp, reason = "scores must be exactly equal")]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests choose their sizes"
)]

use manylabel_base::{Error, Watch};
use manylabel_partition::{Block, BlockModel, Inner, Link, Named, Part, Routing};
use manylabel_score::{Bounds, Model, Options, Rows, Task, at};
use manylabel_sparse::{CsrOwned, CsrView, Features, Sparse};
use proptest::prelude::*;
use std::ops::Range;

const N_FEATURES: usize = 3;

/// A dense linear model: `N_FEATURES` weights for each label.
#[derive(Debug, Clone)]
struct Dense(Vec<[f32; N_FEATURES]>);

impl Dense {
    fn scores(&self, row: &[f32]) -> Vec<f32> {
        let product = |w: &[f32; N_FEATURES]| w.iter().zip(row).map(|(w, x)| w * x).sum();
        self.0.iter().map(product).collect()
    }
}

impl Model for Dense {
    fn n_labels(&self) -> usize {
        self.0.len()
    }

    fn n_features(&self) -> usize {
        N_FEATURES
    }

    fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        match x {
            Features::Sparse(Sparse::I32F32(x)) => Ok(Box::new(Batch(self, x))),
            _ => unimplemented!("these tests have one type"),
        }
    }
}

struct Batch<'a>(&'a Dense, CsrView<'a, i32, f32>);

impl Rows for Batch<'_> {
    fn n_labels(&self) -> usize {
        self.0.n_labels()
    }

    fn at_once(&self) -> usize {
        2
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], _: &mut Task) -> Result<(), Error> {
        for (row, out) in rows.zip(scores.chunks_mut(self.n_labels().max(1))) {
            out.copy_from_slice(&self.0.scores(self.1.row(row).1));
        }
        Ok(())
    }
}

/// The labels of three blocks and the weights of all models. There are seven labels in total.
#[derive(Debug, Clone)]
struct Case {
    router: Dense,
    labels: Vec<Vec<i32>>,
    models: Vec<Dense>,
    rows: Vec<[f32; N_FEATURES]>,
}

const N_LABELS: usize = 7;

fn weights() -> impl Strategy<Value = [f32; N_FEATURES]> {
    // There are few distinct values, so that scores are often equal.
    prop::array::uniform3((-3..4i8).prop_map(|w| f32::from(w) / 2.0))
}

fn cases() -> impl Strategy<Value = Case> {
    let known = prop::collection::vec(prop::collection::btree_set(0..N_LABELS as i32, 0..6), 3);
    let all = prop::collection::vec(prop::collection::vec(weights(), N_LABELS), 3);
    let rows = prop::collection::vec(weights(), 1..50);
    (prop::collection::vec(weights(), 3), known, all, rows).prop_map(
        |(router, known, all, rows)| {
            let labels: Vec<Vec<i32>> = known
                .into_iter()
                .map(|set| set.into_iter().collect())
                .collect();
            let models = labels.iter().zip(all);
            Case {
                models: models
                    .map(|(labels, all)| Dense(all[..labels.len()].to_vec()))
                    .collect(),
                router: Dense(router),
                labels,
                rows,
            }
        },
    )
}

const LINK: Link = Link {
    factor: 4.0,
    zero: 0.25,
};
const LEAST: f32 = 0.25;

impl Case {
    fn model(&self, routing: Routing) -> BlockModel<'_> {
        let blocks = self.labels.iter().zip(&self.models);
        let blocks = blocks.map(|(labels, model)| Block {
            labels,
            model: Some(Inner::Own(model)),
            link: LINK,
            named: Named::Above(LEAST),
        });
        BlockModel::new(&self.router, blocks.collect(), N_LABELS, routing).expect("they agree")
    }

    /// Returns the blocks of a row, and their probabilities.
    fn routes(&self, row: &[f32], routing: Routing) -> Vec<(usize, f64)> {
        let scores = self.router.scores(row);
        let mut order: Vec<usize> = (0..3).collect();
        order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).expect("numbers"));
        let chance = |&block: &usize| (block, logistic(f64::from(scores[block])));
        let mut routes: Vec<(usize, f64)> = order.iter().map(chance).collect();
        match routing {
            Routing::Best(n_routes) => routes.truncate(n_routes),
            Routing::Doubt { most, share } => {
                routes.truncate(most);
                let total: f64 = routes.iter().map(|route| route.1).sum();
                let mut before = 0.0;
                routes.retain(|route| {
                    let wanted = before < share * total;
                    before += route.1;
                    wanted
                });
            }
        }
        routes
    }

    /// Returns the score of every label of a row.
    fn scores(&self, row: &[f32], routing: Routing) -> Vec<f32> {
        let routes = self.routes(row, routing);
        let merged = match routing {
            Routing::Best(n_routes) => n_routes > 1,
            Routing::Doubt { .. } => routes.len() > 1,
        };
        let total: f64 = routes.iter().map(|route| route.1).sum();
        let score = |label: i32| {
            let (mut share, mut known) = (0.0, None);
            for &(block, chance) in &routes {
                if let Ok(at) = self.labels[block].binary_search(&label) {
                    let score = self.models[block].scores(row)[at];
                    let odds = LINK.factor * (score - LINK.zero);
                    share += chance / total * logistic(f64::from(odds));
                    known = Some(if routing == Routing::Best(1) {
                        score
                    } else {
                        odds
                    });
                }
            }
            match known {
                Some(_) if merged => (share / (1.0 - share)).ln() as f32,
                Some(score) => score,
                None => f32::NEG_INFINITY,
            }
        };
        (0..N_LABELS as i32).map(score).collect()
    }
}

fn logistic(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

/// Returns the CSR arrays of a dense matrix.
fn arrays(rows: &[[f32; N_FEATURES]]) -> (Vec<i32>, Vec<i32>, Vec<f32>) {
    let ends = (0..=rows.len()).map(|row| (row * N_FEATURES) as i32);
    let cols = rows.iter().flat_map(|_| 0..N_FEATURES as i32);
    (ends.collect(), cols.collect(), rows.concat())
}

fn dense(matrix: &CsrOwned) -> Vec<f32> {
    let mut out = vec![f32::NEG_INFINITY; matrix.n_rows() * matrix.n_cols];
    for row in 0..matrix.n_rows() {
        let (labels, values) = matrix.row(row);
        assert!(labels.is_sorted_by(|a, b| a < b));
        for (&label, &value) in labels.iter().zip(values) {
            out[row * matrix.n_cols + label as usize] = value;
        }
    }
    out
}

proptest! {
    #[test]
    fn answers_are_those_of_the_definition(
        case in cases(),
        k in 1..5usize,
        routing in prop_oneof![
            Just(Routing::Best(1)),
            Just(Routing::Best(2)),
            Just(Routing::Doubt { most: 3, share: 0.6 }),
        ],
    ) {
        let watch = Watch::new();
        let model = case.model(routing);
        let (ends, cols, values) = arrays(&case.rows);
        let x = CsrView::new("X", &ends, &cols, &values, N_FEATURES).expect("canonical");
        let scores = model.decision(x.into(), &watch).expect("small");
        for (row, scores) in case.rows.iter().zip(scores.chunks(N_LABELS)) {
            for (found, expected) in scores.iter().zip(case.scores(row, routing)) {
                let close = (found - expected).abs() <= 1e-4 * (1.0 + expected.abs());
                prop_assert!(close || *found == expected, "{found} {expected}");
            }
        }
        // Find the best of these scores. If scores are equal, use the lower label.
        let top = model.topk(x.into(), k, &watch).expect("small");
        prop_assert_eq!(top.n_rows(), case.rows.len());
        for (top, scores) in dense(&top).chunks(N_LABELS).zip(scores.chunks(N_LABELS)) {
            let mut order: Vec<usize> = (0..N_LABELS).collect();
            order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).expect("numbers"));
            for (rank, &label) in order.iter().enumerate() {
                let expected = if rank < k { scores[label] } else { f32::NEG_INFINITY };
                prop_assert_eq!(top[label], expected);
            }
        }
        // A label is predicted if its score is above the threshold of its model. If scores are merged,
        // a label is predicted if its log-odds are above 0.
        let named = dense(&model.above(x.into(), Bounds::One(0.0), &watch).expect("small"));
        let each = dense(&model.above(x.into(), Bounds::Each(&[0.0; N_LABELS]), &watch).expect("small"));
        prop_assert_eq!(&named, &each);
        let least = if routing == Routing::Best(1) { LEAST } else { 0.0 };
        for (named, &score) in named.iter().zip(&scores) {
            prop_assert_eq!(*named, if score > least { score } else { f32::NEG_INFINITY });
        }
        // Compare the scores of given labels, and of single rows.
        let found = at(&model, x.into(), full(case.rows.len()).view().into(), &watch).expect("small");
        prop_assert_eq!(&found, &scores);
        for (row, scores) in case.rows.iter().zip(scores.chunks(N_LABELS)) {
            let (ends, cols, values) = arrays(&[*row]);
            let x = CsrView::new("X", &ends, &cols, &values, N_FEATURES).expect("canonical");
            prop_assert_eq!(model.decision(x.into(), &watch).expect("small"), scores);
        }
    }

    #[test]
    fn parts_have_the_scores_of_the_whole(case in cases(), k in 1..4usize) {
        let watch = Watch::new();
        let whole = Dense(case.models.iter().flat_map(|model| model.0.clone()).collect());
        let all: Vec<i32> = (0..whole.n_labels() as i32).step_by(2).collect();
        let part = Part::new(&whole, &all).expect("in order");
        let (ends, cols, values) = arrays(&case.rows);
        let x = CsrView::new("X", &ends, &cols, &values, N_FEATURES).expect("canonical");
        let scores = part.decision(x.into(), &watch).expect("small");
        let of_whole = whole.decision(x.into(), &watch).expect("small");
        let n_labels = whole.n_labels().max(1);
        let expected: Vec<f32> = of_whole
            .chunks(n_labels)
            .flat_map(|scores| scores.iter().copied().step_by(2))
            .collect();
        prop_assert_eq!(&scores, &expected);
        let top = part.topk(x.into(), k, &watch).expect("small");
        prop_assert!((0..top.n_rows()).all(|row| top.row(row).0.len() == k.min(all.len())));
        let named = part.above(x.into(), Bounds::One(0.5), &watch).expect("small");
        let each = vec![0.5; all.len()];
        let by_each = part.above(x.into(), Bounds::Each(&each), &watch).expect("small");
        prop_assert_eq!(&named, &by_each);
        for (named, score) in dense(&named).into_iter().zip(scores) {
            prop_assert_eq!(named, if score > 0.5 { score } else { f32::NEG_INFINITY });
        }
    }
}

/// A sparse pattern with every label of every row.
struct Pattern(Vec<i32>, Vec<i32>, Vec<f32>);

fn full(n_rows: usize) -> Pattern {
    let size = n_rows * N_LABELS;
    let ends = (0..=size as i32).step_by(N_LABELS).collect();
    let labels = (0..size).map(|at| (at % N_LABELS) as i32).collect();
    Pattern(ends, labels, vec![1.0; size])
}

impl Pattern {
    fn view(&self) -> CsrView<'_, i32, f32> {
        CsrView::new("labels", &self.0, &self.1, &self.2, N_LABELS).expect("canonical")
    }
}

#[test]
fn models_of_one_label_name_their_best() {
    let (router, inner) = (Dense(vec![[0.0; 3]]), Dense(vec![[-1.0; 3], [-0.5; 3]]));
    let block = Block {
        labels: &[2, 5],
        model: Some(Inner::Own(&inner)),
        link: Link::IDENTITY,
        named: Named::Best,
    };
    let model = BlockModel::new(&router, vec![block], N_LABELS, Routing::Best(1)).expect("it fits");
    let (ends, cols, values) = arrays(&[[1.0; 3]]);
    let x = CsrView::new("X", &ends, &cols, &values, N_FEATURES).expect("canonical");
    let named = model
        .above(x.into(), Bounds::One(0.0), &Watch::new())
        .expect("small");
    assert_eq!((named.indices, named.values), (vec![5], vec![-1.5]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let (router, two) = (Dense(vec![[0.0; 3]]), Dense(vec![[0.0; 3]; 2]));
    let error = |labels: &[&[i32]], known: bool| {
        let blocks = labels.iter().map(|&labels| Block {
            labels,
            model: known.then_some(Inner::Own(&two as &dyn Model)),
            link: Link::IDENTITY,
            named: Named::Above(0.0),
        });
        let model = BlockModel::new(&router, blocks.collect(), N_LABELS, Routing::Best(1));
        model
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert_eq!(error(&[&[0, 6]], true), "");
    assert_eq!(error(&[&[]], false), "");
    for (labels, known, message) in [
        (
            &[&[0, 6][..], &[]][..],
            true,
            "blocks of label_blocks_: expected 1, got 2",
        ),
        (
            &[&[0]],
            true,
            "number of labels of the model of a block: expected 1, got 2",
        ),
        (
            &[&[0, 7]],
            true,
            "labels >= 0 and below the number of labels, got 7",
        ),
        (
            &[&[-1, 0]],
            true,
            "labels >= 0 and below the number of labels, got -1",
        ),
        (
            &[&[1, 1]],
            true,
            "increasing within a block, got label 1 before label 1",
        ),
        (
            &[&[1]],
            false,
            "number of labels of a block without a model: expected 0, got 1",
        ),
    ] {
        assert!(
            error(labels, known).contains(message),
            "{}",
            error(labels, known)
        );
    }
    assert!(Part::new(&two, &[0, 1]).is_ok());
    for labels in [&[0, 2][..], &[1, 0], &[-1]] {
        assert!(Part::new(&two, labels).is_err());
    }
}
