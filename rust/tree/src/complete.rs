//! Multiplies rows by the weights of a complete chunk: a matrix that has a weight of each feature for each output.
//!
//! Several rows with all features share the loads of the weights: the outputs are processed in tiles, whose sums stay in
//! registers while all features are added. For a single row, the weights are read in the order of memory, because they
//! often come from there.
//!
//! Each output of a row has one sum, to which the features are added in increasing order. So the results are exactly
//! those of a sparse chunk with the same weights. They depend neither on the tile nor on the other rows.

use manylabel_simd::wide;

/// The number of rows that are multiplied together. Their sums of a tile fill half of the registers of AVX2.
const ROWS: usize = 4;

/// Adds the products of rows and weights to `out`. The rows have a value for each feature. The weights are stored
/// feature after feature, and `widen` converts a weight. `out` has `n_outputs` entries for each row.
#[wide]
pub(crate) fn add_dense<T: Copy, F: Fn(T) -> f32 + Copy>(
    rows: &[&[f32]],
    weights: &[T],
    widen: F,
    n_outputs: usize,
    out: &mut [f32],
) {
    let (groups, rest) = rows.as_chunks::<ROWS>();
    let (of_groups, of_rest) = out.split_at_mut(groups.len() * ROWS * n_outputs);
    // All rows use the weights of a tile while they are in the cache.
    let mut first = 0;
    while first < n_outputs && !groups.is_empty() {
        let tile = (weights, n_outputs, first);
        first += match n_outputs - first {
            rest if rest >= 16 => add_tile::<16, _, _>(groups, tile, widen, of_groups),
            rest if rest >= 4 => add_tile::<4, _, _>(groups, tile, widen, of_groups),
            _ => add_tile::<1, _, _>(groups, tile, widen, of_groups),
        };
    }
    for (row, out) in rest.iter().zip(of_rest.chunks_exact_mut(n_outputs.max(1))) {
        for (&value, weights) in row.iter().zip(weights.chunks_exact(n_outputs)) {
            add_scaled(value, weights, widen, out);
        }
    }
}

/// Adds `value` times the weights of a feature to `out`.
#[inline(always)]
fn add_scaled<T: Copy>(value: f32, weights: &[T], widen: impl Fn(T) -> f32, out: &mut [f32]) {
    for (sum, &weight) in out.iter_mut().zip(weights) {
        *sum += value * widen(weight);
    }
}

/// Adds the products of groups of rows for `W` outputs, and returns `W`.
#[inline(always)]
fn add_tile<const W: usize, T: Copy, F: Fn(T) -> f32 + Copy>(
    groups: &[[&[f32]; ROWS]],
    (weights, n_outputs, first): (&[T], usize, usize),
    widen: F,
    out: &mut [f32],
) -> usize {
    for (rows, out) in groups.iter().zip(out.chunks_exact_mut(ROWS * n_outputs)) {
        let mut sums = [[0.0f32; W]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            sums.copy_from_slice(&out[row * n_outputs + first..][..W]);
        }
        for (feature, weights) in weights.chunks_exact(n_outputs).enumerate() {
            let weights = &weights[first..first + W];
            let weights: [f32; W] = std::array::from_fn(|at| widen(weights[at]));
            for (sums, row) in sums.iter_mut().zip(rows) {
                let value = row[feature];
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum += value * weight;
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            out[row * n_outputs + first..][..W].copy_from_slice(sums);
        }
    }
    W
}

/// Adds the products of a sparse row and weights to `out`, which has an entry for each output. `row` has features and
/// their values. The weights are stored as in [`add_dense`].
#[wide]
pub(crate) fn add_sparse<T: Copy, F: Fn(T) -> f32 + Copy>(
    row: (&[u32], &[f32]),
    weights: &[T],
    widen: F,
    out: &mut [f32],
) {
    for (&col, &value) in row.0.iter().zip(row.1) {
        let weights = &weights[col as usize * out.len()..][..out.len()];
        add_scaled(value, weights, widen, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn products_are_exactly_those_of_one_sum_per_output() {
        let mut rng = Rng::with_seed(3);
        for n_outputs in [1, 3, 4, 15, 16, 37, 64, 100, 149] {
            for (n_rows, n_features) in [(1, 5), (3, 1), (4, 70), (9, 33)] {
                let mut numbers = |n: usize| (0..n).map(|_| rng.f32() - 0.5).collect::<Vec<_>>();
                let (x, weights) = (
                    numbers(n_rows * n_features),
                    numbers(n_features * n_outputs),
                );
                let start = numbers(n_rows * n_outputs);
                let mut expected = start.clone();
                for (row, sums) in x.chunks(n_features).zip(expected.chunks_mut(n_outputs)) {
                    for (value, weights) in row.iter().zip(weights.chunks(n_outputs)) {
                        for (sum, weight) in sums.iter_mut().zip(weights) {
                            *sum += value * weight;
                        }
                    }
                }
                let rows: Vec<&[f32]> = x.chunks(n_features).collect();
                let mut dense = start.clone();
                add_dense(&rows, &weights, |weight| weight, n_outputs, &mut dense);
                // Sparse rows without some of the features, which have the value 0 in dense rows.
                let mut sparse = start.clone();
                let mut with_zeros = x.clone();
                let rows_of = with_zeros.chunks_mut(n_features);
                for (row, sums) in rows_of.zip(sparse.chunks_mut(n_outputs)) {
                    let cols: Vec<u32> = (0..n_features as u32).filter(|_| rng.bool()).collect();
                    let values: Vec<f32> = cols.iter().map(|&col| row[col as usize]).collect();
                    row.fill(0.0);
                    for (&col, &value) in cols.iter().zip(&values) {
                        row[col as usize] = value;
                    }
                    add_sparse((&cols, &values), &weights, |weight| weight, sums);
                }
                let rows: Vec<&[f32]> = with_zeros.chunks(n_features).collect();
                let mut of_zeros = start;
                add_dense(&rows, &weights, |weight| weight, n_outputs, &mut of_zeros);
                let bits = |sums: &[f32]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
                assert_eq!(
                    bits(&dense),
                    bits(&expected),
                    "{n_outputs} {n_rows} {n_features}"
                );
                assert_eq!(
                    bits(&sparse),
                    bits(&of_zeros),
                    "{n_outputs} {n_rows} {n_features}"
                );
            }
        }
    }
}
