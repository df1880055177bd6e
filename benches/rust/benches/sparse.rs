//! Measures passes over X that most fits and predictions take once, and the choice of the best labels.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use manylabel_benches::{Text, briefly};
use manylabel_sparse::{CsrOwned, CsrView, TopK};
use std::hint::black_box;

const TEXT: Text = Text::new(10_000, 20_000, 80, 1_000);

fn matrices(criterion: &mut Criterion) {
    let (x, _) = TEXT.examples(0);
    let x = x.view();
    let owned = CsrOwned::from_view(x, true).expect("small");
    let mut group = criterion.benchmark_group("sparse");
    group.throughput(Throughput::Elements(x.nnz() as u64));
    let text = TEXT.to_string();
    group.bench_function(BenchmarkId::new("check", &text), |b| {
        let (x, _) = TEXT.examples(0);
        b.iter(|| {
            CsrView::new("X", &x.indptr, &x.indices, &x.values, TEXT.d).map(|x| black_box(x.nnz()))
        });
    });
    group.bench_function(BenchmarkId::new("normalize", &text), |b| {
        b.iter_with_large_drop(|| CsrOwned::from_view(x, true));
    });
    group.bench_function(BenchmarkId::new("transpose", &text), |b| {
        b.iter_with_large_drop(|| owned.transpose().expect("fits"));
    });
}

fn topk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("topk");
    for n_labels in [4_271, 24_522] {
        let mut rng = fastrand::Rng::with_seed(0);
        let scores: Vec<f32> = (0..n_labels).map(|_| rng.f32()).collect();
        group.throughput(Throughput::Elements(n_labels));
        for k in [5, 100] {
            let mut best = TopK::new(k).expect("small");
            let name = BenchmarkId::from_parameter(format!("c={n_labels},k={k}"));
            group.bench_function(name, |b| {
                b.iter(|| {
                    best.push_row(&scores);
                    best.drain_by_label().for_each(|kept| {
                        black_box(kept);
                    });
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = briefly();
    targets = matrices, topk
}
criterion_main!(benches);
