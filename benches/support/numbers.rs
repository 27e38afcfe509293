//! Percentiles and medians.

use std::time::Duration;

/// The duration below which so many hundredths of the samples lie, in microseconds.
pub(crate) fn percentile(samples: &mut [Duration], share: usize) -> f64 {
    samples.sort_unstable();
    samples[samples.len() * share / 100].as_secs_f64() * 1e6
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
