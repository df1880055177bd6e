//! Stores the pairs of labels that may have a coupling.
//!
//! Labels are processed in panels of N labels. The *neighbours* of a panel are the labels that form
//! a pair with at least one of its labels. A panel reads one row of N couplings for each neighbour.
//! The row has a zero for every label of the panel that forms no pair with the neighbour.

use manylabel_base::{Error, collected, extend, filled, push, reserved};
use std::ops::Range;

/// Names of arrays in error messages about memory.
const LABELS: &str = "number of labels";
const PAIRS: &str = "number of pairs of labels";

/// A panel is a group of labels, and its neighbours are the labels that form a pair with one of
/// them. If a panel has more neighbours than the number of labels divided by this number, all
/// labels are listed as its neighbours.
const MANY: usize = 2;

/// The pairs of labels that may have a coupling. The couplings of all other pairs are zero.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// The pairs in increasing order, with the lower label first.
    pub(crate) list: Vec<(u32, u32)>,
    /// For each panel of labels, its neighbours: the labels that form a pair with one of its
    /// labels, in increasing order. If there are many neighbours, all labels are listed, because
    /// products over all labels are faster per entry.
    pub(super) neighbours: Vec<Vec<u32>>,
    /// For each panel (group of N labels), the number of neighbours of all panels before it. The
    /// last entry is the total number of neighbours.
    pub(super) starts: Vec<usize>,
    /// The two positions of the coupling of each pair of labels. A position is the number
    /// `lane + N · neighbour`. The first position is in the panel (group of N labels) that contains
    /// the first label. There, the lane belongs to the first label, and the second label is the
    /// neighbour. The second position is in the panel of the second label, with the roles of the
    /// two labels exchanged.
    pub(super) places: Vec<(u32, u32)>,
}

impl Pairs {
    /// Prepares a list of pairs. The pairs must be in increasing order without repetition.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if positions of couplings do not fit in 32 bits, or if there is
    /// not enough memory.
    pub(crate) fn new<const N: usize>(
        list: Vec<(u32, u32)>,
        n_labels: usize,
    ) -> Result<Self, Error> {
        let n_panels = n_labels.div_ceil(N);
        let panel = |label: u32| label as usize / N;
        let mut neighbours = filled(LABELS, Vec::new(), n_panels)?;
        for &(i, k) in &list {
            push(PAIRS, &mut neighbours[panel(i)], k)?;
            push(PAIRS, &mut neighbours[panel(k)], i)?;
        }
        let mut starts = reserved(LABELS, n_panels + 1)?;
        starts.push(0);
        for of_panel in &mut neighbours {
            of_panel.sort_unstable();
            of_panel.dedup();
            if of_panel.len() * MANY > n_labels {
                of_panel.clear();
                extend(LABELS, of_panel, 0..n_labels as u32)?;
            }
            starts.push(starts[starts.len() - 1] + of_panel.len());
        }
        if u32::try_from(starts[n_panels] * N).is_err() {
            return Err(Error::TooLarge {
                what: PAIRS,
                got: format!("{} pairs of labels", list.len()),
            });
        }
        let place = |i: u32, k: u32| {
            let slot = neighbours[panel(i)].binary_search(&k).expect("a neighbour");
            ((starts[panel(i)] + slot) * N + i as usize % N) as u32
        };
        let places = list.iter().map(|&(i, k)| (place(i, k), place(k, i)));
        let places = collected(PAIRS, places)?;
        Ok(Self {
            list,
            neighbours,
            starts,
            places,
        })
    }

    /// Returns the positions of the neighbours of a panel in the list of the neighbours of all
    /// panels. A panel is a group of N labels.
    pub(super) fn of_panel(&self, panel: usize) -> Range<usize> {
        self.starts[panel]..self.starts[panel + 1]
    }
}
