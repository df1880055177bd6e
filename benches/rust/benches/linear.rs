//! Measures fits and predictions of the linear classifiers on one thread.

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use manylabel_base::Watch;
use manylabel_benches::{Text, measure_rankings, on_one_thread};
use manylabel_linear::dismec::{Params, Solver};
use manylabel_linear::{Scorer, leml, pdsparse};
use manylabel_sparse::Rows;

fn fit(criterion: &mut Criterion) {
    let text = Text::new(2_000, 5_000, 60, 128);
    let (x, y) = text.examples(0);
    let y = y.owned();
    let mut group = criterion.benchmark_group("fit");
    group
        .throughput(Throughput::Elements(text.c as u64))
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat);
    for (name, solver) in [("fast", Solver::Fast), ("exact", Solver::Exact)] {
        let params = Params {
            solver,
            ..Params::default()
        };
        let params = params.check().expect("defaults");
        group.bench_function(BenchmarkId::new(name, text), |b| {
            b.iter_with_large_drop(|| params.fit(x.view().into(), &y, None, &Watch::new()));
        });
    }
    let targets = leml::Targets::from(manylabel_sparse::Labels::from(&y));
    for rank in [10, 100] {
        let params = leml::Params {
            rank,
            alpha: Some(0.1),
            max_iter: 3,
            ..leml::Params::default()
        };
        let params = params.check().expect("in range");
        group.bench_function(BenchmarkId::new(format!("leml,rank={rank}"), text), |b| {
            b.iter_with_large_drop(|| params.fit(x.view().into(), &targets, &Watch::new()));
        });
    }
    let params = pdsparse::Params::default().check().expect("defaults");
    group.bench_function(BenchmarkId::new("pd-sparse", text), |b| {
        b.iter_with_large_drop(|| {
            let rows = Rows::copied(x.view().into(), true)?;
            params.fit(rows, &y, None, None, &Watch::new())
        });
    });
}

fn predict(criterion: &mut Criterion) {
    const RANK: usize = 100;
    let text = Text::new(1_000, 20_000, 80, 4_271);
    let weights = text.weights(0);
    let intercept = vec![-0.5; text.c];
    let scorer = Scorer::new(
        &weights.indptr,
        &weights.indices,
        &weights.values,
        &intercept,
        true,
    )
    .expect("lengths agree");
    let mut group = criterion.benchmark_group("predict");
    let details = format!("weights={},", weights.values.len());
    measure_rankings(&mut group, "topk", &details, (text, 0), &scorer);
    let features: Vec<i32> = (0..text.d as i32).collect();
    let number = |at: usize| (at % 17) as f32 / 17.0 - 0.5;
    let w: Vec<f32> = (0..text.d * RANK).map(number).collect();
    let ht: Vec<f32> = (0..text.c * RANK).map(number).collect();
    let shape = (text.d, RANK);
    let scorer = leml::Scorer::new(&features, &w, &ht, &intercept, shape, true).expect("agrees");
    let details = format!("rank={RANK},");
    measure_rankings(&mut group, "low-rank topk", &details, (text, 0), &scorer);
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = fit, predict
}
criterion_main!(benches);
