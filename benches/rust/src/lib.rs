//! What the benches share: synthetic data, seeded, of any size, with the uneven frequencies of
//! text; how long to measure, and on how many threads.
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

/// Criterion set so that all benches together take about a minute.
pub fn briefly() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30)
        .nresamples(10_000)
        .without_plots()
}

/// The same, with rayon held to one thread.
///
/// # Panics
///
/// If rayon has threads already.
pub fn on_one_thread() -> Criterion {
    let pool = ThreadPoolBuilder::new().num_threads(1);
    pool.build_global().expect("nobody was before us");
    briefly()
}

/// The shape of yeast.
pub const YEAST: Measurements = Measurements {
    n: 1_500,
    d: 103,
    c: 14,
};

/// The shape of bibtex.
pub const BIBTEX: Text = Text::new(4_880, 1_836, 69, 159);

/// A compressed sparse matrix as scipy has it.
#[derive(Debug, Clone)]
pub struct Csr {
    /// Row ends, from 0.
    pub indptr: Vec<i32>,
    /// Columns, increasing within a row.
    pub indices: Vec<i32>,
    /// Values.
    pub values: Vec<f32>,
    n_cols: usize,
}

impl Csr {
    fn new(n_cols: usize) -> Self {
        Self {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols,
        }
    }

    fn push_row(&mut self, cols: impl IntoIterator<Item = usize>, mut value: impl FnMut() -> f32) {
        for col in cols {
            self.indices.push(col as i32);
            self.values.push(value());
        }
        self.indptr.push(self.indices.len() as i32);
    }

    /// The view every kernel takes.
    ///
    /// # Panics
    ///
    /// If the arrays have been changed to something that is no CSR matrix.
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

    /// A copy of the form in which fits take labels.
    ///
    /// # Panics
    ///
    /// As [`view`](Self::view).
    pub fn owned(&self) -> CsrOwned {
        CsrOwned::from_view(self.view(), false).expect("small")
    }
}

/// Sizes of a text-like data set; `Display` gives them the form they have in names of benches.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Rows.
    pub n: usize,
    /// Features.
    pub d: usize,
    /// Stored features of each row.
    pub nnz: usize,
    /// Labels, of which each row carries three.
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

/// Words that speak for a label.
const WORDS_OF_LABEL: usize = 20;

impl Text {
    /// Sizes in the order in which they are displayed.
    pub const fn new(n: usize, d: usize, nnz: usize, c: usize) -> Self {
        Self { n, d, nnz, c }
    }

    /// Features and labels. Frequencies of both fall like 1/rank; half of a row's words are drawn
    /// from those that speak for its labels.
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

    /// Weights (d, c) as a pruned linear model has them: the more frequent a feature, the more
    /// labels it has weights for; the first for every second, the hundredth for every third.
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

/// Sizes of a data set of measurements, all of them present.
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
    /// Features, uniform in [0, 1), and labels. A label is present where two features of its own
    /// add up to a bound; the bounds go up from label to label, so that the first label holds for
    /// about three rows in four and the last for one in ten.
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

/// A rank below `n`, with a probability of about 1/rank.
fn zipf(rng: &mut Rng, n: usize) -> usize {
    (n as f64 + 1.0).powf(rng.f64()) as usize - 1
}

fn distinct(n: usize, mut draw: impl FnMut() -> usize) -> BTreeSet<usize> {
    let mut drawn = BTreeSet::new();
    while drawn.len() < n {
        drawn.insert(draw());
    }
    drawn
}
