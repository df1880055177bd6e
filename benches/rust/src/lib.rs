//! Synthetic data and settings that the benches share.
//!
//! [`Text`] makes sparse data with the uneven frequencies of text, [`Measurements`] dense data. Both depend
//! on their sizes and a seed only. [`briefly`] and [`on_one_thread`] set how long to measure, and on how
//! many threads.
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

use criterion::Criterion;
use fastrand::Rng;
use manylabel_sparse::{CsrOwned, CsrView};
use rayon::ThreadPoolBuilder;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Criterion with short measurements: one second to warm up and three seconds of 30 samples for each bench,
/// without plots.
pub fn briefly() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30)
        .nresamples(10_000)
        .without_plots()
}

/// [`briefly`], with rayon's global pool limited to one thread.
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

/// The shape of the data set bibtex (training rows, and the average number of features of a row).
pub const BIBTEX: Text = Text::new(4_880, 1_836, 69, 159);

/// A CSR matrix with the types that scipy uses.
#[derive(Debug, Clone)]
pub struct Csr {
    /// Row ends, (rows + 1,), starting with 0.
    pub indptr: Vec<i32>,
    /// Columns, row after row; increasing within a row.
    pub indices: Vec<i32>,
    /// Values, row after row.
    pub values: Vec<f32>,
    n_cols: usize,
}

impl Csr {
    /// A matrix without rows.
    fn new(n_cols: usize) -> Self {
        Self {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols,
        }
    }

    /// Appends a row with the given columns, which increase, and a value from `value` for each.
    fn push_row(&mut self, cols: impl IntoIterator<Item = usize>, mut value: impl FnMut() -> f32) {
        for col in cols {
            self.indices.push(col as i32);
            self.values.push(value());
        }
        self.indptr.push(self.indices.len() as i32);
    }

    /// A view, which kernels take.
    ///
    /// # Panics
    ///
    /// Panics if the arrays were changed so that they are not a valid CSR matrix.
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

    /// A copy in the form in which fits take labels.
    ///
    /// # Panics
    ///
    /// Panics under the same conditions as [`view`](Self::view).
    pub fn owned(&self) -> CsrOwned {
        CsrOwned::from_view(self.view(), false).expect("small")
    }
}

/// Sizes of a data set similar to text. `Display` formats them as they appear in the names of benches.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Rows.
    pub n: usize,
    /// Features.
    pub d: usize,
    /// Features of each row that are not zero.
    pub nnz: usize,
    /// Labels. Each row has three of them.
    pub c: usize,
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, d, nnz, c } = self;
        write!(f, "n={n},d={d},nnz={nnz},c={c}")
    }
}

/// Labels of each row.
const LABELS_OF_ROW: usize = 3;

/// Number of features that indicate a label.
const WORDS_OF_LABEL: usize = 20;

impl Text {
    /// The sizes in the order in which they are displayed.
    pub const fn new(n: usize, d: usize, nnz: usize, c: usize) -> Self {
        Self { n, d, nnz, c }
    }

    /// Features (n, d) and labels (n, c).
    ///
    /// The frequencies of both fall like 1/rank. Half of a row's features are drawn from those that indicate
    /// its labels, the others from all. Values are uniform in [0.5, 1.5).
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

    /// Weights (d, c) as a pruned linear model has them: frequent features have weights for more labels. The
    /// first feature has a weight for about every second label, the hundredth for every third.
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

/// Sizes of a data set of measurements, without zeros. `Display` formats them as they appear in the names of
/// benches.
#[derive(Debug, Clone, Copy)]
pub struct Measurements {
    /// Rows.
    pub n: usize,
    /// Features.
    pub d: usize,
    /// Labels.
    pub c: usize,
}

impl fmt::Display for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, d, c } = self;
        write!(f, "n={n},d={d},c={c}")
    }
}

impl Measurements {
    /// Features (n, d), uniform in [0, 1), and labels (n, c).
    ///
    /// A row has a label if the sum of two features, drawn for the label, exceeds a bound. Bounds rise from
    /// label to label: about three rows in four have the first label, and one in ten the last.
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

/// A rank below `n`, counted from 0, with a probability roughly proportional to 1 / (rank + 1).
fn zipf(rng: &mut Rng, n: usize) -> usize {
    (n as f64 + 1.0).powf(rng.f64()) as usize - 1
}

/// `n` distinct draws.
fn distinct(n: usize, mut draw: impl FnMut() -> usize) -> BTreeSet<usize> {
    let mut drawn = BTreeSet::new();
    while drawn.len() < n {
        drawn.insert(draw());
    }
    drawn
}
