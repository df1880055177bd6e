//! Loads changed arrays of boosted rules. They must be refused, or the model must score a row.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use manylabel_base::Watch;
use manylabel_rules::{Bodies, Ensemble, LabelSets, Predictor, Rules};
use manylabel_score::{Bounds, Model};
use manylabel_sparse::CsrView;

/// The sizes of a valid model, a row to score, and replaced numbers in the arrays of the model.
#[derive(Debug, Arbitrary)]
struct Input {
    /// For each rule: conditions (less than 4) and labels (less than 4).
    rules: Vec<(u8, u8)>,
    n_features: u8,
    n_labels: u8,
    names_sets: bool,
    row: Vec<f32>,
    /// The array, the position and the new number.
    replaced: Vec<(u8, u8, i64)>,
}

/// Returns the ends of pieces of these sizes, starting with 0.
fn ends(sizes: impl Iterator<Item = u8>) -> Vec<i64> {
    let mut ends = vec![0];
    let mut end = 0;
    for size in sizes {
        end += i64::from(size);
        ends.push(end);
    }
    ends
}

fuzz_target!(|input: Input| {
    let (n_features, n_labels) = (input.n_features % 8 + 1, input.n_labels % 8 + 4);
    let mut body_ends = ends(input.rules.iter().map(|rule| rule.0 % 4));
    let mut head_ends = ends(input.rules.iter().map(|rule| rule.1 % 4));
    let n_conditions = body_ends.last().map_or(0, |&end| end as usize);
    let mut feature: Vec<i32> = (0..n_conditions)
        .map(|at| at as i32 % i32::from(n_features))
        .collect();
    let mut operator: Vec<u8> = (0..n_conditions).map(|at| at as u8 % 2).collect();
    let mut threshold: Vec<f32> = (0..n_conditions).map(|at| at as f32 - 2.0).collect();
    let mut labels: Vec<i64> = (input.rules.iter())
        .flat_map(|rule| 0..i64::from(rule.1 % 4))
        .collect();
    let mut heads: Vec<f32> = labels.iter().map(|&label| 0.5 - label as f32).collect();
    for &(array, place, number) in &input.replaced {
        let place = usize::from(place);
        match array % 8 {
            0 => body_ends.get_mut(place).map(|at| *at = number),
            1 => head_ends.get_mut(place).map(|at| *at = number),
            2 => feature.get_mut(place).map(|at| *at = number as i32),
            3 => operator.get_mut(place).map(|at| *at = number as u8),
            4 => threshold.get_mut(place).map(|at| *at = f32::from_bits(number as u32)),
            5 => labels.get_mut(place).map(|at| *at = number),
            6 => heads.get_mut(place).map(|at| *at = f32::from_bits(number as u32)),
            _ => {
                body_ends.truncate(place);
                None
            }
        };
    }
    let n_labels = usize::from(n_labels);
    let Ok(heads) = CsrView::new("heads_", &head_ends, &labels, &heads, n_labels) else {
        return;
    };
    let bodies = Bodies {
        indptr: &body_ends,
        feature: &feature,
        operator: &operator,
        threshold: &threshold,
    };
    let Ok(rules) = Rules::new(bodies, heads, usize::from(n_features)) else {
        return;
    };
    let Ok(sets) = LabelSets::new(heads, n_labels) else {
        return;
    };
    let predictor = if input.names_sets {
        Predictor::KnownSets
    } else {
        Predictor::Above {
            bound: 0.0,
            best: false,
        }
    };
    let Ok(model) = Ensemble::new(rules, sets, predictor) else {
        return;
    };
    let cols: Vec<i32> = (0..i32::from(n_features)).collect();
    let row: Vec<f32> = (input.row.iter().copied().chain(std::iter::repeat(0.0)))
        .map(|value| if value.is_finite() { value } else { 1.0 })
        .take(cols.len())
        .collect();
    let ends = [0, cols.len() as i32];
    let x = CsrView::new("X", &ends, &cols, &row, cols.len()).expect("a dense row");
    let watch = Watch::new();
    let ranked = model.topk(x.into(), 3, &watch).expect("the features of the model");
    assert_eq!(ranked.n_rows(), 1);
    assert!(ranked.indices.iter().all(|&label| (label as usize) < n_labels));
    assert!(ranked.values.iter().all(|score| score.is_finite()));
    // If no label set is known, this is an error.
    let _ = model.above(x.into(), Bounds::One(0.0), &watch);
});
