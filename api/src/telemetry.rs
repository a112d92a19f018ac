//! Logs and metrics of the process.
//!
//! Logs go to standard error, one JSON object a line, with the fields of the request they belong to; tokens, e-mail addresses and
//! texts are never among them. Metrics are kept by the process and rendered by our own `/metrics`: there is no second listener.

use std::{sync::OnceLock, time::Duration};

use actix_web::http::{Method, StatusCode};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

/// Bounds of every histogram of seconds: from a read out of memory to the deadline of a request.
const SECONDS: &[f64] = &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0];

/// Starts the log; once per process.
///
/// # Errors
/// `ROOKERY_LOG` is not a filter.
pub fn start_log(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log).map_err(|error| anyhow::anyhow!("ROOKERY_LOG: {error}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Json => log.json().flatten_event(true).with_current_span(true).with_span_list(false).init(),
        LogFormat::Text => log.init(),
    }
    Ok(())
}

/// The metrics of the process. There is one set per process, whatever runs in it: that is how the `metrics` crate works.
pub fn metrics() -> &'static PrometheusHandle {
    static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();
    METRICS.get_or_init(|| {
        // The builder refuses only an empty list of bounds.
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS).unwrap_or_default();
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::error!("another recorder of metrics is installed: /metrics stays empty");
        }
        metrics::describe_histogram!(
            "http_request_duration_seconds",
            "Time from a request's head to its answer's, by route pattern"
        );
        metrics::describe_gauge!("http_requests_in_flight", "Requests that are being answered");
        metrics::describe_gauge!(
            "worker_last_success_timestamp_seconds",
            "When a background worker last had a step that did not fail"
        );
        metrics::describe_counter!(
            "applied_batches_total",
            "Transactions that counted comments or reactions in their parent, by kind of child"
        );
        metrics::describe_counter!("worker_items_total", "Items that a background worker dealt with");
        metrics::describe_counter!("worker_errors_total", "Steps of a background worker that failed");
        metrics::describe_gauge!("stats_tally_entries", "Statistics in memory when they were last added to the database");
        metrics::describe_counter!(
            "stats_lost_total",
            "Statistics that were forgotten: the database was sent them and did not answer, or too much waited"
        );
        metrics::describe_gauge!("build_info", "The version that runs");
        metrics::gauge!("build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        handle
    })
}

/// Counts an answer. `route` is a pattern.
pub fn request_answered(method: &Method, route: String, status: StatusCode, took: Duration) {
    // A caller may send any word as a method.
    let method = match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    };
    metrics::histogram!("http_request_duration_seconds", "method" => method, "route" => route, "status" => status.as_u16().to_string())
        .record(took);
}

/// A request that is being answered, for as long as this lives: also one that the caller gives up.
#[derive(Debug)]
pub struct InFlight(());

impl InFlight {
    /// Counts one in.
    pub fn enter() -> Self {
        metrics::gauge!("http_requests_in_flight").increment(1.0);
        Self(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        metrics::gauge!("http_requests_in_flight").decrement(1.0);
    }
}
