//! The pairs of labels that may be coupled, in the order in which panels of labels read them.
//!
//! A panel of N labels reads a row of N couplings for each label that any of its labels is paired
//! with, its neighbours. Lanes whose label has no such pair hold zero.

use manylabel_base::{Error, collected, extend, filled, push, reserved};
use std::ops::Range;

/// Names of what did not fit in memory, for errors.
const LABELS: &str = "number of labels";
const PAIRS: &str = "number of pairs";

/// A panel whose neighbours are more than one in this many labels takes all labels as neighbours.
const MANY: usize = 2;

/// The pairs of labels that may have a coupling; the couplings of all other pairs are zero.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// The pairs in increasing order, the lower label first.
    pub(crate) list: Vec<(u32, u32)>,
    /// For each panel, the labels that its labels have pairs with, in increasing order. If these
    /// are many, all labels: products over all labels are faster per entry.
    pub(super) neighbours: Vec<Vec<u32>>,
    /// Where the neighbours of each panel begin, counted over all panels; the last entry is their
    /// total.
    pub(super) starts: Vec<usize>,
    /// The two places of each pair's coupling, as lane + N · neighbour: in the panel of the first
    /// label, where the second is the neighbour, and in the panel of the second.
    pub(super) places: Vec<(u32, u32)>,
}

impl Pairs {
    /// Arranges a list of pairs, which is in increasing order without repetition.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the places exceed 32 bits or memory.
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

    /// The range of a panel's neighbours among those of all panels.
    pub(super) fn of_panel(&self, panel: usize) -> Range<usize> {
        self.starts[panel]..self.starts[panel + 1]
    }
}
