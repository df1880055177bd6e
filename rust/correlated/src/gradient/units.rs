//! Passes over the rows whose units of work are computed by several processes. Each process computes some units and
//! sends their sums as bytes to the other processes.
//!
//! Every process adds up the sums of all units in the same order as [`Gradient::evaluate`], so the result of a pass
//! has the same bits.

use super::{Gradient, Pairs, Partial, Pass};
use crate::stored::{Stored, damaged, read_all, write_all};
use crate::wide::Float;
use manylabel_base::{Error, Watch, push, reserved};
use std::ops::Range;

impl<T: Float, const N: usize> Partial<T, N> {
    /// Appends the bytes of all sums to `out`.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        write_all(&self.weights, out)?;
        write_all(&self.pairs, out)?;
        write_all(&self.sum, out)?;
        write_all(&self.loss, out)
    }

    /// Replaces all sums by sums from the start of `from`.
    fn read(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        read_all(from, &mut self.weights)?;
        read_all(from, &mut self.pairs)?;
        read_all(from, &mut self.sum)?;
        read_all(from, &mut self.loss)
    }
}

impl<T: Float, const N: usize> Gradient<T, N> {
    /// Returns the number of the first unit of each panel (group of N labels). Panels that are not active have no
    /// units.
    pub(super) fn first_units(&self, active: &[bool]) -> Result<Vec<usize>, Error> {
        let mut firsts = reserved("number of labels", active.len())?;
        let mut n = 0;
        for &active in active {
            firsts.push(n);
            n += usize::from(active) * self.pieces.len();
        }
        Ok(firsts)
    }

    /// Returns the number of units of work of a pass.
    pub(crate) fn n_units(&self, active: &[bool]) -> usize {
        active.iter().filter(|&&active| active).count() * self.pieces.len()
    }

    /// Returns the approximate number of multiplications of a pass: two for each lane of the active panels (groups
    /// of N labels) and each stored value.
    pub(crate) fn work(&self, active: &[bool]) -> f64 {
        self.work_of_lanes(active.iter().filter(|&&active| active).count() * N)
    }

    /// Returns the approximate number of multiplications of a pass for a number of lanes.
    pub(crate) fn work_of_lanes(&self, lanes: usize) -> f64 {
        let stored = self.design.stored() + self.labels.stored() + self.omega.len();
        2.0 * lanes as f64 * stored as f64
    }

    /// Computes some units of work of a pass. Returns the bytes of the sums of each unit.
    pub(crate) fn evaluate_units(
        &mut self,
        pass: Pass<'_, T, N>,
        units: &Range<usize>,
        pairs: &Pairs,
        watch: &Watch,
    ) -> Result<Vec<Vec<u8>>, Error> {
        self.compute(pass, units, pairs, watch)?;
        let mut of_units = Vec::new();
        let (n_pieces, firsts) = (self.pieces.len(), self.first_units(pass.active)?);
        for (work, partial) in self.partials.iter().enumerate() {
            let (panel, piece) = (work / n_pieces, work % n_pieces);
            if pass.active[panel] && units.contains(&(firsts[panel] + piece)) {
                let mut bytes = Vec::new();
                partial.write(&mut bytes)?;
                push("number of labels", &mut of_units, bytes)?;
            }
        }
        Ok(of_units)
    }

    /// Completes a pass with the results of [`evaluate_units`](Self::evaluate_units) for all units, in order. Each
    /// entry of `sums` has the results of one or several units.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the bytes are not those of this pass.
    pub(crate) fn complete(
        &mut self,
        pass: Pass<'_, T, N>,
        sums: &[&[u8]],
        pairs: &Pairs,
    ) -> Result<(), Error> {
        self.place(pairs, &pass.at.couplings)?;
        let n_pieces = self.pieces.len();
        let (mut sums, mut from) = (sums.iter(), &[][..]);
        for (work, partial) in self.partials.iter_mut().enumerate() {
            if pass.active[work / n_pieces] {
                while from.is_empty() {
                    from = sums.next().ok_or_else(damaged)?;
                }
                partial.read(&mut from)?;
            }
        }
        if !from.is_empty() || sums.any(|bytes| !bytes.is_empty()) {
            return Err(damaged());
        }
        self.join(pass.active);
        Ok(())
    }

    /// Appends the sums that later passes need to `out`: those of the couplings. Panels (groups of N labels) that
    /// rest keep these sums from an earlier pass.
    pub(crate) fn write_sums(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        for partials in self.partials.chunks(self.pieces.len()) {
            partials[0].pairs.write(out)?;
            partials[0].sum.write(out)?;
        }
        Ok(())
    }

    /// Reads the sums that [`write_sums`](Self::write_sums) has written.
    pub(crate) fn read_sums(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        for partials in self.partials.chunks_mut(self.pieces.len()) {
            partials[0].pairs = Stored::read(from)?;
            partials[0].sum = Stored::read(from)?;
        }
        Ok(())
    }
}
