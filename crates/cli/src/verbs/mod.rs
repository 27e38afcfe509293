//! One file a verb. Each takes its arguments and answers, or fails; none prints, and none ends the process.

pub(crate) mod acquire;
pub(crate) mod completions;
pub(crate) mod extend;
pub(crate) mod masters;
pub(crate) mod release;
pub(crate) mod status;
