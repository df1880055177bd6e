//! Minimizes over W while H is fixed, or over H while W is fixed, by Newton's method. Works for any
//! loss and any set of known entries of Y.
//!
//! The scores are `A Hᵀ` with `A = X W`. They are therefore linear in W and in H. The code calls A
//! the *image* of W. The image of H is H itself. Images are stored and are updated together with W
//! and H, so a line search needs no product with X.
//!
//! Let g be the gradient of the objective, and let Q be the Hessian of the loss, both with respect
//! to W or to H. A step s solves `(Q + alpha I) s = −g` by conjugate gradients. Each product with Q
//! takes O(rank) time per stored value of X and per known entry. Then s is halved until the
//! objective decreases enough. A turn takes at most [`MOST_STEPS`] such steps for W and at most
//! [`MOST_STEPS`] for H.

use super::design::Design;
use super::entries::{Ask, Entries, Side};
use super::fit;
use super::params::{Loss, Params};
use super::tall::Tall;
use super::turns::Turns;
use manylabel_base::{Error, Watch, collected, copied, filled};
use manylabel_simd::add_scaled;

/// The largest number of Newton steps for W, and for H, in a turn. For squared loss, one step is
/// enough, because the objective is quadratic in W and in H.
const MOST_STEPS: usize = 5;

/// Newton steps for W (or H) end when the gradient norm is at most this fraction of the first
/// gradient norm. More accuracy would not help, because H (or W) changes next.
const SHARE_OF_GRADIENT: f64 = 0.1;

/// The largest number of times that a step is halved before it is rejected.
const MOST_HALVINGS: usize = 20;

/// A step is accepted if the objective decreases by at least this fraction of the decrease that the
/// gradient predicts (Armijo's rule).
const ARMIJO: f64 = 0.01;

/// A training set that is fitted by Newton's method.
#[derive(Clone, Copy)]
pub(super) struct Newton<'a, 'x> {
    pub(super) params: &'a Params,
    pub(super) x: &'a Design<'x>,
    pub(super) entries: Entries<'a>,
}

/// The weight matrices W and H, and the product `X W`. Each matrix is stored row by row.
#[derive(Debug)]
pub(super) struct Factors {
    /// The weight matrix W, with d features; shape (d, rank).
    w: Vec<f32>,
    /// The product `A = X W`, with n rows; shape (n, rank).
    a: Vec<f32>,
    /// The weight matrix H, with c labels; shape (c, rank).
    h: Vec<f32>,
    rank: usize,
}

impl Newton<'_, '_> {
    /// Updates W by Newton's method while H is fixed. This is the first half of a turn.
    fn improve_w(&self, factors: &mut Factors, alpha: f64, watch: &Watch) -> Result<(), Error> {
        let Factors { w, a, h, rank } = factors;
        let by_row = Half::of_w(self.x, self.entries, h, *rank)?;
        improve(&by_row, self.params, alpha, w, a, watch).map(drop)
    }
}

impl Turns for Newton<'_, '_> {
    type Factors = Factors;

    fn start(&self, rank: usize, _: &Watch) -> Result<Factors, Error> {
        Ok(Factors {
            w: filled("the factor of X", 0.0, self.x.n_cols() * rank)?,
            a: filled("the embedding of the rows", 0.0, self.x.n_rows * rank)?,
            h: fit::start(self.params.seed, self.entries.labels.len(), rank)?,
            rank,
        })
    }

    fn turn(&self, factors: &mut Factors, alpha: f64, watch: &Watch) -> Result<f64, Error> {
        self.improve_w(factors, alpha, watch)?;
        let by_label = Half::of_h(self.entries, &factors.a, factors.rank)?;
        let mut image = copied("the factor of Y", &factors.h)?;
        let h = &mut factors.h;
        let value = improve(&by_label, self.params, alpha, h, &mut image, watch)?;
        Ok(value + alpha / 2.0 * square(&factors.w))
    }

    fn refit_w(&self, factors: &Factors, alpha: f64, watch: &Watch) -> Result<(Tall, Tall), Error> {
        let mut factors = Self::copied(factors)?;
        self.improve_w(&mut factors, alpha, watch)?;
        self.factors(&factors)
    }

    fn copied(factors: &Factors) -> Result<Factors, Error> {
        Ok(Factors {
            w: copied("the factor of X", &factors.w)?,
            a: copied("the embedding of the rows", &factors.a)?,
            h: copied("the factor of Y", &factors.h)?,
            rank: factors.rank,
        })
    }

    fn factors(&self, factors: &Factors) -> Result<(Tall, Tall), Error> {
        let Factors { w, h, rank, .. } = factors;
        Ok((
            Tall::from_rows(w, self.x.n_cols(), *rank)?,
            Tall::from_rows(h, self.entries.labels.len(), *rank)?,
        ))
    }
}

/// The objective as a function of one factor, which is W or H. The *image* of W is `X W`, and the
/// image of H is H itself.
struct Half<'a, 'x> {
    /// X, by which W is multiplied to get its image. None for H, because H is its own image.
    design: Option<&'a Design<'x>>,
    /// The known entries of Y. They are grouped by row if W is updated, and by label if H is
    /// updated.
    side: Side<'a>,
    /// The matrix that is multiplied by the image: H if W is updated, and `X W` if H is updated.
    other: &'a [f32],
    rank: usize,
}

impl<'a, 'x> Half<'a, 'x> {
    /// Returns the objective as a function of W, while H is fixed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn of_w(
        design: &'a Design<'x>,
        entries: Entries<'a>,
        h: &'a [f32],
        rank: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            design: Some(design),
            side: entries.of_rows(h, rank)?,
            other: h,
            rank,
        })
    }

    /// Returns the objective as a function of H, while W is fixed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn of_h(entries: Entries<'a>, a: &'a [f32], rank: usize) -> Result<Self, Error> {
        Ok(Self {
            design: None,
            side: entries.of_labels(a, rank)?,
            other: a,
            rank,
        })
    }

    /// Computes the image of a factor: `X W` for W, and a copy of H for H.
    fn image(&self, factor: &[f32], watch: &Watch) -> Result<Vec<f32>, Error> {
        let Some(design) = self.design else {
            return copied("the factor of Y", factor);
        };
        let factor = Tall::from_rows(factor, design.n_cols(), self.rank)?;
        let image = Tall::from_panels(design.n_rows, self.rank, |t| {
            design.times(&factor.panels[t], watch)
        });
        image?.to_rows()
    }

    /// Multiplies `pulls` by the transpose of the linear map [`image`](Self::image). The result is
    /// `Xᵀ pulls` for W, and `pulls` for H.
    fn transposed(&self, pulls: Vec<f32>, watch: &Watch) -> Result<Vec<f32>, Error> {
        let Some(design) = self.design else {
            return Ok(pulls);
        };
        let pulls = Tall::from_rows(&pulls, design.n_rows, self.rank)?;
        let product = Tall::from_panels(design.n_cols(), self.rank, |t| {
            design.transposed_times(
                |rows, out| out.copy_from_slice(&pulls.panels[t][rows]),
                watch,
            )
        });
        product?.to_rows()
    }
}

/// Updates `factor`, which is W or H, by Newton's method. Also updates its `image`, which is `X W`
/// for W, and H for H. Returns the loss plus `alpha/2 ‖factor‖²` after the update.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
/// caller requested a stop.
fn improve(
    half: &Half<'_, '_>,
    params: &Params,
    alpha: f64,
    factor: &mut [f32],
    image: &mut [f32],
    watch: &Watch,
) -> Result<f64, Error> {
    let steps = if params.loss == Loss::Squared {
        1
    } else {
        MOST_STEPS
    };
    let ask =
        |ask: Ask<'_>, image: &[f32]| half.side.answer(ask, image, half.other, half.rank, watch);
    let mut first = None;
    for _ in 0..steps {
        let (loss, pulls) = ask(Ask::Gradient, image)?;
        let mut gradient = half.transposed(pulls, watch)?;
        add_scaled(&mut gradient, alpha as f32, factor);
        let value = loss + alpha / 2.0 * square(factor);
        let norm = square(&gradient).sqrt();
        if norm <= SHARE_OF_GRADIENT * *first.get_or_insert(norm) && first != Some(norm)
            || norm == 0.0
        {
            return Ok(value);
        }
        let (step, of_step) = direction(half, params, alpha, image, &gradient, watch)?;
        let slope = dot(&gradient, &step);
        let products = (dot(factor, &step), square(&step));
        let mut length = 1.0;
        let mut found = false;
        for _ in 0..MOST_HALVINGS {
            let mut at = copied("the embedding of the rows", image)?;
            add_scaled(&mut at, length as f32, &of_step);
            let square = square(factor) + 2.0 * length * products.0 + length * length * products.1;
            let there = ask(Ask::Value, &at)?.0 + alpha / 2.0 * square;
            if there <= value + ARMIJO * length * slope {
                add_scaled(factor, length as f32, &step);
                image.copy_from_slice(&at);
                found = true;
                break;
            }
            length /= 2.0;
        }
        if !found {
            return Ok(value); // any further decrease is smaller than rounding errors
        }
    }
    Ok(ask(Ask::Value, image)?.0 + alpha / 2.0 * square(factor))
}

/// Computes Newton's direction by conjugate gradients. Returns the direction and its image (X times
/// the direction for W, the direction itself for H).
///
/// One linear system covers all entries of the factor, because its columns are coupled: second
/// derivatives differ between the entries of Y. In contrast, [`Ridge`](super::ridge::Ridge) solves
/// one system for each column. The image of the direction is updated in each iteration, which saves
/// a product with X.
fn direction(
    half: &Half<'_, '_>,
    params: &Params,
    alpha: f64,
    image: &[f32],
    gradient: &[f32],
    watch: &Watch,
) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let mut r = collected("a step", gradient.iter().map(|value| -value))?;
    let mut p = copied("a step", &r)?;
    let mut step = filled("a step", 0.0, r.len())?;
    let mut of_step = filled("a step of the embedding of the rows", 0.0, image.len())?;
    let mut rho = square(&r);
    let goal = rho * params.cg_tol.powi(2);
    for _ in 0..params.cg_max_iter {
        let of_p = half.image(&p, watch)?;
        let ask = Ask::Product(&of_p);
        let (_, pulls) = half.side.answer(ask, image, half.other, half.rank, watch)?;
        let mut product = half.transposed(pulls, watch)?;
        add_scaled(&mut product, alpha as f32, &p);
        let length = rho / dot(&p, &product);
        if !(length.is_finite() && length > 0.0) {
            break; // the residual is as small as rounding errors
        }
        add_scaled(&mut step, length as f32, &p);
        add_scaled(&mut of_step, length as f32, &of_p);
        add_scaled(&mut r, -length as f32, &product);
        let before = rho;
        rho = square(&r);
        if rho <= goal {
            break;
        }
        let beta = (rho / before) as f32;
        for (p, &r) in p.iter_mut().zip(&r) {
            *p = r + beta * *p;
        }
    }
    Ok((step, of_step))
}

/// Number of products that are summed in sixteen lanes of `f32`. The sums are then added in `f64`.
const STRETCH: usize = 1024;

/// Returns the dot product of two vectors. Products are summed in `f32` over short ranges, and
/// these sums are added in `f64`.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let stretch = |(a, b): (&[f32], &[f32])| -> f64 {
        let mut lanes = [0.0f32; 16];
        for (a, b) in a.chunks(16).zip(b.chunks(16)) {
            for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += a * b;
            }
        }
        lanes.iter().map(|&lane| f64::from(lane)).sum()
    };
    a.chunks(STRETCH).zip(b.chunks(STRETCH)).map(stretch).sum()
}

/// Returns `‖a‖²`.
fn square(a: &[f32]) -> f64 {
    dot(a, a)
}
