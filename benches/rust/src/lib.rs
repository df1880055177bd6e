//! Makes the synthetic data and the settings that the benches share.
//!
//! [`Text`] makes sparse data with uneven frequencies, like text. [`Measurements`] makes dense data.
//! The data depend only on their sizes and a seed. [`briefly`] and [`on_one_thread`] set the length of
//! a measurement and the number of threads.
//!
//! ```
//! use manylabel_benches::{Measurements, Text};
//!
//! let text = Text::new(10, 500, 20, 30);
//! let (x, y) = text.examples(0);
//! assert_eq!((x.view().n_rows(), x.view().nnz(), y.view().nnz()), (10, 200, 30));
//! assert_eq!(text.to_string(), "n=10,d=500,nnz=20,c=30");
//!
//! let measured = Measurements { n: 200, d: 10, c: 5 };
//! let (x, y) = measured.examples(0);
//! assert_eq!((x.view().n_rows(), x.view().nnz()), (200, 2000));
//! assert!((300..600).contains(&y.view().nnz()));
//! ```

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use fastrand::Rng;
use manylabel_base::Watch;
use manylabel_score::Model;
use manylabel_sparse::{CsrOwned, CsrView};
use rayon::ThreadPoolBuilder;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Returns Criterion with short measurements and without plots. Each bench has a warm-up of one second,
/// and then 30 samples in three seconds.
pub fn briefly() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30)
        .nresamples(10_000)
        .without_plots()
}

/// Returns the settings of [`briefly`] and limits rayon's global pool to one thread.
///
/// # Panics
///
/// Panics if rayon's global pool was used before.
pub fn on_one_thread() -> Criterion {
    let pool = ThreadPoolBuilder::new().num_threads(1);
    pool.build_global().expect("not used before");
    briefly()
}

/// The shape of the data set yeast (training rows).
pub const YEAST: Measurements = Measurements {
    n: 1_500,
    d: 103,
    c: 14,
};

/// The shape of the data set enron (training rows, and the average number of features of a row).
pub const ENRON: Text = Text::new(1_123, 1_001, 84, 53);

/// The shape of the data set bibtex (training rows, and the average number of features of a row).
pub const BIBTEX: Text = Text::new(4_880, 1_836, 69, 159);

/// A CSR matrix with the types that scipy uses.
#[derive(Debug, Clone)]
pub struct Csr {
    /// The row ends, (rows + 1,), starting with 0.
    pub indptr: Vec<i32>,
    /// The columns, row after row. Columns are increasing within a row.
    pub indices: Vec<i32>,
    /// The values, row after row.
    pub values: Vec<f32>,
    n_cols: usize,
}

impl Csr {
    /// Returns a matrix without rows.
    fn new(n_cols: usize) -> Self {
        Self {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols,
        }
    }

    /// Appends a row with the given columns, which must be increasing. `value` returns the value of
    /// each column.
    fn push_row(&mut self, cols: impl IntoIterator<Item = usize>, mut value: impl FnMut() -> f32) {
        for col in cols {
            self.indices.push(col as i32);
            self.values.push(value());
        }
        self.indptr.push(self.indices.len() as i32);
    }

    /// Returns a view, which kernels take as input.
    ///
    /// # Panics
    ///
    /// Panics if the arrays were changed and are no longer a valid CSR matrix.
    pub fn view(&self) -> CsrView<'_, i32, f32> {
        CsrView::new(
            "bench",
            &self.indptr,
            &self.indices,
            &self.values,
            self.n_cols,
        )
        .expect("a valid matrix")
    }

    /// Returns a copy in the form that fits take for labels.
    ///
    /// # Panics
    ///
    /// Panics under the same conditions as [`view`](Self::view).
    pub fn owned(&self) -> CsrOwned {
        CsrOwned::from_view(self.view(), false).expect("small")
    }
}

/// The sizes of a data set that is similar to text. `Display` formats the sizes as in the names of
/// benches.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// The number of rows.
    pub n: usize,
    /// The number of features.
    pub d: usize,
    /// The number of nonzero features of each row.
    pub nnz: usize,
    /// The number of labels. Each row has three labels.
    pub c: usize,
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, d, nnz, c } = self;
        write!(f, "n={n},d={d},nnz={nnz},c={c}")
    }
}

/// The number of labels of each row.
const LABELS_OF_ROW: usize = 3;

/// The number of features that indicate a label.
const WORDS_OF_LABEL: usize = 20;

impl Text {
    /// Returns a data set with these sizes. The arguments have the same order as in the output of
    /// `Display`.
    pub const fn new(n: usize, d: usize, nnz: usize, c: usize) -> Self {
        Self { n, d, nnz, c }
    }

    /// Returns features (n, d) and labels (n, c).
    ///
    /// The frequencies of features and labels decrease like 1/rank. Half of the features of a row are
    /// drawn from the features that indicate its labels. The other half are drawn from all features.
    /// Values are uniform in [0.5, 1.5).
    pub fn examples(&self, seed: u64) -> (Csr, Csr) {
        let mut rng = Rng::with_seed(seed);
        let words: Vec<usize> = (0..self.c * WORDS_OF_LABEL)
            .map(|_| rng.usize(..self.d))
            .collect();
        let (mut x, mut y) = (Csr::new(self.d), Csr::new(self.c));
        for _ in 0..self.n {
            let labels = distinct(LABELS_OF_ROW, || zipf(&mut rng, self.c));
            let of_row: Vec<usize> = labels.iter().copied().collect();
            let cols = distinct(self.nnz, || {
                if rng.bool() {
                    zipf(&mut rng, self.d)
                } else {
                    let label = of_row[rng.usize(..of_row.len())];
                    words[label * WORDS_OF_LABEL + rng.usize(..WORDS_OF_LABEL)]
                }
            });
            x.push_row(cols, || 0.5 + rng.f32());
            y.push_row(labels, || 1.0);
        }
        (x, y)
    }

    /// Returns weights (d, c) like the weights of a pruned linear model, in which frequent features
    /// have weights for more labels. The first feature has a weight for about every second label, and
    /// the hundredth feature for about every third label.
    pub fn weights(&self, seed: u64) -> Csr {
        let mut rng = Rng::with_seed(seed);
        let mut weights = Csr::new(self.c);
        for feature in 0..self.d {
            let share = 1.0 / (2.0 + feature as f64 / 100.0);
            let labels: Vec<usize> = (0..self.c).filter(|_| rng.f64() < share).collect();
            weights.push_row(labels, || rng.f32() - 0.5);
        }
        weights
    }
}

/// The number of labels that are ranked for each row.
const K: usize = 5;

/// Measures the rankings of all rows of `text`, and then of one row. The rows depend only on `text` and
/// `seed`. The names of the benches consist of `name`, the sizes and `details`.
pub fn measure_rankings(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    details: &str,
    (text, seed): (Text, u64),
    model: &impl Model,
) {
    for n in [text.n, 1] {
        let text = Text { n, ..text };
        let (x, _) = text.examples(seed);
        group.throughput(Throughput::Elements(n as u64));
        let id = BenchmarkId::new(name, format!("{text},{details}k={K}"));
        group.bench_function(id, |b| {
            b.iter_with_large_drop(|| model.topk(x.view().into(), K, &Watch::new()));
        });
    }
}

/// The sizes of a data set of measurements without zeros. `Display` formats the sizes as in the names
/// of benches.
#[derive(Debug, Clone, Copy)]
pub struct Measurements {
    /// The number of rows.
    pub n: usize,
    /// The number of features.
    pub d: usize,
    /// The number of labels.
    pub c: usize,
}

impl fmt::Display for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, d, c } = self;
        write!(f, "n={n},d={d},c={c}")
    }
}

impl Measurements {
    /// Returns features (n, d), uniform in [0, 1), and labels (n, c).
    ///
    /// Two features are drawn for each label. A row has the label if the sum of these two features
    /// exceeds a bound. Bounds increase from label to label: about three rows in four have the first
    /// label, and one in ten has the last.
    pub fn examples(&self, seed: u64) -> (Csr, Csr) {
        let mut rng = Rng::with_seed(seed);
        let of_label: Vec<(usize, usize)> = (0..self.c)
            .map(|_| (rng.usize(..self.d), rng.usize(..self.d)))
            .collect();
        let (mut x, mut y) = (Csr::new(self.d), Csr::new(self.c));
        for _ in 0..self.n {
            x.push_row(0..self.d, || rng.f32());
            let row = &x.values[x.values.len() - self.d..];
            let present = |&label: &usize| {
                let (a, b) = of_label[label];
                row[a] + row[b] > 0.7 + 0.9 * label as f32 / self.c as f32
            };
            y.push_row((0..self.c).filter(present), || 1.0);
        }
        (x, y)
    }
}

/// Draws a rank below `n`, counted from 0, with a probability roughly proportional to 1 / (rank + 1).
fn zipf(rng: &mut Rng, n: usize) -> usize {
    (n as f64 + 1.0).powf(rng.f64()) as usize - 1
}

/// Returns `n` distinct draws.
fn distinct(n: usize, mut draw: impl FnMut() -> usize) -> BTreeSet<usize> {
    let mut drawn = BTreeSet::new();
    while drawn.len() < n {
        drawn.insert(draw());
    }
    drawn
}
