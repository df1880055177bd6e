//! Measures three parts of Rembrandt on one thread: products of sparse features with 32 columns, fits
//! with sparse and dense features, and projections.

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use manylabel_base::Watch;
use manylabel_benches::{Text, on_one_thread};
use manylabel_pls::{Components, Matrix, Params, Solver, project};
use manylabel_sparse::{ColumnOrder, DenseView, LANES, Lanes, RowBlocks};
use ndarray::ArrayView2;

/// Measures the two products of the blocks of a matrix with a panel. Throughput counts pairs of a
/// multiplication and an addition.
fn products(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("products");
    for text in [
        Text::new(45_000, 20_000, 150, 4_000),
        Text::new(100_000, 500_000, 70, 20_000),
    ] {
        let (x, _) = text.examples(0);
        let order = ColumnOrder::new(x.view()).expect("small");
        let cuts = RowBlocks::<f32>::cut(text.n, |_| text.nnz);
        let blocks = RowBlocks::<f32>::new(x.view(), &order, false, 1.0, &cuts, &Watch::new());
        let blocks = blocks.expect("not stopped");
        let p = vec![Lanes([0.5f32; LANES]); blocks.n_cols()];
        let mut g = vec![Lanes([0.0f32; LANES]); blocks.n_cols()];
        let mut u = vec![Lanes([0.25f32; LANES]); RowBlocks::<f32>::MAX_ROWS];
        group.throughput(Throughput::Elements((text.n * text.nnz * LANES) as u64));
        group.bench_function(BenchmarkId::new("times", text), |b| {
            b.iter(|| {
                for (cut, block) in cuts.iter().zip(blocks.blocks()) {
                    block.times(&p, &mut u[..cut.len()]);
                }
            });
        });
        group.bench_function(BenchmarkId::new("transposed", text), |b| {
            b.iter(|| {
                for (cut, block) in cuts.iter().zip(blocks.blocks()) {
                    block.add_transposed(&u[..cut.len()], &mut g);
                }
            });
        });
    }
}

fn fit(criterion: &mut Criterion) {
    const K: usize = 32;
    let text = Text::new(5_000, 6_000, 60, 1_000);
    let (x, y) = text.examples(0);
    let mut group = criterion.benchmark_group("fit");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    let params = Params {
        n_components: Components::Count(K),
        solver: Solver::Cg,
        ..Params::default()
    };
    let params = params.check().expect("in range");
    let name = format!("{text},k={K}");
    group.bench_function(BenchmarkId::new("cg", name), |b| {
        let x = Matrix::Sparse(x.view());
        b.iter_with_large_drop(|| params.fit(x, y.view(), None, &Watch::new()));
    });

    let (n, d) = (4_000, 500);
    let cells: Vec<f32> = (0..n * d).map(|at| (at * 37 % 101) as f32).collect();
    let cells = ArrayView2::from_shape((n, d), &cells).expect("as many");
    let dense = DenseView::new(&cells).expect("in C order");
    let text = Text { n, ..text };
    let (_, y) = text.examples(0);
    for (name, solver) in [("cholesky", Solver::Cholesky), ("cg", Solver::Cg)] {
        let params = Params {
            n_components: Components::Count(K),
            solver,
            ..Params::default()
        };
        let params = params.check().expect("in range");
        let id = BenchmarkId::new(name, format!("n={n},d={d},dense,c={},k={K}", text.c));
        group.bench_function(id, |b| {
            let x = Matrix::<i32, f32>::Dense(dense);
            b.iter_with_large_drop(|| params.fit(x, y.view(), None, &Watch::new()));
        });
    }
}

fn transform(criterion: &mut Criterion) {
    const K: usize = 100;
    let text = Text::new(1_000, 20_000, 80, 100);
    let (x, _) = text.examples(0);
    let (coef, intercept) = (vec![0.5f32; text.d * K], vec![0.0; K]);
    let mut group = criterion.benchmark_group("transform");
    group.throughput(Throughput::Elements(text.n as u64));
    group.bench_function(BenchmarkId::new("sparse", format!("{text},k={K}")), |b| {
        let x = Matrix::Sparse(x.view());
        b.iter_with_large_drop(|| project(x, &coef, &intercept, &Watch::new()));
    });
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = products, fit, transform
}
criterion_main!(benches);
