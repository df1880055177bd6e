//! Boosting.

use crate::{Checked, Model};
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};

impl Checked {
    /// A model of one rule that scores nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`].
    #[expect(clippy::too_many_arguments, reason = "data first, then how to see it")]
    pub fn fit<I: Index, T: Value>(
        &self,
        _x: CsrView<'_, I, T>,
        y: &CsrOwned,
        _sample_weight: Option<&[f32]>,
        _held_out: Option<&[bool]>,
        _categorical: &[usize],
        _start: Option<&Model>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        watch.step(self.0.n_rules.min(1))?;
        Ok(Model {
            body_indptr: vec![0, 0],
            body_feature: Vec::new(),
            body_operator: Vec::new(),
            body_threshold: Vec::new(),
            heads: CsrOwned {
                indptr: vec![0, 0],
                indices: Vec::new(),
                values: Vec::new(),
                n_cols: y.n_cols,
            },
            coverage: vec![y.n_rows() as f64],
            validation_loss: Vec::new(),
        })
    }
}
