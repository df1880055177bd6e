//! Measures fits and rankings of the smooth link on one thread. The data are synthetic and have the
//! shapes of yeast and bibtex. A random projection replaces the embedding.

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use fastrand::Rng;
use manylabel_base::Watch;
use manylabel_benches::{BIBTEX, Csr, YEAST, on_one_thread};
use manylabel_link::{Kernel, Loss, Params, Projection, Scorer, Solver};
use manylabel_score::Model as _;
use manylabel_sparse::CsrOwned;

struct Data {
    name: String,
    x: Csr,
    y: CsrOwned,
    projection: Vec<f64>,
    intercept: Vec<f64>,
}

impl Data {
    fn new(name: &str, (x, y): (Csr, Csr), d: usize, k: usize) -> Self {
        let mut rng = Rng::with_seed(0);
        Self {
            name: format!("{name},k={k}"),
            x,
            y: y.owned(),
            projection: (0..d * k).map(|_| rng.f64() - 0.5).collect(),
            intercept: vec![0.0; k],
        }
    }

    fn projection(&self) -> Projection<'_> {
        let d = self.projection.len() / self.intercept.len();
        Projection::new(&self.projection, &self.intercept, d).expect("whole rows")
    }
}

fn shapes() -> [Data; 2] {
    [
        Data::new(&YEAST.to_string(), YEAST.examples(0), YEAST.d, 6),
        Data::new(&BIBTEX.to_string(), BIBTEX.examples(0), BIBTEX.d, 112),
    ]
}

fn fit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("link/fit");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    for data in shapes() {
        for (name, loss, solver) in [
            ("squared", Loss::Squared, Solver::Psgd),
            ("psgd", Loss::Logistic, Solver::Psgd),
            ("newton-cg", Loss::Logistic, Solver::NewtonCg),
        ] {
            let params = Params {
                n_features: 1000,
                loss,
                solver,
                ..Params::default()
            };
            let params = params.check().expect("in range");
            group.bench_function(BenchmarkId::new(name, &data.name), |b| {
                b.iter_with_large_drop(|| {
                    let (x, projection) = (data.x.view(), data.projection());
                    params
                        .fit(
                            x.into(),
                            projection,
                            None,
                            &data.y,
                            None,
                            None,
                            &Watch::new(),
                        )
                        .expect("sound data")
                });
            });
        }
    }
}

fn score(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("link/topk");
    for data in shapes() {
        for (name, kernel) in [("gaussian", Kernel::Gaussian), ("linear", Kernel::Linear)] {
            let params = Params {
                kernel,
                loss: Loss::Squared,
                ..Params::default()
            };
            let params = params.check().expect("in range");
            let (x, watch) = (data.x.view(), Watch::new());
            let model = params
                .fit(
                    x.into(),
                    data.projection(),
                    None,
                    &data.y,
                    None,
                    None,
                    &watch,
                )
                .expect("sound data");
            let scorer = Scorer::new(
                data.projection(),
                &model.frequencies,
                &model.phases,
                &model.weights,
                &model.intercept,
            )
            .expect("of one model");
            group.throughput(Throughput::Elements(x.n_rows() as u64));
            group.bench_function(BenchmarkId::new(name, &data.name), |b| {
                b.iter_with_large_drop(|| scorer.topk(x.into(), 5, &watch).expect("same features"));
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = on_one_thread();
    targets = fit, score
}
criterion_main!(benches);
