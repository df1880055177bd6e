//! Features as they come.

use manylabel_sparse::CsrView;

/// Rows of features of any type that the library takes.
#[derive(Debug, Clone, Copy)]
pub enum Features<'a> {
    /// Sparse, positions of 32 bits, single precision.
    I32F32(CsrView<'a, i32, f32>),
    /// Sparse, positions of 64 bits, single precision.
    I64F32(CsrView<'a, i64, f32>),
    /// Sparse, positions of 32 bits, double precision.
    I32F64(CsrView<'a, i32, f64>),
    /// Sparse, positions of 64 bits, double precision.
    I64F64(CsrView<'a, i64, f64>),
}

/// Evaluates `$body` with `$x` bound to the matrix in `$features`, whatever its types.
#[macro_export]
macro_rules! with_features {
    ($features:expr, |$x:ident| $body:expr) => {
        match $features {
            $crate::Features::I32F32($x) => $body,
            $crate::Features::I64F32($x) => $body,
            $crate::Features::I32F64($x) => $body,
            $crate::Features::I64F64($x) => $body,
        }
    };
}

impl Features<'_> {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        with_features!(self, |x| x.n_rows())
    }

    /// Number of features.
    pub fn n_cols(&self) -> usize {
        with_features!(self, |x| x.n_cols())
    }
}

macro_rules! from {
    ($($variant:ident($index:ty, $value:ty)),*) => {$(
        impl<'a> From<CsrView<'a, $index, $value>> for Features<'a> {
            fn from(x: CsrView<'a, $index, $value>) -> Self {
                Self::$variant(x)
            }
        }
    )*};
}
from!(
    I32F32(i32, f32),
    I64F32(i64, f32),
    I32F64(i32, f64),
    I64F64(i64, f64)
);
