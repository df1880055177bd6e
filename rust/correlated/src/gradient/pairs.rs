//! The pairs of labels that may be coupled, as panels of labels read them.

use manylabel_base::{Error, collected, extend, filled, push, reserved};
use std::ops::Range;

/// What is named if there is no memory for it.
const LABELS: &str = "number of labels";
const PAIRS: &str = "number of pairs";

/// Neighbours of a panel are many if they are one in so many labels.
const MANY: usize = 2;

/// The pairs of labels whose couplings are not held at zero.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// In increasing order, the lower label first.
    pub(crate) list: Vec<(u32, u32)>,
    /// For each panel the labels that its labels have pairs with, in increasing order; all labels if
    /// those are many, which is faster.
    pub(super) neighbours: Vec<Vec<u32>>,
    /// Where the neighbours of each panel begin.
    pub(super) starts: Vec<usize>,
    /// Where the coupling of each pair stands, as number of the second label's neighbour and as the
    /// first's.
    pub(super) places: Vec<(u32, u32)>,
}

impl Pairs {
    /// `list`: in increasing order, without repetition.
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

    pub(super) fn of_panel(&self, panel: usize) -> Range<usize> {
        self.starts[panel]..self.starts[panel + 1]
    }
}
