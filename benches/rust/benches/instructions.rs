//! Counts the instructions that kernels take on one thread, with callgrind. `make bench-check` compares
//! the counts with recorded counts.
//!
//! Sizes are small, because callgrind is about fifty times slower than the processor. A kernel is a
//! closure over its data. The setup of the kernel makes the data before counting starts, and leaks
//! them, so that no data are dropped while instructions are counted. Each kernel runs once, in its own
//! process.

#![allow(missing_docs)] // the macros of gungraun make modules without docs

use fastrand::Rng;
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use manylabel_base::Watch;
use manylabel_benches::{Csr, Measurements, Text};
use manylabel_correlated as correlated;
use manylabel_datasets::{XcFile, write_xc};
use manylabel_linear::{Scorer, dismec, leml, pdsparse};
use manylabel_link as link;
use manylabel_partition as partition;
use manylabel_pls::{self as pls, Components, Matrix};
use manylabel_rules as rules;
use manylabel_score::{Bounds, Model as _};
use manylabel_sparse::{
    ColumnOrder, CsrOwned, CsrView, DenseView, LANES, Lanes, RowBlocks, Rows, TopK,
};
use manylabel_tree as tree;
use ndarray::ArrayView2;
use rayon::ThreadPoolBuilder;
use std::any::Any;
use std::hint::black_box;
use std::{env, fs, process};

/// A kernel with its data. The result is dropped after counting.
type Kernel = Box<dyn FnOnce() -> Box<dyn Any>>;

fn kernel<O: 'static>(call: impl FnOnce() -> O + 'static) -> Kernel {
    on_this_thread();
    Box::new(move || Box::new(call()))
}

/// Makes rayon work on the calling thread, the only thread whose instructions are counted.
fn on_this_thread() {
    let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    if rayon::current_thread_index().is_none() {
        pool.build_global().expect("setups call this first");
    }
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn watch() -> &'static Watch {
    leaked(Watch::new())
}

/// Returns rows, labels, and labels in the form that most fits take.
fn examples((x, y): (Csr, Csr)) -> (CsrView<'static, i32, f32>, &'static Csr, &'static CsrOwned) {
    on_this_thread();
    let owned = y.owned();
    (leaked(x).view(), leaked(y), leaked(owned))
}

/// Copies rows and scales them to unit length.
fn unit(x: CsrView<'_, i32, f32>) -> Rows<'static> {
    Rows::copied(x.into(), true).expect("small")
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|at| (at % 17) as f32 / 17.0 - 0.5).collect()
}

/// Text data for kernels that pass over the rows once.
const TEXT: Text = Text::new(2_000, 5_000, 80, 500);

/// Text data for label trees.
const TREE: Text = Text::new(500, 2_000, 40, 300);

/// Measurements for kernels that solve a problem.
const FEW: Measurements = Measurements {
    n: 250,
    d: 40,
    c: 12,
};

// --- Sparse matrices -------------------------------------------------------------------------

fn check() -> Kernel {
    let (x, _) = TEXT.examples(0);
    let x = leaked(x);
    kernel(move || CsrView::new("X", &x.indptr, &x.indices, &x.values, TEXT.d).map(|x| x.nnz()))
}

fn normalize() -> Kernel {
    let (x, _, _) = examples(TEXT.examples(0));
    kernel(move || CsrOwned::from_view(x, true))
}

fn transpose() -> Kernel {
    let (x, _, _) = examples(TEXT.examples(0));
    let owned = leaked(CsrOwned::from_view(x, true).expect("small"));
    kernel(move || owned.transpose())
}

fn best(k: usize) -> Kernel {
    let mut rng = Rng::with_seed(0);
    let scores: &[f32] = Vec::leak((0..24_522).map(|_| rng.f32()).collect());
    let best = Box::leak(Box::new(TopK::new(k).expect("small")));
    kernel(move || {
        for _ in 0..20 {
            best.push_row(scores);
            best.drain_by_label().for_each(|kept| {
                black_box(kept);
            });
        }
    })
}

/// Returns the product of a block of rows with a panel of columns, or the product with the transpose.
fn product(transposed: bool) -> Kernel {
    let (x, _, _) = examples(TEXT.examples(0));
    let order = leaked(ColumnOrder::new(x).expect("small"));
    let cuts = leaked(RowBlocks::<f32>::cut(TEXT.n, |_| TEXT.nnz));
    let blocks = RowBlocks::<f32>::new(x, order, false, 1.0, cuts, watch()).expect("not stopped");
    let blocks = leaked(blocks);
    let p = vec![Lanes([0.5f32; LANES]); blocks.n_cols()].leak();
    let g = vec![Lanes([0.0f32; LANES]); blocks.n_cols()].leak();
    let u = vec![Lanes([0.25f32; LANES]); RowBlocks::<f32>::MAX_ROWS].leak();
    kernel(move || {
        for (cut, block) in cuts.iter().zip(blocks.blocks()) {
            if transposed {
                block.add_transposed(&u[..cut.len()], g);
            } else {
                block.times(p, &mut u[..cut.len()]);
            }
        }
    })
}

#[library_benchmark]
#[bench::check(check())]
#[bench::normalize(normalize())]
#[bench::transpose(transpose())]
#[bench::topk_5(best(5))]
#[bench::topk_100(best(100))]
#[bench::product(product(false))]
#[bench::product_transposed(product(true))]
fn sparse(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Linear classifiers ----------------------------------------------------------------------

/// Text data to which linear classifiers and embeddings are fitted.
const TAUGHT: Text = Text::new(200, 600, 30, 40);

/// Text data in which most labels are so rare that the fast solver of `DiSMEC` uses only some of the rows.
const MANY: Text = Text::new(600, 1_500, 20, 150);

fn fit_dismec(solver: dismec::Solver) -> Kernel {
    let (x, _, y) = examples(MANY.examples(0));
    let params = dismec::Params {
        solver,
        ..dismec::Params::default()
    };
    let (params, watch) = (params.check().expect("in range"), watch());
    let params = leaked(params);
    kernel(move || params.fit(x.into(), y, None, watch).expect("sound data"))
}

fn fit_leml() -> Kernel {
    let (x, _, y) = examples(TAUGHT.examples(0));
    let params = leml::Params {
        rank: 10,
        alpha: Some(0.1),
        max_iter: 2,
        ..leml::Params::default()
    };
    let (params, watch) = (leaked(params.check().expect("in range")), watch());
    kernel(move || {
        params
            .fit(x.into(), &manylabel_sparse::Labels::from(y).into(), watch)
            .expect("sound data")
    })
}

fn fit_pdsparse() -> Kernel {
    let (x, _, y) = examples(TAUGHT.examples(0));
    let params = leaked(pdsparse::Params::default().check().expect("defaults"));
    let watch = watch();
    kernel(move || {
        params
            .fit(unit(x), y, None, None, watch)
            .expect("sound data")
    })
}

/// Returns the best five labels of `n` rows, with pruned weights.
fn rank(n: usize) -> Kernel {
    let text = Text { n, ..TEXT };
    let (x, _, _) = examples(text.examples(0));
    let (weights, intercept) = (leaked(text.weights(0)), vec![-0.5; text.c].leak());
    let (ends, labels) = (&weights.indptr, &weights.indices);
    let scorer = Scorer::new(ends, labels, &weights.values, intercept, true);
    let (scorer, watch) = (leaked(scorer.expect("lengths agree")), watch());
    kernel(move || scorer.topk(x.into(), 5, watch).expect("same features"))
}

/// Returns the best five labels of `n` rows, with low-rank factors.
fn rank_low(n: usize) -> Kernel {
    const RANK: usize = 50;
    let text = Text { n, ..TEXT };
    let (x, _, _) = examples(text.examples(0));
    let features = Vec::leak((0..text.d as i32).collect());
    let (w, ht) = (numbers(text.d * RANK).leak(), numbers(text.c * RANK).leak());
    let intercept = vec![-0.5; text.c].leak();
    let scorer = leml::Scorer::new(features, w, ht, intercept, (text.d, RANK), true);
    let (scorer, watch) = (leaked(scorer.expect("lengths agree")), watch());
    kernel(move || scorer.topk(x.into(), 5, watch).expect("same features"))
}

#[library_benchmark]
#[bench::dismec_fit_fast(fit_dismec(dismec::Solver::Fast))]
#[bench::dismec_fit_exact(fit_dismec(dismec::Solver::Exact))]
#[bench::leml_fit(fit_leml())]
#[bench::pdsparse_fit(fit_pdsparse())]
#[bench::topk(rank(500))]
#[bench::topk_one_row(rank(1))]
#[bench::low_rank_topk(rank_low(500))]
#[bench::low_rank_topk_one_row(rank_low(1))]
fn linear(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Rules -----------------------------------------------------------------------------------

fn of_rules(n_rules: usize) -> rules::Params {
    rules::Params {
        n_rules,
        max_features: 6,
        ..rules::Params::default()
    }
}

fn fit_rules(params: rules::Params, data: (Csr, Csr)) -> Kernel {
    let (x, _, y) = examples(data);
    let (params, watch) = (leaked(params.check().expect("in range")), watch());
    kernel(move || {
        params
            .fit(x.into(), y, None, None, &[], None, watch)
            .expect("sound data")
    })
}

fn exact_rules(n_rules: usize) -> rules::Params {
    rules::Params {
        search: rules::Search::Exact,
        binning: None,
        step: rules::Step::Safeguarded,
        ..of_rules(n_rules)
    }
}

/// Predicts scores. With `sets`, predicts label sets that occur in training rows.
fn predict_rules(sets: bool) -> Kernel {
    let (x, y, owned) = examples(FEW.examples(0));
    let (params, watch) = (of_rules(50).check().expect("in range"), watch());
    let model = params.fit(x.into(), owned, None, None, &[], None, watch);
    let model = leaked(model.expect("sound data"));
    let ends = Vec::leak(model.heads.indptr.iter().map(|&end| end as i32).collect());
    let labels = Vec::leak(model.heads.indices.iter().map(|&l| l as i32).collect());
    let heads = CsrView::new("heads_", ends, labels, &model.heads.values, FEW.c);
    let rules = rules::Rules::new(model.bodies(), heads.expect("sorted"), FEW.d);
    let known = rules::LabelSets::new(y.view(), FEW.c).expect("few labels");
    let predictor = rules::Predictor::KnownSets;
    let ensemble = rules::Ensemble::new(rules.expect("a model of ours"), known, predictor);
    let ensemble = leaked(ensemble.expect("of one model"));
    if sets {
        let zero = Bounds::One(0.0);
        kernel(move || {
            ensemble
                .above(x.into(), zero, watch)
                .expect("same features")
        })
    } else {
        kernel(move || ensemble.decision(x.into(), watch).expect("same features"))
    }
}

#[library_benchmark]
#[bench::fit_fast(fit_rules(of_rules(10), FEW.examples(0)))]
#[bench::fit_exact(fit_rules(exact_rules(10), FEW.examples(0)))]
#[bench::fit_text(fit_rules(of_rules(10), TAUGHT.examples(0)))]
#[bench::scores(predict_rules(false))]
#[bench::label_sets(predict_rules(true))]
fn boosted_rules(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Label embeddings ------------------------------------------------------------------------

fn components(solver: pls::Solver) -> pls::Checked {
    let params = pls::Params {
        n_components: Components::Count(8),
        solver,
        ..pls::Params::default()
    };
    params.check().expect("in range")
}

fn embed_sparse() -> Kernel {
    let (x, y, _) = examples(TAUGHT.examples(0));
    let (params, watch) = (leaked(components(pls::Solver::Cg)), watch());
    let fit = move || params.fit(Matrix::Sparse(x), y.view(), None, watch);
    kernel(move || fit().expect("sound data"))
}

fn embed_dense() -> Kernel {
    let (n, d) = (TAUGHT.n, 60);
    let (_, y, _) = examples(TAUGHT.examples(0));
    let cells = Vec::leak((0..n * d).map(|at| (at * 37 % 101) as f32).collect());
    let cells = leaked(ArrayView2::from_shape((n, d), &*cells).expect("as many"));
    let x = DenseView::new(cells).expect("in C order");
    let (params, watch) = (leaked(components(pls::Solver::Cholesky)), watch());
    let fit = move || params.fit(Matrix::<i32, f32>::Dense(x), y.view(), None, watch);
    kernel(move || fit().expect("sound data"))
}

fn transform() -> Kernel {
    const K: usize = 20;
    let (x, _, _) = examples(TEXT.examples(0));
    let (coef, intercept) = (vec![0.5f32; TEXT.d * K].leak(), vec![0.0; K].leak());
    let watch = watch();
    kernel(move || pls::project(Matrix::Sparse(x), coef, intercept, watch).expect("same features"))
}

#[library_benchmark]
#[bench::fit_cg(embed_sparse())]
#[bench::fit_cholesky(embed_dense())]
#[bench::transform(transform())]
fn rembrandt(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Smooth link -----------------------------------------------------------------------------

fn projection() -> link::Projection<'static> {
    const K: usize = 6;
    let mut rng = Rng::with_seed(0);
    let values = Vec::leak((0..FEW.d * K).map(|_| rng.f64() - 0.5).collect());
    link::Projection::new(values, vec![0.0; K].leak(), FEW.d).expect("whole rows")
}

fn fit_link(loss: link::Loss, solver: link::Solver) -> Kernel {
    let (x, _, y) = examples(FEW.examples(0));
    let params = link::Params {
        n_features: 100,
        loss,
        solver,
        ..link::Params::default()
    };
    let (params, watch) = (leaked(params.check().expect("in range")), watch());
    let fit = move || params.fit(x.into(), projection(), None, y, None, None, watch);
    kernel(move || fit().expect("sound data"))
}

fn rank_link(kernel_of: link::Kernel) -> Kernel {
    let (x, _, y) = examples(FEW.examples(0));
    let params = link::Params {
        n_features: 200,
        kernel: kernel_of,
        loss: link::Loss::Squared,
        ..link::Params::default()
    };
    let (params, watch) = (params.check().expect("in range"), watch());
    let model = params.fit(x.into(), projection(), None, y, None, None, watch);
    let model = leaked(model.expect("sound data"));
    let (frequencies, phases) = (&model.frequencies, &model.phases);
    let (weights, intercept) = (&model.weights, &model.intercept);
    let scorer = link::Scorer::new(projection(), frequencies, phases, weights, intercept);
    let scorer = leaked(scorer.expect("of one model"));
    kernel(move || scorer.topk(x.into(), 5, watch).expect("same features"))
}

#[library_benchmark]
#[bench::fit_squared(fit_link(link::Loss::Squared, link::Solver::Psgd))]
#[bench::fit_psgd(fit_link(link::Loss::Logistic, link::Solver::Psgd))]
#[bench::fit_newton_cg(fit_link(link::Loss::Logistic, link::Solver::NewtonCg))]
#[bench::topk_gaussian(rank_link(link::Kernel::Gaussian))]
#[bench::topk_linear(rank_link(link::Kernel::Linear))]
fn smooth_link(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Correlated logistic model ---------------------------------------------------------------

fn fit_correlated(l2_pairs: f64, epsilon: f64) -> Kernel {
    let (x, y, _) = examples(FEW.examples(0));
    let params = correlated::Params {
        l2_pairs,
        epsilon,
        max_iter: 50,
        ..correlated::Params::default()
    };
    let (params, watch) = (leaked(params.check().expect("in range")), watch());
    let fit = move || params.fit(x.into(), y.view().into(), None, None, None, watch);
    kernel(move || fit().expect("sound data"))
}

fn decode(method: correlated::Method) -> Kernel {
    let (x, y, _) = examples(FEW.examples(0));
    let (params, watch) = (correlated::Params::default(), watch());
    let params = params.check().expect("defaults");
    let model = params.fit(x.into(), y.view().into(), None, None, None, watch);
    let model = leaked(model.expect("sound data"));
    let (weights, sets) = (&model.weights, &model.sets);
    let weights = (&weights.ends[..], &weights.cols[..], &weights.values[..]);
    let scorer = correlated::Scorer::new(weights, &model.intercept, &model.couplings, method)
        .and_then(|scorer| scorer.with_sets(&sets.ends, &sets.labels, &sets.energies));
    let scorer = leaked(scorer.expect("of one model"));
    let zero = Bounds::One(0.0);
    kernel(move || scorer.above(x.into(), zero, watch).expect("same features"))
}

#[library_benchmark]
#[bench::fit_independent(fit_correlated(f64::INFINITY, 1.0))]
#[bench::fit_elastic_net(fit_correlated(1e-3, 1.0))]
#[bench::fit_l2(fit_correlated(1e-3, 0.0))]
#[bench::predict_exact(decode(correlated::Method::Exact))]
#[bench::predict_search(decode(correlated::Method::Search))]
#[bench::predict_messages(decode(correlated::Method::Messages))]
fn corrlog(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Blocks ----------------------------------------------------------------------------------

const GROUPED: Text = Text::new(800, 2_000, 40, 200);

const CLUSTERS: partition::KMeans = partition::KMeans {
    until: partition::Until::Clusters(8),
    n_init: 1,
    seed: 0,
};

fn cluster() -> Kernel {
    let (x, _, _) = examples(GROUPED.examples(0));
    let watch = watch();
    kernel(move || CLUSTERS.fit(unit(x), None, watch).expect("small"))
}

fn split() -> Kernel {
    let (x, _, y) = examples(GROUPED.examples(0));
    let params = partition::Params {
        n_blocks: Some(8),
        lam: 0.01,
        ..partition::Params::default()
    };
    let (params, watch) = (leaked(params.check().expect("in range")), watch());
    kernel(move || params.fit(unit(x), y, watch).expect("small"))
}

fn route() -> Kernel {
    let (x, _, _) = examples(GROUPED.examples(0));
    let watch = watch();
    let classes = &leaked(CLUSTERS.fit(unit(x), None, watch).expect("small")).row_clusters;
    let router = partition::Router {
        c: 1.0,
        fit_intercept: true,
        tol: 0.1,
        max_iter: 1000,
        seed: 0,
    };
    kernel(move || router.fit(unit(x), classes, 8, None, watch).expect("small"))
}

#[library_benchmark]
#[bench::kmeans(cluster())]
#[bench::fit(split())]
#[bench::router_fit(route())]
fn blocks(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Label trees -----------------------------------------------------------------------------

/// Returns the parameters of trees with two levels of inner nodes.
fn tree_params(n_trees: usize) -> tree::Params {
    tree::Params {
        n_trees,
        branching: 5,
        max_leaf: 20,
        ..tree::Params::default()
    }
}

fn fit_tree() -> Kernel {
    let (x, _, y) = examples(TREE.examples(0));
    let params = tree_params(1).check().expect("in range");
    kernel(move || params.fit(unit(x), y, None, None, watch()))
}

fn rank_by_trees(n_trees: usize, n_rows: usize) -> Kernel {
    let (x, _, y) = examples(TREE.examples(0));
    let params = tree_params(n_trees);
    let checked = params.clone().check().expect("in range");
    let model = leaked(checked.fit(unit(x), y, None, None, watch()).expect("small"));
    let scorer = leaked(
        tree::Scorer::new(
            model.arrays(),
            params.beam,
            model.combine,
            0.0,
            tree::Scaling::Rows,
        )
        .expect("lengths agree"),
    );
    let (x, _, _) = examples(Text { n: n_rows, ..TREE }.examples(1));
    kernel(move || scorer.topk(x.into(), 5, watch()))
}

#[library_benchmark]
#[bench::fit(fit_tree())]
#[bench::topk(rank_by_trees(1, 500))]
#[bench::topk_one_row(rank_by_trees(1, 1))]
#[bench::topk_three_trees(rank_by_trees(3, 500))]
fn label_tree(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

// --- Files -----------------------------------------------------------------------------------

fn read(ending: &str) -> Kernel {
    let text = Text::new(500, 5_000, 80, 500);
    let (x, _, y) = examples(text.examples(0));
    let watch = watch();
    let path = env::temp_dir().join(format!("manylabel-bench-{}.{ending}", process::id()));
    write_xc(&path, x, y, watch).expect("room for a megabyte");
    kernel(move || {
        // Opening reads the first block, which is the whole file here.
        let file = XcFile::open(&path, watch).expect("just written");
        let read = file.read::<i32, f32>().expect("just written");
        fs::remove_file(&path).expect("just written");
        read
    })
}

#[library_benchmark]
#[bench::read_xc(read("txt"))]
#[bench::read_xc_gzip(read("txt.gz"))]
fn datasets(kernel: Kernel) -> Box<dyn Any> {
    kernel()
}

library_benchmark_group!(
    name = kernels,
    benchmarks = [
        sparse,
        linear,
        boosted_rules,
        rembrandt,
        smooth_link,
        corrlog,
        blocks,
        label_tree,
        datasets
    ]
);

// With this setting, glibc clears and copies memory with vector instructions. Its default on large blocks is
// one instruction with a repeat count, and valgrind counts each repetition as an instruction. Cleared memory
// would then dominate the counts.
const NO_REPEATED_STORES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS");

main!(
    config = LibraryBenchmarkConfig::default()
        .env(NO_REPEATED_STORES.0, NO_REPEATED_STORES.1)
        .tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = kernels
);
