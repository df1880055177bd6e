//! Computes the largest eigenvalue of the correlation matrix of all columns (features and labels).
//! If columns have unit variance, the curvature of the loss of any label is at most a quarter of
//! this eigenvalue.

use super::{Gradient, Partial, Residual, join_partials};
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Tasks, Watch, collected, few};
use rayon::prelude::*;

impl<T: Float, const N: usize> Gradient<T, N> {
    /// Returns an estimate of the largest eigenvalue of the correlation matrix of the features.
    /// With `with_labels`, the matrix also includes the labels. The estimate is never too large.
    ///
    /// Uses four steps of the power method on N random vectors at once, with a fixed seed. The
    /// largest of the N estimates is returned. A step takes as long as the gradient of one panel of
    /// labels that is coupled with all labels.
    pub(crate) fn largest_eigenvalue(
        &self,
        with_labels: bool,
        watch: &Watch,
    ) -> Result<f64, Error> {
        const STEPS: usize = 4;
        let mut rng = fastrand::Rng::with_seed(0);
        let m = if with_labels { self.labels.len() } else { 0 };
        let all = collected("number of labels", 0..m as u32)?;
        let deviations = self.labels.share[..m].iter();
        let deviations = deviations.map(|share| (share * (1.0 - share)).sqrt());
        let deviations = collected("number of labels", deviations)?;
        let (width, height) = (self.design.width(), self.height());
        let mut draw = |n: usize| {
            let drawn = (0..n).map(|_| Wide(std::array::from_fn(|_| T::of(rng.f64() - 0.5))));
            collected("number of weights", drawn)
        };
        let (mut weights, mut couplings) = (draw(height)?, draw(m)?);
        let partials: Result<Vec<Partial<T, N>>, Error> =
            few(self.pieces.iter().map(|_| Partial::new(height, m)));
        let mut partials = partials?;
        let mut largest = 0.0f64;
        for _ in 0..STEPS {
            weights[width] = Wide::zero();
            let mut norms = [0.0; N];
            for vector in weights.iter().chain(&couplings) {
                for lane in 0..N {
                    norms[lane] += vector.0[lane].f64().powi(2);
                }
            }
            let norms = norms.map(|norm| norm.sqrt().max(f64::MIN_POSITIVE));
            for vector in weights.iter_mut().chain(&mut couplings) {
                for lane in 0..N {
                    vector.0[lane] = T::of(vector.0[lane].f64() / norms[lane]);
                }
            }
            for (couplings, deviation) in couplings.iter_mut().zip(&deviations) {
                for value in &mut couplings.0 {
                    *value = T::of(value.f64() / deviation);
                }
            }
            partials.par_iter_mut().zip(&self.pieces).try_each_with(
                || Ok(Vec::new()),
                |scratch, (partial, blocks)| {
                    let blocks = blocks.clone();
                    let linear = Residual::Linear;
                    self.add_up(
                        0, blocks, &weights, &all, &couplings, linear, scratch, partial, watch,
                    )
                },
            )?;
            join_partials(&mut partials);
            let product = &partials[0];
            weights.copy_from_slice(&product.weights);
            for (weights, shift) in weights.iter_mut().zip(&self.design.shift) {
                for lane in 0..N {
                    weights.0[lane] = T::of(weights.0[lane].f64() - shift * product.sum[lane]);
                }
            }
            for (k, couplings) in couplings.iter_mut().enumerate() {
                for lane in 0..N {
                    let centred =
                        product.pairs[k].0[lane].f64() - self.labels.share[k] * product.sum[lane];
                    couplings.0[lane] = T::of(centred / deviations[k]);
                }
            }
            let mut squares = [0.0; N];
            for vector in weights[..width].iter().chain(&couplings) {
                for lane in 0..N {
                    squares[lane] += vector.0[lane].f64().powi(2);
                }
            }
            largest = squares
                .iter()
                .fold(largest, |most, square| most.max(square.sqrt()));
        }
        Ok(largest)
    }
}
