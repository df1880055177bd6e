//! Adds labels to a fitted model.
//!
//! A new label joins one leaf in each tree, and only its own classifier is fitted. The trees, the classifiers of
//! their nodes and the weights of the old labels keep their bits. So old labels keep their scores.
//!
//! Predictions find a label only in rows that reach its leaf. So the rows of the label choose the leaf: they are
//! sent down the trees like rows of a prediction, and each row divides one vote among the leaves that it reaches,
//! in proportion to the probabilities of these leaves. The leaf with the most votes gets the label. The label
//! vector would be a worse guide: it is not a row, and its length and its number of features differ from those of
//! the rows to which the classifiers of the nodes were fitted. Sums of probabilities would be worse too, because
//! a few rows with large probabilities would outvote all others.
//!
//! The classifier of a label is fitted to the rows that a fit would send to its leaf and to the rows of the
//! label. So it does not depend on the other new labels. Labels whose rows all reach the leaf have the same
//! training rows, and are fitted together. Any other label is fitted alone.

use crate::arrays::{Arrays, range};
use crate::fit::{Beams, NODES_PER_THREAD, Reach, checked, count_labels, outputs};
use crate::held::{rows_of_nodes, textbook};
use crate::model::{ChunkOwned, Model};
use crate::node::{Desk, Examples, Relay, effort};
use crate::params::{Checked, Precision};
use crate::weights::WeightsOwned;
use manylabel_base::range::{same, same_rows};
use manylabel_base::{
    Error, Spare, Watch, collected, copied, extend, filled, parts, push, reserved,
};
use manylabel_linear::dismec::{Factors, Outputs, Targets};
use manylabel_sparse::{CsrOwned, Rows};
use rayon::prelude::*;
use std::sync::atomic::AtomicUsize;

/// The name of the new labels in error messages.
const LABELS: &str = "number of new labels";

/// The name of the weights in error messages.
const WEIGHTS: &str = "number of weights";

/// The largest number of labels. Labels are stored in 32 bits with a sign.
const MOST_LABELS: usize = i32::MAX as usize;

/// A new label and the leaf that it joins in one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The leaf.
    leaf: u32,
    /// The label, as a column of Y.
    label: u32,
}

/// New labels of the same leaf that are fitted to the same rows.
#[derive(Debug)]
struct Task<'a> {
    /// All new labels of the leaf.
    places: &'a [Place],
    /// The labels to fit, as positions in `places`.
    fitted: Vec<u32>,
}

/// The fitted classifier of a new label in one leaf.
#[derive(Debug)]
struct Joined {
    /// The position of the label among all new labels of the leaf.
    at: u32,
    /// The features that have a weight, in increasing order.
    features: Vec<u32>,
    /// The weight of each feature in `features`.
    weights: Vec<f32>,
    /// The scale of the weights, if they are 8-bit integers.
    scale: f32,
    /// The intercept.
    intercept: f32,
    /// The number of steps of the solver.
    n_iter: u32,
}

impl Checked {
    /// Returns a copy of a fitted model that has more labels. Column j of `y` becomes label `n_labels + j`, where
    /// `n_labels` is the number of labels of `model`. Unknown pairs and factors have the same
    /// meaning as in [`fit`](Self::fit).
    ///
    /// Labels without rows join no leaf. Any other label joins one leaf in each tree and becomes its last output.
    /// Its weights are stored in the same type as the weights of `model`. The returned model differs from `model`
    /// only in the new labels. Its fields `n_unfinished` and `n_iter` count only the new classifiers, and it has no
    /// threshold.
    ///
    /// Of the parameters, `linear`, `beam`, `combine` and `max_leaf` are used. `max_leaf` is the largest number of
    /// labels of a leaf, including its old labels. If the best leaf for a label is full, the label joins the next
    /// best leaf. `weights`, if given, has a factor for the loss of each row. All factors must be > 0. `watch`
    /// counts labels. With T trees, a label that was fitted in one leaf counts as 1/T. The work runs on all
    /// threads of the pool.
    ///
    /// The rows are sent down the trees twice: as in a prediction, to choose the leaves, and as in a fit, to choose the
    /// negative rows. A classifier takes as much time as in a fit, except that a label with rows outside of its leaf is
    /// not fitted together with others. The memory is up to 72 bytes for each row and tree, times `beam`, the rows and
    /// new weights of up to four leaves for each thread, and the returned model.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Arrays::check`]. Returns [`Error::Shape`] if `x` does not have the number of
    /// features of the model, or if `x`, `y` and `weights` have different numbers of rows. Returns
    /// [`Error::Param`] if all leaves that the rows of a label reach are full, if a value is not finite as
    /// `f32`, if a weight is too large for the 16-bit floats of `model`, or if `C`, `weights` and `x` are so large
    /// or small that results leave the range of `f32`. Returns [`Error::TooLarge`] if memory is short, or if a size
    /// does not fit in 32 bits. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn add_labels<'a>(
        &self,
        model: &Arrays<'_>,
        x: &Rows<'_>,
        y: impl Into<Targets<'a>>,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        model.check()?;
        let x = x.view();
        same("columns of X", model.n_features, x.n_features())?;
        let y = checked(y.into())?;
        same_rows(x.n_rows(), y.labels.ones.n_rows(), weights, None)?;
        let n_labels = model.n_labels.saturating_add(y.labels.ones.n_cols);
        if n_labels > MOST_LABELS {
            return Err(Error::TooLarge {
                what: "number of old and new labels",
                got: format!("{n_labels}; at most {MOST_LABELS} are supported"),
            });
        }
        let params = &self.0;
        let linear = params.linear.clone().check()?;
        let outputs = outputs(y.labels, y.factors)?;
        let rows_of_label = &outputs.rows_of_label;
        let leaves_of_rows = |reach| {
            let mut beams = Beams::at_roots(x.n_rows(), model.n_trees())?;
            while beams.has_inner(model) {
                beams = beams.step(x, model, reach, watch)?;
            }
            Ok(beams)
        };
        let beams = leaves_of_rows(Reach::Beam(params.beam))?;
        let places = places(
            model,
            rows_of_label,
            weights,
            &beams,
            params.max_leaf,
            watch,
        )?;
        drop(beams);
        let beams = leaves_of_rows(Reach::Negatives(params.beam))?;
        let routed = routed(model, &places, &beams)?;
        drop(beams);
        let mut joined = fit_all(
            model,
            &places,
            &routed,
            &outputs,
            Examples {
                x,
                weights,
                linear: &linear,
                effort: effort(model.n_trees(), params.measurements),
            },
            watch,
        )?;
        for joined in &mut joined {
            joined.round(model.weights.precision())?;
        }
        let mut grown = grown(model, n_labels, &places, &joined, watch)?;
        grown.combine = params.combine.unwrap_or_else(textbook);
        let unfinished = |joined: &&Joined| joined.n_iter as usize >= params.linear.max_iter;
        grown.n_unfinished = joined.iter().filter(unfinished).count();
        grown.n_iter = joined.iter().map(|joined| joined.n_iter).max().unwrap_or(0);
        Ok(grown)
    }
}

/// Chooses a leaf in each tree for each label that has rows. Labels are placed one after the other, so a label
/// does not depend on later labels. The result is sorted by leaf and label.
///
/// # Errors
///
/// Returns [`Error::Param`] if all leaves that the rows of a label reach have `max_leaf` labels. Returns
/// [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
fn places(
    model: &Arrays<'_>,
    rows_of_label: &CsrOwned,
    weights: Option<&[f32]>,
    beams: &Beams,
    max_leaf: usize,
    watch: &Watch,
) -> Result<Vec<Place>, Error> {
    let sizes = (0..model.n_nodes()).map(|node| model.labels(node).len());
    let mut sizes = collected("number of nodes", sizes)?;
    let mut votes = filled("number of nodes", 0.0, model.n_nodes())?;
    let mut reached: Vec<(u32, u32)> = Vec::new();
    let mut places = Vec::new();
    for label in 0..rows_of_label.n_rows() {
        watch.step(0)?;
        reached.clear();
        for &row in rows_of_label.row(label).0 {
            let weight = weights.map_or(1.0, |weights| f64::from(weights[row as usize]));
            let of_row = beams.row(row as usize);
            for of_tree in of_row.chunk_by(|a, b| a.slot == b.slot) {
                let highest = of_tree.iter().map(|visit| visit.score);
                let highest = f64::from(highest.fold(f32::NEG_INFINITY, f32::max));
                let share = |score: f32| manylabel_simd::exp(f64::from(score) - highest);
                let total: f64 = of_tree.iter().map(|visit| share(visit.score)).sum();
                for visit in of_tree {
                    if votes[visit.node as usize] == 0.0 {
                        push(LABELS, &mut reached, (visit.slot, visit.node))?;
                    }
                    votes[visit.node as usize] += weight * share(visit.score) / total;
                }
            }
        }
        // Of leaves with equally many votes, the one with the lower number is better.
        let votes_of = |node: u32| votes[node as usize];
        reached.sort_unstable_by(|a, b| {
            let by_votes = votes_of(b.1).total_cmp(&votes_of(a.1));
            a.0.cmp(&b.0).then(by_votes).then(a.1.cmp(&b.1))
        });
        for of_tree in reached.chunk_by(|a, b| a.0 == b.0) {
            let free = of_tree.iter().find(|of| sizes[of.1 as usize] < max_leaf);
            let Some(&(_, leaf)) = free else {
                return Err(Error::Param {
                    name: "Y_new",
                    expected: "a matrix in which the rows of each label reach a leaf that is not full",
                    got: format!(
                        "column {label}, whose rows reach only full leaves of a tree \
                         ({max_leaf} labels or more)"
                    ),
                });
            };
            sizes[leaf as usize] += 1;
            let label = label as u32;
            push(LABELS, &mut places, Place { leaf, label })?;
        }
        for &(_, node) in &reached {
            votes[node as usize] = 0.0;
        }
    }
    places.sort_unstable();
    Ok(places)
}

/// Returns the rows that reach each leaf with new labels, in increasing order. The shape is (nodes, rows).
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn routed(model: &Arrays<'_>, places: &[Place], beams: &Beams) -> Result<CsrOwned, Error> {
    let mut has_new = filled("number of nodes", false, model.n_nodes())?;
    for place in places {
        has_new[place.leaf as usize] = true;
    }
    let pairs = beams.pairs().filter(|&(_, node)| has_new[node as usize]);
    rows_of_nodes(pairs, &(0..model.n_nodes()), beams.n_rows())
}

/// Fits the classifiers of all new labels, in the order of `places`. `routed` has the rows that reach each leaf.
///
/// # Errors
///
/// Returns the errors of [`Desk::solve`].
fn fit_all(
    model: &Arrays<'_>,
    places: &[Place],
    routed: &CsrOwned,
    labels: &Outputs,
    examples: Examples<'_, '_>,
    watch: &Watch,
) -> Result<Vec<Joined>, Error> {
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for places in places.chunk_by(|a, b| a.leaf == b.leaf) {
        let routed = routed.row(places[0].leaf as usize).0;
        let mut together = Vec::new();
        for (at, place) in (0..).zip(places) {
            let mut rows = labels.rows_of_label.row(place.label as usize).0.iter();
            if rows.all(|row| routed.binary_search(row).is_ok()) {
                push(LABELS, &mut together, at)?;
            } else {
                let fitted = filled(LABELS, at, 1)?;
                push(LABELS, &mut tasks, Task { places, fitted })?;
            }
        }
        if !together.is_empty() {
            let fitted = together;
            push(LABELS, &mut tasks, Task { places, fitted })?;
        }
    }
    let spare = Spare::default();
    let aside = watch.aside();
    let n_done = AtomicUsize::new(0);
    let fit = |task: &Task<'_>| {
        spare.with(
            || Desk::new(examples.x),
            |desk| {
                let leaf = task.places[0].leaf as usize;
                let n_old = model.labels(leaf).len();
                let routed = routed.row(leaf).0;
                let joined = task.fit(n_old, routed, labels, &examples, desk, &aside)?;
                count_labels(&n_done, joined.len(), model.n_trees(), watch)?;
                Ok(joined)
            },
        )
    };
    // A thread that waits for labels of its task may begin another task. Batches limit the tasks in progress.
    let at_once = NODES_PER_THREAD * rayon::current_num_threads();
    let mut all = reserved(LABELS, places.len())?;
    for batch in tasks.chunks(at_once) {
        let fitted = parts(batch.par_iter().map(fit))?;
        for (task, joined) in batch.iter().zip(fitted) {
            let leaf = task.places[0].leaf;
            let of_leaf = joined.into_iter().map(|joined| (leaf, joined));
            extend(LABELS, &mut all, of_leaf)?;
        }
    }
    all.sort_unstable_by_key(|(leaf, joined)| (*leaf, joined.at));
    collected(LABELS, all.into_iter().map(|(_, joined)| joined))
}

impl Joined {
    /// Rounds the weights to numbers that can be stored, and removes those that become 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a weight is too large for a 16-bit float.
    fn round(&mut self, precision: Precision) -> Result<(), Error> {
        self.scale = precision.round(&mut self.weights)?;
        let mut weights = self.weights.iter();
        self.features
            .retain(|_| weights.next().is_some_and(|&weight| weight != 0.0));
        self.weights.retain(|&weight| weight != 0.0);
        Ok(())
    }
}

impl Task<'_> {
    /// Fits the labels of the task to their own rows and to the rows in `routed`. `n_old` is the number of old
    /// labels of the leaf.
    ///
    /// The seed of a label depends on its position in the block. So the block has an empty output for each other
    /// label of the leaf, and a label has its final position. It then has the same seed as in a fit.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Desk::solve`].
    fn fit(
        &self,
        n_old: usize,
        routed: &[u32],
        labels: &Outputs,
        examples: &Examples<'_, '_>,
        desk: &mut Desk,
        watch: &Watch,
    ) -> Result<Vec<Joined>, Error> {
        let unknown = labels.unknown.as_ref();
        let unknown = unknown.map(|unknown| self.rows_of_outputs(n_old, unknown));
        let factors = match labels.factors.as_deref() {
            None => None,
            Some(factors) => {
                let old = std::iter::repeat_n(Factors::default(), n_old);
                let new = self.places.iter().map(|at| factors[at.label as usize]);
                Some(collected(LABELS, old.chain(new))?)
            }
        };
        let outputs = Outputs {
            rows_of_label: self.rows_of_outputs(n_old, &labels.rows_of_label)?,
            unknown: unknown.transpose()?,
            factors,
        };
        let solution = desk.solve(examples, outputs, routed, None, &Relay::default(), watch)?;
        let mut joined = reserved(LABELS, self.fitted.len())?;
        for &at in &self.fitted {
            let output = n_old + at as usize;
            let (columns, weights) = solution.weights.row(output);
            let features = columns
                .iter()
                .map(|&column| desk.features()[column as usize]);
            joined.push(Joined {
                at,
                features: collected(WEIGHTS, features)?,
                weights: copied(WEIGHTS, weights)?,
                scale: 1.0,
                intercept: solution.intercept[output],
                n_iter: solution.n_iter[output],
            });
        }
        Ok(joined)
    }

    /// Returns the rows of the labels of the task. The `n_old` old labels of the leaf come first, and have no
    /// rows. All other new labels of the leaf have no rows either.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn rows_of_outputs(&self, n_old: usize, rows_of_label: &CsrOwned) -> Result<CsrOwned, Error> {
        let mut indptr = filled(LABELS, 0, n_old + 1)?;
        let mut rows = Vec::new();
        let mut fitted = self.fitted.iter().peekable();
        for (at, place) in (0..).zip(self.places) {
            if fitted.next_if_eq(&&at).is_some() {
                let of_label = rows_of_label.row(place.label as usize).0;
                extend(
                    "number of rows of a node",
                    &mut rows,
                    of_label.iter().copied(),
                )?;
            }
            push(LABELS, &mut indptr, rows.len())?;
        }
        Ok(CsrOwned {
            indptr,
            values: filled("number of rows of a node", 1.0, rows.len())?,
            indices: rows,
            n_cols: rows_of_label.n_cols,
        })
    }
}

/// Returns a copy of the model with the new labels. `joined` has the classifier of each entry of `places`, which is
/// sorted by leaf. Its weights have been rounded like those of the model.
///
/// 16-bit floats and 8-bit integers are exact as `f32`. So the weights are copied as `f32`, and then converted back.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
fn grown(
    model: &Arrays<'_>,
    n_labels: usize,
    places: &[Place],
    joined: &[Joined],
    watch: &Watch,
) -> Result<Model, Error> {
    let n_new: usize = joined.iter().map(|joined| joined.weights.len()).sum();
    let n_nodes = model.n_nodes();
    let with_zero = |of_node: usize| -> Result<Vec<i64>, Error> {
        let mut ends = reserved("number of nodes", of_node + 1)?;
        ends.push(0);
        Ok(ends)
    };
    let mut grown = Model {
        n_features: model.n_features,
        n_labels,
        children: copied("number of nodes", model.children)?,
        label_ends: with_zero(n_nodes)?,
        labels: reserved(LABELS, model.labels.len() + places.len())?,
        node_intercept: copied("number of nodes", model.node_intercept)?,
        label_intercept: reserved(LABELS, model.labels.len() + places.len())?,
        bucket_ends: with_zero(n_nodes)?,
        buckets: reserved(WEIGHTS, model.buckets.len())?,
        feature_ends: with_zero(n_nodes)?,
        features: reserved(WEIGHTS, model.features.len() + n_new)?,
        row_ends: reserved(WEIGHTS, model.features.len() + n_new)?,
        weight_ends: with_zero(n_nodes)?,
        outputs: reserved(WEIGHTS, model.weights.len() + n_new)?,
        weights: WeightsOwned::Float32(reserved(WEIGHTS, model.weights.len() + n_new)?),
        node_scale: copied("number of nodes", model.node_scale)?,
        label_scale: Vec::new(),
        link: model.link,
        combine: textbook(),
        cut: None,
        n_unfinished: 0,
        n_iter: 0,
    };
    let mut rest = 0;
    for node in 0..n_nodes {
        watch.step(0)?;
        let of_node = places[rest..].partition_point(|place| place.leaf as usize <= node);
        let new = rest..rest + of_node;
        rest = new.end;
        let old = model.labels(node);
        let labels = model.labels[old.clone()].iter().copied();
        extend(LABELS, &mut grown.labels, labels)?;
        let labels = places[new.clone()]
            .iter()
            .map(|place| (model.n_labels + place.label as usize) as i32);
        extend(LABELS, &mut grown.labels, labels)?;
        push(
            "number of nodes",
            &mut grown.label_ends,
            grown.labels.len() as i64,
        )?;
        if let Some(scale) = model.label_scales(old.clone()) {
            extend(LABELS, &mut grown.label_scale, scale.iter().copied())?;
            let scales = joined[new.clone()].iter().map(|joined| joined.scale);
            extend(LABELS, &mut grown.label_scale, scales)?;
        }
        let intercepts = model.label_intercept[old].iter().copied();
        extend(LABELS, &mut grown.label_intercept, intercepts)?;
        let intercepts = joined[new.clone()].iter().map(|joined| joined.intercept);
        extend(LABELS, &mut grown.label_intercept, intercepts)?;
        if new.is_empty() {
            grown.append(ChunkOwned::copied(model, node)?)?;
        } else {
            grown.append(widened(model, node, &joined[new])?)?;
        }
    }
    grown.pack(model.weights.precision())?;
    Ok(grown)
}

/// Returns the chunk of a leaf with the weights of new labels, which follow the old labels of the leaf. The weights
/// of the old labels do not change.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short, or if there are 2³² weights or more.
fn widened(model: &Arrays<'_>, leaf: usize, joined: &[Joined]) -> Result<ChunkOwned, Error> {
    let old_features = range(model.feature_ends, leaf);
    let old_weights = range(model.weight_ends, leaf);
    let outputs = &model.outputs[old_weights.clone()];
    let weights = model.weights.slice(old_weights).unscaled()?;
    let mut by_feature = CsrOwned {
        indptr: reserved(WEIGHTS, old_features.len() + 1)?,
        indices: reserved(WEIGHTS, weights.len())?,
        values: reserved(WEIGHTS, weights.len())?,
        n_cols: model.labels(leaf).len(),
    };
    by_feature.indptr.push(0);
    let mut begin = 0;
    for &end in &model.row_ends[old_features.clone()] {
        for at in begin..end as usize {
            // A complete chunk has zeros, which must not count as weights.
            if weights[at] != 0.0 {
                by_feature.indices.push(u32::from(outputs[at]));
                by_feature.values.push(weights[at]);
            }
        }
        begin = end as usize;
        by_feature.indptr.push(by_feature.indices.len());
    }
    let old_features = &model.features[old_features];
    let mut features = copied(WEIGHTS, old_features)?;
    for joined in joined {
        extend(WEIGHTS, &mut features, joined.features.iter().copied())?;
    }
    features.sort_unstable();
    features.dedup();
    let column = |feature: u32| features.partition_point(|&other| other < feature) as u32;
    let mut by_output = by_feature.transpose()?;
    for at in &mut by_output.indices {
        *at = column(old_features[*at as usize]);
    }
    for joined in joined {
        let columns = joined.features.iter().map(|&feature| column(feature));
        extend(WEIGHTS, &mut by_output.indices, columns)?;
        extend(
            WEIGHTS,
            &mut by_output.values,
            joined.weights.iter().copied(),
        )?;
        push(LABELS, &mut by_output.indptr, by_output.indices.len())?;
    }
    by_output.n_cols = features.len();
    ChunkOwned::new(&by_output, &features, model.n_features)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Combine, Params};
    use manylabel_sparse::CsrView;

    /// Parameters of trees with two leaves of two labels.
    fn params(max_leaf: usize) -> Params {
        Params {
            max_leaf,
            branching: 2,
            beam: 1,
            combine: Some(Combine::Product { path_weight: 1.0 }),
            ..Params::default()
        }
    }

    /// Fits a tree to four rows, four features and four labels. Row j has feature j and label j. Then adds labels
    /// with the given rows.
    fn grown(max_leaf: usize, rows_of_labels: &[&[u32]]) -> Result<(Model, Model), Error> {
        let eye = CsrView::new("X", &[0i32, 1, 2, 3, 4], &[0, 1, 2, 3], &[1.0f32; 4], 4)?;
        let labels = CsrOwned::from_view(eye, false)?;
        let model = params(2).check()?.fit(
            Rows::copied(eye.into(), true)?,
            &labels,
            None,
            None,
            &Watch::new(),
        )?;
        let by_label = CsrOwned {
            indptr: std::iter::once(0)
                .chain(rows_of_labels.iter().scan(0, |end, rows| {
                    *end += rows.len();
                    Some(*end)
                }))
                .collect(),
            indices: rows_of_labels.concat(),
            values: vec![1.0; rows_of_labels.iter().map(|rows| rows.len()).sum()],
            n_cols: 4,
        };
        let y = by_label.transpose()?;
        let rows = Rows::copied(eye.into(), true)?;
        let watch = Watch::new();
        let grown =
            params(max_leaf)
                .check()?
                .add_labels(&model.arrays(), &rows, &y, None, &watch)?;
        let n_seen = rows_of_labels.iter().filter(|rows| !rows.is_empty());
        assert_eq!(watch.done(), n_seen.count());
        Ok((model, grown))
    }

    /// Returns the labels of a leaf.
    fn labels(model: &Model, leaf: usize) -> &[i32] {
        &model.labels[model.arrays().labels(leaf)]
    }

    #[test]
    fn labels_join_the_leaf_of_their_rows() {
        let (old, new) = grown(100, &[&[0], &[], &[1], &[0]]).expect("valid");
        new.arrays().check().expect("valid");
        assert_eq!(new.n_labels, 8);
        for leaf in [1, 2] {
            let of_old = labels(&old, leaf);
            let row_of_new = [(0, 4), (1, 6), (0, 7)];
            let joined = row_of_new.iter().filter(|(row, _)| of_old.contains(row));
            let mut expected = of_old.to_vec();
            expected.extend(joined.map(|&(_, label)| label));
            assert_eq!(labels(&new, leaf), expected);
        }
        assert_eq!(new.node_intercept, old.node_intercept);
    }

    #[test]
    fn nothing_changes_without_new_labels() {
        let (old, new) = grown(100, &[]).expect("valid");
        assert_eq!(
            (new.arrays().weights, new.arrays().labels),
            (old.arrays().weights, old.arrays().labels)
        );
        assert_eq!(new.buckets, old.buckets);
        assert_eq!(new.label_ends, old.label_ends);
    }

    #[test]
    fn full_leaves_get_no_more_labels() {
        // With a beam of one node, all rows of a label may reach only one leaf.
        let error = grown(3, &[&[0], &[0]]).expect_err("one place for two labels");
        assert_eq!(
            error.to_string(),
            "`Y_new` must be a matrix in which the rows of each label reach a leaf that is not full, got \
             column 1, whose rows reach only full leaves of a tree (3 labels or more)"
        );
        // A label with rows in both leaves joins the other leaf.
        let all: &[u32] = &[0, 1, 2, 3];
        let (_, new) = grown(3, &[all, all]).expect("two places for two labels");
        assert_eq!((labels(&new, 1).len(), labels(&new, 2).len()), (3, 3));
        assert_eq!((labels(&new, 1)[2], labels(&new, 2)[2]), (4, 5));
        grown(3, &[all, all, all]).expect_err("two places for three labels");
    }
}
