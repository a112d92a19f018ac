//! Every part of every scenario once, small, against a real service on a real database: no failed call, no wrong answer, no drift.
//!
//! It needs the `rookery` program beside `load-tests` in the target folder, where `cargo test --workspace` builds it.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

use std::{fs, path::Path, process::Command};

use serde_json::Value;

fn load_tests() -> Command {
    let program = env!("CARGO_BIN_EXE_load-tests");
    let rookery = Path::new(program).with_file_name("rookery");
    assert!(
        rookery.is_file(),
        "{} is missing: run `cargo test --workspace`, or `cargo build -p rookery-api` before",
        rookery.display()
    );
    Command::new(program)
}

#[test]
fn the_celebrity_scenario_runs_without_an_error_and_leaves_no_drift() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let output = load_tests().args(["run", "celebrity", "--quick", "--verify", "--json"]).arg(&file).output().unwrap();
    let printed = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");

    let report: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    for (limit, rate) in report["limits"].as_object().unwrap() {
        assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{limit} was not measured\n{printed}");
    }
    let results = report["results"].as_array().unwrap();
    for line in results {
        assert!(line["count"].as_u64().unwrap() > 0 && line["errors"] == 0, "{line}\n{printed}");
        assert_eq!(line["ratio"].is_null(), line["ratio_of"].is_null(), "{line}\n{printed}");
    }
    for name in [
        "follow_storm",
        "storm_effects_applied",
        "fan_out_entries",
        "fan_out_memory",
        "feed_page",
        "open_follow_storm",
        "open_post_by_celebrity",
        "open_post_by_ordinary",
        "open_feed_page",
        "open_follower_page",
        "follower_walk",
        "first_follower_page_largest",
        "deep_follower_page_largest",
        "profile_largest",
        "post_largest",
    ] {
        assert!(results.iter().any(|line| line["name"] == name), "{name} is missing\n{printed}");
    }
}

#[test]
fn the_million_scenario_runs_without_an_error_and_leaves_no_drift() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let output = load_tests().args(["run", "million", "--quick", "--verify", "--json"]).arg(&file).output().unwrap();
    let printed = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");

    let report: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let results = report["results"].as_array().unwrap();
    for kind in ["profile", "first_follower_page", "follower_page_1000", "relationship", "follow", "unfollow", "post"] {
        for (which, has_ratio) in [("small", false), ("largest", true)] {
            let line = results.iter().find(|line| line["name"] == format!("{kind}_{which}"));
            let line = line.unwrap_or_else(|| panic!("{kind}_{which} is missing\n{printed}"));
            assert!(line["count"] == 50 && line["errors"] == 0 && line["ratio"].is_number() == has_ratio, "{line}\n{printed}");
        }
    }
}

#[test]
fn an_edge_list_with_a_bad_line_is_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let edges = folder.path().join("edges.csv");
    fs::write(&edges, "id_1,id_2\n1,2\n2,two\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_load-tests")).args(["run", "celebrity", "--edges"]).arg(&edges).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("line 3: `two` is not an account number"), "{said}");
}

#[test]
fn the_churn_scenario_runs_without_an_error_and_leaves_no_drift() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let output = load_tests().args(["run", "churn", "--quick", "--operations", "1500", "--json"]).arg(&file).output().unwrap();
    let printed = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    let report: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let results = report["results"].as_array().unwrap();
    for name in ["churn", "follow", "unfollow", "block", "unblock", "delete_fan"] {
        let line = results.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name} is missing\n{printed}"));
        assert!(line["count"].as_u64().unwrap() > 0 && line["errors"] == 0, "{line}\n{printed}");
    }
}

#[test]
fn the_viral_scenario_runs_without_an_error_and_leaves_no_drift() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let output = load_tests().args(["run", "viral", "--quick", "--verify", "--json"]).arg(&file).output().unwrap();
    let printed = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    let report: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let results = report["results"].as_array().unwrap();
    for (name, count, has_ratio) in [
        ("comments_storm", 200, true),
        ("comments_applied", 1, true),
        ("comment_page_first", 20, false),
        ("comment_page_last", 20, true),
        ("thread_page_first", 20, false),
        ("thread_page_last", 20, true),
        ("likes_storm", 200, true),
        ("likes_applied", 1, true),
    ] {
        let line = results.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name} is missing\n{printed}"));
        assert!(line["count"] == count && line["errors"] == 0 && line["ratio"].is_number() == has_ratio, "{line}\n{printed}");
    }
    for name in ["comments_batches", "likes_batches"] {
        let line = results.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name} is missing\n{printed}"));
        // Not a write of the post for each, or nothing was gathered.
        assert!((1..200).contains(&line["count"].as_u64().unwrap()), "{line}\n{printed}");
    }
}
