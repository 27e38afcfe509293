//! A set of masters by their place in the list, small enough to copy.

/// The most masters one lock can have.
///
/// A set of masters is one machine word. Redlock is used with three to nine; each further master
/// costs every acquisition a command.
pub const MOST_MASTERS: usize = 64;

/// A set of masters, by index in the configured list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members(u64);

impl Members {
    /// No master.
    pub const NONE: Self = Self(0);

    /// Adds a master; an index of [`MOST_MASTERS`] or more is ignored.
    pub fn insert(&mut self, master: usize) {
        self.0 |= bit(master);
    }

    /// Takes a master out.
    pub fn remove(&mut self, master: usize) {
        self.0 &= !bit(master);
    }

    /// Whether the master is in the set.
    pub fn contains(self, master: usize) -> bool {
        self.0 & bit(master) != 0
    }

    /// How many masters are in the set.
    pub fn len(self) -> usize {
        // At most 64 ones: the conversion cannot fail.
        usize::try_from(self.0.count_ones()).unwrap_or(MOST_MASTERS)
    }

    /// Whether no master is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The masters of this set that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The indices in the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST_MASTERS).filter(move |master| self.contains(*master))
    }
}

impl FromIterator<usize> for Members {
    fn from_iter<I: IntoIterator<Item = usize>>(masters: I) -> Self {
        let mut set = Self::NONE;
        for master in masters {
            set.insert(master);
        }
        set
    }
}

fn bit(master: usize) -> u64 {
    u32::try_from(master)
        .ok()
        .and_then(|place| 1_u64.checked_shl(place))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_exactly_what_was_inserted() {
        let mut set: Members = [0, 3, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63]);
        set.remove(3);
        assert_eq!(set.len(), 2);
        assert!(!set.contains(3) && set.contains(63));
        set.insert(MOST_MASTERS);
        assert_eq!(set.len(), 2);
        assert_eq!(
            set.without([0].into_iter().collect())
                .iter()
                .collect::<Vec<_>>(),
            [63]
        );
    }
}
