//! Replaces unknown entries of Y by their predictions.
//!
//! The fit treats an unknown entry as if it had a value, and chooses the value that the fitted model predicts.
//! Such an entry has no residual, and therefore no influence on the model. The predictions are the entries of
//! `XWU⁺`, where `U⁺` is the pseudo-inverse of the label embedding U. It maps embeddings to labels.
//!
//! A prediction depends on the value of its own entry. Its derivative is about `h_i (UU⁺)_jj` for row i and
//! label j, where `h_i` is the leverage of the row. The next value is a Newton step that uses this derivative.
//! Without it, rows with large leverages would need many rounds.
//!
//! Most of the work of a fit does not depend on Y: the copy of X, the Gram matrix, its factorizations and the
//! choice of ridges. The rounds repeat only the rest:
//!
//! 1. The last iteration of the range finder makes the first step, from its regression on an orthonormal basis.
//!    U is computed after this step.
//! 2. The other rounds compute W and make a step. They compute U again only if Y has changed by more than the
//!    tolerance since U was computed. This happens if many entries are unknown.
//!
//! Unknown entries of labels without ones stay 0, because these labels have no part in the model.

use crate::design::{Design, Rows};
use crate::leverage::predictions;
use crate::solve::Problem;
use crate::tall::Tall;
use faer::Accum;
use manylabel_base::{Error, Watch, collected, copied, filled, parts, reserved};
use manylabel_dense::{from_fn, matmul, zeros};
use manylabel_sparse::{ColumnOrder, CsrView, Index, LANES, Real};
use rayon::prelude::*;
use std::mem::replace;

/// Name of the unknown entries in error messages about memory.
const ENTRIES: &str = "number of unknown entries of Y";

/// Largest derivative of a prediction that is used. A larger one would make steps of more than ten times the
/// difference between a prediction and the value of its entry.
const MOST_SLOPE: f64 = 0.9;

/// Singular values of U below this fraction of the largest one count as 0.
const NOISE: f64 = 1e-9;

/// An unknown entry of Y.
struct Place {
    /// Position in the stored values of Y.
    at: usize,
    /// The row.
    row: u32,
    /// The internal column of the label.
    label: u32,
}

/// Makes the [`Design`] of Y from its stored values.
type Rebuild<'a, T> =
    Box<dyn Fn(&[f32], &Rows<T>, &Watch) -> Result<Design<'a, T>, Error> + Send + Sync + 'a>;

/// The labels Y, with values in place of unknown entries.
pub(crate) struct Imputed<'a, T> {
    /// The stored values of Y. Unknown entries have their present values.
    values: Vec<f32>,
    /// The unknown entries of labels that have ones.
    places: Vec<Place>,
    /// The values of `places` from which the label embedding was computed.
    embedded: Vec<f32>,
    rebuild: Rebuild<'a, T>,
}

impl<'a, T: Real> Imputed<'a, T> {
    /// Finds the unknown entries of `y`, which are NaN, and gives them the value 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn new<I: Index>(y: CsrView<'a, I, f32>, center: bool) -> Result<Self, Error> {
        let known = |value: &f32| if value.is_nan() { 0.0 } else { *value };
        let rows = (0..y.n_rows()).flat_map(|row| y.row(row).1);
        let values = collected("number of stored values", rows.map(known))?;
        let order = ColumnOrder::new(y.with_values(&values)?)?;
        let mut column = filled("number of labels", u32::MAX, y.n_cols())?;
        for (place, &label) in (0..).zip(order.columns()) {
            column[label as usize] = place;
        }
        let entries = || {
            let of_row = |row: usize| {
                let (labels, values) = y.row(row);
                let row = row as u32;
                labels.iter().zip(values).map(move |pair| (row, pair))
            };
            let all = (0..y.n_rows()).flat_map(of_row).enumerate();
            let unknown = all.filter(|(_, (_, (_, value)))| value.is_nan());
            unknown.map(|(at, (row, (label, _)))| (at, row, column[label.get()]))
        };
        let has_ones = |&(_, _, label): &(usize, u32, u32)| label != u32::MAX;
        let mut places = reserved(ENTRIES, entries().filter(has_ones).count())?;
        for (at, row, label) in entries().filter(has_ones) {
            places.push(Place { at, row, label });
        }
        let embedded = filled(ENTRIES, 0.0, places.len())?;
        let rebuild = move |values: &[f32], rows: &Rows<T>, watch: &Watch| {
            Design::labels(y.with_values(values)?, &order, rows, center, watch)
        };
        Ok(Self {
            values,
            places,
            embedded,
            rebuild: Box::new(rebuild),
        })
    }

    /// Returns Y with the present values of unknown entries. All results have the same internal columns.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn design(&self, rows: &Rows<T>, watch: &Watch) -> Result<Design<'a, T>, Error> {
        (self.rebuild)(&self.values, rows, watch)
    }

    /// Records that the label embedding was computed from the present values of unknown entries.
    pub(crate) fn note_embedding(&mut self) {
        for (value, place) in self.embedded.iter_mut().zip(&self.places) {
            *value = self.values[place.at];
        }
    }

    /// Returns the norm of the changes of Y since the label embedding was computed, divided by the norm of Y.
    pub(crate) fn change_since_embedding(&self) -> f64 {
        let changes = self.embedded.iter().zip(&self.places);
        let changes =
            changes.map(|(value, place)| f64::from(self.values[place.at] - value).powi(2));
        let squares = self.values.iter().map(|&value| f64::from(value).powi(2));
        let (changes, squares) = (changes.sum::<f64>(), squares.sum::<f64>());
        if changes > 0.0 {
            (changes / squares).sqrt()
        } else {
            0.0
        }
    }

    /// Makes a step from the present values of unknown entries towards their predictions. Returns the root mean
    /// square of the changes, divided by that of the predictions.
    ///
    /// `w` are the regression coefficients of `YU`, and `back` is the transpose of `U⁺`. `leverages` are those
    /// of the regression. If they are not known, the next values are the predictions.
    pub(crate) fn step(
        &mut self,
        problem: &Problem<'_, T>,
        w: &Tall<T>,
        u: &Tall<T>,
        back: &Tall<T>,
        leverages: Option<&[f64]>,
        watch: &Watch,
    ) -> Result<f64, Error> {
        let panels = w.panels.par_iter().enumerate().map(|(panel, w)| {
            let rows = predictions(&problem.rows, &problem.x, w, watch)?;
            let (u, back) = (&u.panels[panel], &back.panels[panel]);
            let mean = problem.y.mean_times(u).unwrap_or_default();
            let of_place = |place: &Place| {
                let (row, label) = (&rows[place.row as usize], place.label as usize);
                let (mut found, mut own) = (0.0, 0.0);
                for lane in 0..LANES {
                    let back = back[label].0[lane].f64();
                    found += (row.0[lane].f64() + mean.0[lane].f64()) * back;
                    own += u[label].0[lane].f64() * back;
                }
                (found, own)
            };
            collected(ENTRIES, self.places.iter().map(of_place))
        });
        let panels = parts(panels)?;
        let (mut changes, mut squares) = (0.0, 0.0);
        for (at, place) in self.places.iter().enumerate() {
            let found: f64 = panels.iter().map(|panel| panel[at].0).sum();
            let own: f64 = panels.iter().map(|panel| panel[at].1).sum();
            let leverage = leverages.map_or(0.0, |leverages| leverages[place.row as usize]);
            let slope = (leverage * own).clamp(0.0, MOST_SLOPE);
            let value = &mut self.values[place.at];
            let change = (found - f64::from(*value)) / (1.0 - slope);
            *value = (f64::from(*value) + change) as f32;
            changes += change * change;
            squares += found * found;
        }
        Ok(if changes > 0.0 {
            (changes / squares).sqrt()
        } else {
            0.0
        })
    }
}

/// Calls `work` with the data in which `unknown` entries have the value 0. Afterwards, they have their present
/// values again.
///
/// # Errors
///
/// Returns any error of `work`. Returns [`Error::TooLarge`] if there is not enough memory. Returns
/// [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn with_zeros<'a, T: Real, R>(
    unknown: Option<&Imputed<'a, T>>,
    problem: &mut Problem<'a, T>,
    work: impl FnOnce(&Problem<'a, T>) -> Result<R, Error>,
    watch: &Watch,
) -> Result<R, Error> {
    let Some(unknown) = unknown else {
        return work(problem);
    };
    let mut values = copied("number of stored values", &unknown.values)?;
    for place in &unknown.places {
        values[place.at] = 0.0;
    }
    let zeros = (unknown.rebuild)(&values, &problem.rows, watch)?;
    let imputed = replace(&mut problem.y, zeros);
    let result = work(problem);
    problem.y = imputed;
    result
}

/// Returns the transpose of the pseudo-inverse of U, `U (UᵀU)⁻¹`.
///
/// # Errors
///
/// Returns [`Error::Param`] if U has entries that are not finite. Returns [`Error::TooLarge`] if there is not
/// enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn inverse<T: Real>(u: &Tall<T>, watch: &Watch) -> Result<Tall<T>, Error> {
    const WHAT: &str = "the matrix of the embedding";
    let spectrum = u.spectrum(watch)?;
    let values = &spectrum.values;
    let least = NOISE * values.first().copied().unwrap_or(0.0);
    let scale = |value: f64| if value > least { value.powi(-2) } else { 0.0 };
    let scaled = |i: usize, j: usize| spectrum.vectors[(i, j)] * scale(values[j]);
    let scaled = from_fn(WHAT, u.n_cols, values.len(), scaled)?;
    let mut small = zeros(WHAT, u.n_cols, u.n_cols)?;
    let right = spectrum.vectors.transpose();
    matmul(&mut small, Accum::Replace, &scaled, right, 1.0);
    u.times(small.as_ref(), watch)
}
