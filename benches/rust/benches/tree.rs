//! Measures fits and predictions of label trees on one thread.

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use manylabel_base::Watch;
use manylabel_benches::{Text, measure_rankings, on_one_thread};
use manylabel_sparse::Rows;
use manylabel_tree::{Params, Scaling, Scorer};

/// Several levels of small nodes. The labels are fewer than in real data, so the leaves are smaller too.
fn params(n_trees: usize) -> Params {
    Params {
        n_trees,
        branching: 8,
        max_leaf: 25,
        ..Params::default()
    }
}

fn fit(criterion: &mut Criterion) {
    let text = Text::new(2_000, 5_000, 60, 500);
    let (x, y) = text.examples(0);
    let y = y.owned();
    let params = params(1).check().expect("in range");
    let mut group = criterion.benchmark_group("tree_fit");
    group
        .throughput(Throughput::Elements(text.c as u64))
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat);
    group.bench_function(BenchmarkId::new("one", text), |b| {
        b.iter_with_large_drop(|| {
            let rows = Rows::copied(x.view().into(), true)?;
            params.fit(rows, &y, None, None, &Watch::new())
        });
    });
}

fn predict(criterion: &mut Criterion) {
    let text = Text::new(2_000, 5_000, 60, 500);
    let mut group = criterion.benchmark_group("tree_predict");
    for (name, n_trees) in [("one", 1), ("three", 3)] {
        let params = params(n_trees);
        let (x, y) = text.examples(0);
        let checked = params.clone().check().expect("in range");
        let rows = Rows::copied(x.view().into(), true).expect("small");
        let model = checked
            .fit(rows, &y.owned(), None, None, &Watch::new())
            .expect("small");
        let scorer = Scorer::new(
            model.arrays(),
            params.beam,
            model.combine,
            0.0,
            Scaling::Rows,
        )
        .expect("lengths agree");
        measure_rankings(&mut group, name, "", (text, 1), &scorer);
    }
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = fit, predict
}
criterion_main!(benches);
