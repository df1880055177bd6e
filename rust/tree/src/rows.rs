//! Defines the rows of a training set: sparse, or dense.

use manylabel_base::Error;
use manylabel_sparse::{CsrRef, Sparse, Stored, TableRows};

/// The rows of a training set.
#[derive(Debug)]
pub enum Rows<'a> {
    /// Sparse rows, already scaled.
    Sparse(Stored<'a>),
    /// Dense rows without a column of ones. They are scaled when they are read, and only nodes copy their rows.
    Dense(TableRows<'a>),
}

impl<'x> Rows<'x> {
    /// Copies sparse rows. If `unit` is true, the copy is scaled to unit length.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is not finite as `f32`, and [`Error::TooLarge`] if memory is short.
    pub fn copied(x: Sparse<'_>, unit: bool) -> Result<Self, Error> {
        Ok(Self::Sparse(Stored::Owned(x.to_owned(unit)?)))
    }

    /// Borrows the rows.
    pub(crate) fn view(&self) -> RowsRef<'_, 'x> {
        match self {
            Self::Sparse(x) => RowsRef::Sparse(x.view()),
            Self::Dense(x) => RowsRef::Dense(x),
        }
    }
}

/// Borrowed rows of a training set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowsRef<'a, 'x> {
    Sparse(CsrRef<'a>),
    Dense(&'a TableRows<'x>),
}

impl RowsRef<'_, '_> {
    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_rows(),
            Self::Dense(x) => x.n_rows(),
        }
    }

    /// Returns the number of features.
    pub(crate) fn n_features(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_cols(),
            Self::Dense(x) => x.dim(),
        }
    }
}
