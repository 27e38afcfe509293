//! What was measured beside its bound, as a table; `--check` turns a broken bound into exit 1.

use std::process::ExitCode;

/// The bounds of one benchmark, printed as they are measured.
pub(crate) struct Report {
    broken: Vec<String>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { broken: Vec::new() }
    }

    /// A line of the table whose value must not be above its bound.
    pub(crate) fn at_most(&mut self, what: &str, value: f64, bound: f64) {
        self.line(what, value, "<=", bound, value <= bound);
    }

    /// A line of the table whose value must not be below its bound.
    pub(crate) fn at_least(&mut self, what: &str, value: f64, bound: f64) {
        self.line(what, value, ">=", bound, value >= bound);
    }

    fn line(&mut self, what: &str, value: f64, sign: &str, bound: f64, kept: bool) {
        let mark = if kept { "" } else { "  BROKEN" };
        println!("  {what:<58} {value:>10.2} {sign} {bound}{mark}");
        if !kept {
            self.broken
                .push(format!("{what}: {value:.2}, must be {sign} {bound}"));
        }
    }

    /// Success, unless `--check` was asked for and a bound was broken.
    pub(crate) fn finish(self) -> ExitCode {
        for broken in &self.broken {
            println!("not kept: {broken}");
        }
        let check = std::env::args().any(|arg| arg == "--check");
        if check && !self.broken.is_empty() {
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}
