//! Measures fits and predictions of boosted rules on one thread. The data are synthetic and have the
//! shapes of yeast (measurements), enron and bibtex (binary features).

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use manylabel_base::Watch;
use manylabel_benches::{BIBTEX, Csr, ENRON, YEAST, on_one_thread};
use manylabel_rules::{Ensemble, LabelSets, Model, Params, Predictor, Rules, Search, Step};
use manylabel_score::{Bounds, Model as _};
use manylabel_sparse::{CsrOwned, CsrView};
use std::collections::BTreeSet;

/// A data set, and the number of features that are tried for a condition. This number is log₂ of the
/// number of features, rounded up.
struct Data {
    name: String,
    x: Csr,
    y: Csr,
    max_features: usize,
}

fn shapes() -> [Data; 3] {
    [
        (YEAST.to_string(), YEAST.d, YEAST.examples(0)),
        (ENRON.to_string(), ENRON.d, binary(ENRON.examples(0))),
        (BIBTEX.to_string(), BIBTEX.d, binary(BIBTEX.examples(0))),
    ]
    .map(|(name, d, (x, y))| Data {
        name,
        x,
        y,
        max_features: (d - 1).ilog2() as usize + 1,
    })
}

/// Sets all values of X to 1.
fn binary((mut x, y): (Csr, Csr)) -> (Csr, Csr) {
    x.values.fill(1.0);
    (x, y)
}

impl Data {
    fn fit(&self, y: &CsrOwned, params: &Params) -> Model {
        let params = Params {
            max_features: self.max_features,
            ..params.clone()
        };
        let params = params.check().expect("in range");
        let watch = Watch::new();
        params
            .fit(self.x.view().into(), y, None, None, &[], None, &watch)
            .expect("sound data")
    }
}

fn fit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rules/fit");
    group
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat)
        .throughput(Throughput::Elements(10));
    for data in shapes() {
        let y = data.y.owned();
        for (search, of_search) in [("fast", Search::Fast), ("exact", Search::Exact)] {
            for (bins, binning, step) in [
                ("4%", Params::default().binning, Step::Newton),
                ("none", None, Step::Safeguarded),
            ] {
                let params = Params {
                    n_rules: 10,
                    search: of_search,
                    binning,
                    step,
                    ..Params::default()
                };
                let name = format!("{},bins={bins},rules={}", data.name, params.n_rules);
                group.bench_function(BenchmarkId::new(search, name), |b| {
                    b.iter_with_large_drop(|| data.fit(&y, &params));
                });
            }
        }
    }
}

fn predict(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rules/predict");
    for data in shapes() {
        let params = Params {
            n_rules: 300,
            ..Params::default()
        };
        let model = data.fit(&data.y.owned(), &params);
        // Positions are converted to the types of numpy.
        let indptr: Vec<i32> = model.heads.indptr.iter().map(|&end| end as i32).collect();
        let labels: Vec<i32> = model.heads.indices.iter().map(|&l| l as i32).collect();
        let (values, n_labels) = (&model.heads.values, model.heads.n_cols);
        let heads = CsrView::new("heads_", &indptr, &labels, values, n_labels).expect("sorted");
        let rules = Rules::new(model.bodies(), heads, data.x.view().n_cols());
        let rules = rules.expect("a fitted model");
        let sets = known_sets(&data.y, n_labels);
        let ensemble = Ensemble::new(rules, sets, Predictor::KnownSets).expect("of one model");
        let name = format!("{},rules={}", data.name, rules.n_rules());
        let (x, watch) = (data.x.view(), Watch::new());
        group.throughput(Throughput::Elements(x.n_rows() as u64));
        group.bench_function(BenchmarkId::new("scores", &name), |b| {
            b.iter_with_large_drop(|| ensemble.decision(x.into(), &watch));
        });
        group.bench_function(BenchmarkId::new("label-sets", &name), |b| {
            b.iter_with_large_drop(|| ensemble.above(x.into(), Bounds::One(0.0), &watch));
        });
    }
}

/// Returns the distinct label sets of all rows.
fn known_sets(y: &Csr, n_labels: usize) -> LabelSets {
    let y = y.view();
    let distinct: BTreeSet<&[i32]> = (0..y.n_rows()).map(|row| y.row(row).0).collect();
    let (mut indptr, mut labels) = (vec![0], Vec::new());
    for set in distinct {
        labels.extend_from_slice(set);
        indptr.push(labels.len() as i32);
    }
    let ones = vec![1.0; labels.len()];
    let sets = CsrView::new("label_sets_", &indptr, &labels, &ones, n_labels);
    LabelSets::new(sets.expect("sorted"), n_labels).expect("few labels")
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = fit, predict
}
criterion_main!(benches);
