//! Parameters of DiSMEC and their ranges.
use manylabel_base::Error;

/// Parameters as the user gave them.
#[derive(Debug, Clone)]
pub struct Params {
    /// Weight of the loss against the regulariser.
    pub c: f64,
    /// Weights below this are dropped.
    pub prune: f64,
    /// tolerance
    pub tol: f64,
    /// Newton steps.
    pub max_iter: usize,
    /// experimental knobs
    pub knob: Vec<f64>,
}

/// Parameters known to be in range.
#[derive(Debug, Clone)]
pub struct Checked(pub(crate) Params);

impl Params {
    /// Checks.
    ///
    /// # Errors
    ///
    /// Out of range.
    pub fn check(self) -> Result<Checked, Error> {
        Ok(Checked(self))
    }
}
