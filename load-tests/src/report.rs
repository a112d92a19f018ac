//! What a run says at its end: a table for people, a JSON file for programs.
//!
//! Every figure that depends on the machine stands beside its ratio to what the machine can do, measured in the same run. The fields
//! of the JSON file are fixed; goals, causes of errors and remarks are in the table alone.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::loops::Measured;

/// What the machine can do: rates of the bare driver and of the bare HTTP stack. None is not measured; a remark says why.
#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the fields of the JSON file carry their unit")]
pub(crate) struct Limits {
    /// `find_one` by `_id` of a document of 4 KB, through the driver.
    pub(crate) find_one_per_s: Option<f64>,
    /// `insert_one` of an edge into a collection with the indexes of `follows`, through the driver.
    pub(crate) insert_one_per_s: Option<f64>,
    /// Documents inserted by `insert_many` of 1,000 into a collection with the indexes of `timeline_entries`, through the driver.
    pub(crate) insert_many_docs_per_s: Option<f64>,
    /// An HTTP handler that does nothing.
    pub(crate) http_bare_per_s: Option<f64>,
    /// An HTTP handler that does one `find_one` by `_id` of a document of 4 KB.
    pub(crate) http_find_one_per_s: Option<f64>,
}

/// One line of the results. Latencies and rates are none where they have no meaning (a measure of memory).
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Calls answered as they should be.
    pub(crate) count: u64,
    /// Calls that failed, wrong answers included.
    pub(crate) errors: u64,
    pub(crate) rate_per_s: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// What the ratio is to.
    pub(crate) ratio_of: Option<String>,
    #[serde(skip)]
    goal: Option<Goal>,
    #[serde(skip)]
    causes: BTreeMap<String, u64>,
}

impl Line {
    /// A line without figures.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            count: 0,
            errors: 0,
            rate_per_s: None,
            p50_ms: None,
            p95_ms: None,
            p99_ms: None,
            max_ms: None,
            ratio: None,
            ratio_of: None,
            goal: None,
            causes: BTreeMap::new(),
        }
    }

    /// Its ratio to something, and what that should be. Without a ratio (its limit was not measured) the goal is missed.
    #[must_use]
    pub(crate) fn ratio(mut self, ratio: Option<f64>, of: &str, goal: Goal) -> Self {
        self.ratio = ratio.map(rounded);
        self.ratio_of = Some(of.to_owned());
        self.goal = Some(goal);
        self
    }

    /// Its ratio to something, of which nothing is asked.
    #[must_use]
    pub(crate) fn beside(self, ratio: Option<f64>, of: &str) -> Self {
        Self { ratio: ratio.map(rounded), ratio_of: Some(of.to_owned()), ..self }
    }

    /// Without a rate, where one has no meaning: a thing that was timed once or twice.
    #[must_use]
    pub(crate) fn without_rate(self) -> Self {
        Self { rate_per_s: None, ..self }
    }

    fn goal_met(&self) -> bool {
        self.goal.is_none_or(|goal| self.ratio.is_some_and(|ratio| goal.met_by(ratio)))
    }
}

impl From<&Measured> for Line {
    fn from(measured: &Measured) -> Self {
        let any = measured.count() > 0;
        let percentile = |percent| any.then(|| rounded(measured.percentile_ms(percent)));
        Self {
            count: measured.count(),
            errors: measured.failed(),
            rate_per_s: any.then(|| rounded(measured.rate())),
            p50_ms: percentile(50.0),
            p95_ms: percentile(95.0),
            p99_ms: percentile(99.0),
            max_ms: percentile(100.0),
            causes: measured.errors.clone(),
            ..Self::new(measured.name.clone())
        }
    }
}

/// What a ratio should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(wanted) => ratio >= wanted,
            Self::AtMost(wanted) => ratio <= wanted,
        }
    }
}

/// The ratio of two figures, where both were measured and the second is not zero.
pub(crate) fn ratio(part: impl Into<Option<f64>>, whole: impl Into<Option<f64>>) -> Option<f64> {
    let (part, whole) = (part.into()?, whole.into()?);
    (whole > 0.0).then(|| part / whole)
}

/// The middle one, or the mean of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Three digits after the point: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The commit the programs were built from, `-dirty` where the working tree differed from it.
    pub(crate) commit: String,
    /// Processor, memory, system, kind of build.
    pub(crate) machine: String,
    pub(crate) scenario: &'static str,
    pub(crate) limits: Limits,
    pub(crate) results: Vec<Line>,
    #[serde(skip)]
    remarks: Vec<String>,
}

impl Report {
    /// A run of which nothing is measured yet.
    pub(crate) fn new(scenario: &'static str) -> Self {
        Self { commit: commit(), machine: machine(), scenario, limits: Limits::default(), results: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, line: impl Into<Line>) {
        self.results.push(line.into());
    }

    /// Adds a sentence below the table.
    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// Failed calls in all.
    pub(crate) fn errors(&self) -> u64 {
        self.results.iter().map(|line| line.errors).sum()
    }

    /// Whether every ratio is what it should be.
    pub(crate) fn goals_met(&self) -> bool {
        self.results.iter().all(Line::goal_met)
    }

    /// Writes the JSON file.
    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The table with everything around it.
    pub(crate) fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(["", "count", "errors", "per s", "p50 ms", "p95 ms", "p99 ms", "max ms", "ratio", "of", "goal"]);
        for line in &self.results {
            let goal = line.goal.map_or_else(String::new, |goal| {
                let (sign, wanted) = match goal {
                    Goal::AtLeast(wanted) => ("≥", wanted),
                    Goal::AtMost(wanted) => ("≤", wanted),
                };
                let verdict = match line.ratio {
                    None => "not measured",
                    Some(_) if line.goal_met() => "pass",
                    Some(_) => "FAIL",
                };
                format!("{sign} {wanted:.2} {verdict}")
            });
            table.add_row([
                line.name.clone(),
                line.count.to_string(),
                line.errors.to_string(),
                figure(line.rate_per_s, 0),
                figure(line.p50_ms, 2),
                figure(line.p95_ms, 2),
                figure(line.p99_ms, 2),
                figure(line.max_ms, 1),
                figure(line.ratio, 2),
                line.ratio_of.clone().unwrap_or_default(),
                goal,
            ]);
        }
        for column in table.column_iter_mut().skip(1).take(8) {
            column.set_cell_alignment(CellAlignment::Right);
        }

        let mut text = format!("\n{} at {}, on {}\n{table}\n", self.scenario, self.commit, self.machine);
        let limits = [
            ("find_one", self.limits.find_one_per_s),
            ("insert_one", self.limits.insert_one_per_s),
            ("insert_many documents", self.limits.insert_many_docs_per_s),
            ("bare HTTP", self.limits.http_bare_per_s),
            ("find_one over HTTP", self.limits.http_find_one_per_s),
        ];
        let limits: Vec<_> = limits.iter().map(|(name, rate)| format!("{name} {}", figure(*rate, 0))).collect();
        let _ = writeln!(text, "Limits of this machine, per second: {}.", limits.join(", "));
        for line in &self.results {
            for (cause, count) in &line.causes {
                let _ = writeln!(text, "Errors: {count} × {cause} in {}.", line.name);
            }
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        text
    }
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// What git says of the folder this was built in.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    match git(&["status", "--porcelain"]) {
        Some(changes) if changes.is_empty() => hash,
        _ => hash + "-dirty",
    }
}

/// Processor, cores, memory, system and kind of build, in one line.
fn machine() -> String {
    let field = |file: &str, key: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
    let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| std::env::consts::OS.to_owned());
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{cores} × {processor}, {} GiB, {}, {build} build", memory / (1 << 20), system.trim())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::loops::Failure;

    fn report() -> Report {
        let mut measured = Measured::new("follow_storm");
        measured.record(Duration::from_millis(2), Ok(()));
        measured.record(Duration::from_millis(2), Err(Failure("blocked".to_owned())));
        measured.elapsed = Duration::from_secs(1);
        let mut report = Report::new("celebrity");
        report.limits.insert_one_per_s = Some(4.0);
        let storm =
            Line::from(&measured).ratio(ratio(measured.rate(), report.limits.insert_one_per_s), "insert_one", Goal::AtLeast(0.4));
        report.push(storm);
        report
    }

    #[test]
    fn the_json_file_has_the_documented_fields_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        report().write_json(&path).unwrap();
        let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(keys(&value), ["commit", "limits", "machine", "results", "scenario"].map(str::to_owned).into());
        let limits = json!({"find_one_per_s": null, "insert_one_per_s": 4.0, "insert_many_docs_per_s": null, "http_bare_per_s": null,
            "http_find_one_per_s": null});
        assert_eq!(value["limits"], limits);
        let line = json!({"name": "follow_storm", "count": 1, "errors": 1, "rate_per_s": 1.0, "p50_ms": 2.0, "p95_ms": 2.0,
            "p99_ms": 2.0, "max_ms": 2.0, "ratio": 0.25, "ratio_of": "insert_one"});
        let found = &value["results"][0];
        assert_eq!(keys(found), keys(&line));
        for key in ["name", "count", "errors", "rate_per_s", "ratio", "ratio_of"] {
            assert_eq!(found[key], line[key], "{key}");
        }
        assert!((found["max_ms"].as_f64().unwrap() - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_missed_goal_fails_and_a_ratio_that_could_not_be_made_misses_it() {
        let mut report = report();
        assert!(!report.goals_met());
        report.results[0].ratio = Some(0.4);
        assert!(report.goals_met());
        report.results[0].ratio = None;
        assert!(!report.goals_met());
        assert!(Goal::AtMost(1.5).met_by(1.5) && !Goal::AtMost(1.5).met_by(1.51));
    }

    #[test]
    fn the_table_shows_goals_and_causes_of_errors() {
        let text = report().to_text();
        assert!(text.contains("≥ 0.40 FAIL"), "{text}");
        assert!(text.contains("Errors: 1 × blocked in follow_storm."), "{text}");
    }

    #[test]
    fn a_ratio_needs_both_figures() {
        assert_eq!(ratio(1.0, 4.0), Some(0.25));
        assert_eq!(ratio(1.0, None), None);
        assert_eq!(ratio(None, 4.0), None);
        assert_eq!(ratio(1.0, 0.0), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
