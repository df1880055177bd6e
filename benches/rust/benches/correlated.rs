//! Measures fits and decoding of the correlated logistic model on one thread. The data are synthetic
//! and have the shapes of yeast and corel5k.

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use manylabel_base::Watch;
use manylabel_benches::{Csr, Text, YEAST, on_one_thread};
use manylabel_correlated::{Method, Model, Params, Scorer};
use manylabel_score::{Bounds, Model as _};

struct Data {
    name: String,
    x: Csr,
    y: Csr,
}

fn shapes() -> [Data; 2] {
    let corel = Text::new(4_500, 499, 8, 374);
    let data = |name: String, (x, y)| Data { name, x, y };
    [
        data(YEAST.to_string(), YEAST.examples(0)),
        data(corel.to_string(), corel.examples(0)),
    ]
}

fn fitted(data: &Data, params: Params) -> Model {
    let params = params.check().expect("in range");
    params
        .fit(
            data.x.view().into(),
            data.y.view().into(),
            None,
            None,
            None,
            &Watch::new(),
        )
        .expect("sound data")
}

fn fit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("correlated/fit");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    for data in shapes() {
        for (name, l2_pairs, epsilon) in [
            ("independent", f64::INFINITY, 1.0),
            ("elastic-net", 1e-3, 1.0),
            ("l2", 1e-3, 0.0),
        ] {
            let params = Params {
                l2_pairs,
                epsilon,
                max_iter: 50,
                ..Params::default()
            };
            group.bench_function(BenchmarkId::new(name, &data.name), |b| {
                b.iter_with_large_drop(|| fitted(&data, params.clone()));
            });
        }
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("correlated/predict");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    let methods = [
        ("exact", Method::Exact),
        ("search", Method::Search),
        ("messages", Method::Messages),
    ];
    for data in shapes() {
        let model = fitted(&data, Params::default());
        let (weights, sets) = (&model.weights, &model.sets);
        let x = data.x.view();
        group.throughput(Throughput::Elements(x.n_rows() as u64));
        for (name, method) in methods {
            let weights = (&weights.ends[..], &weights.cols[..], &weights.values[..]);
            let scorer = Scorer::new(weights, &model.intercept, &model.couplings, method)
                .and_then(|scorer| scorer.with_sets(&sets.ends, &sets.labels, &sets.energies))
                .expect("of one model");
            let watch = Watch::new();
            if method == Method::Exact && scorer.above(x.into(), Bounds::One(0.0), &watch).is_err()
            {
                continue; // too many coupled labels to decode exactly
            }
            group.bench_function(BenchmarkId::new(name, &data.name), |b| {
                b.iter_with_large_drop(|| {
                    scorer
                        .above(x.into(), Bounds::One(0.0), &watch)
                        .expect("same features")
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = fit, decode
}
criterion_main!(benches);
