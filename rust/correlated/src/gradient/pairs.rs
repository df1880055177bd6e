//! Stores the pairs of labels that may be coupled, in the order in which panels of labels read
//! them.
//!
//! The neighbours of a panel are the labels that form a pair with at least one of its N labels. The
//! panel reads a row of N couplings for each neighbour. Lanes hold zero if their label forms no
//! pair with the neighbour.

use manylabel_base::{Error, collected, extend, filled, push, reserved};
use std::ops::Range;

/// Names of arrays in memory errors.
const LABELS: &str = "number of labels";
const PAIRS: &str = "number of pairs";

/// If the number of neighbours of a panel is more than the number of labels divided by this, all
/// labels are used as neighbours.
const MANY: usize = 2;

/// The pairs of labels that may have a coupling. The couplings of all other pairs are zero.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// The pairs in increasing order, with the lower label first.
    pub(crate) list: Vec<(u32, u32)>,
    /// For each panel, the labels that form a pair with one of its labels, in increasing order. If
    /// there are many such labels, all labels are listed, because products over all labels are
    /// faster per entry.
    pub(super) neighbours: Vec<Vec<u32>>,
    /// The start of the neighbours of each panel, counted over all panels. The last entry is their
    /// total number.
    pub(super) starts: Vec<usize>,
    /// The two places of the coupling of each pair, as lane + N · neighbour. The first place is in
    /// the panel of the first label, with the second label as neighbour. The second place is in the
    /// panel of the second label.
    pub(super) places: Vec<(u32, u32)>,
}

impl Pairs {
    /// Arranges a list of pairs, which must be in increasing order without repetition.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the places do not fit in 32 bits or there is not enough memory.
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

    /// Returns the range of the neighbours of a panel among the neighbours of all panels.
    pub(super) fn of_panel(&self, panel: usize) -> Range<usize> {
        self.starts[panel]..self.starts[panel + 1]
    }
}
