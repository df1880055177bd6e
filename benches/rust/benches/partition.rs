//! Measures fits of partitions, k-means and the router on one thread.

use criterion::{BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};
use manylabel_base::Watch;
use manylabel_benches::{Csr, Text, on_one_thread};
use manylabel_partition::{KMeans, Params, Router, Until};
use manylabel_sparse::Rows;

const TEXT: Text = Text::new(20_000, 20_000, 60, 4_271);

/// Returns rows of unit length.
fn unit(x: &Csr) -> Rows<'static> {
    Rows::copied(x.view().into(), true).expect("small")
}

/// Measures how the time grows with the number of blocks, for one data set.
fn partition(criterion: &mut Criterion) {
    let (x, y) = TEXT.examples(0);
    let y = y.owned();
    let mut group = criterion.benchmark_group("partition");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    for n_blocks in [16, 64] {
        let kmeans = KMeans {
            until: Until::Clusters(n_blocks),
            n_init: 1,
            seed: 0,
        };
        let name = format!("{TEXT},n_blocks={n_blocks}");
        group.bench_function(BenchmarkId::new("kmeans", &name), |b| {
            b.iter_with_large_drop(|| kmeans.fit(unit(&x), None, &Watch::new()));
        });
        let params = Params {
            n_blocks: Some(n_blocks),
            lam: 0.01,
            ..Params::default()
        };
        let params = params.check().expect("in range");
        group.bench_function(BenchmarkId::new("fit", &name), |b| {
            b.iter_with_large_drop(|| params.fit(unit(&x), &y, &Watch::new()));
        });
    }
    group.finish();
}

fn router(criterion: &mut Criterion) {
    let (x, _) = TEXT.examples(0);
    let kmeans = KMeans {
        until: Until::Clusters(16),
        n_init: 1,
        seed: 0,
    };
    let classes = kmeans
        .fit(unit(&x), None, &Watch::new())
        .expect("small")
        .row_clusters;
    let router = Router {
        c: 1.0,
        fit_intercept: true,
        tol: 0.1,
        max_iter: 1000,
        seed: 0,
    };
    let mut group = criterion.benchmark_group("router");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    let name = format!("{TEXT},n_blocks=16");
    group.bench_function(BenchmarkId::new("fit", name), |b| {
        b.iter_with_large_drop(|| router.fit(unit(&x), &classes, 16, None, &Watch::new()));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = partition, router
}
criterion_main!(benches);
