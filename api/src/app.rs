//! The service as a whole: what a request passes through, and how the process starts and ends.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use actix_cors::Cors;
use actix_web::{
    App, HttpServer,
    dev::Server,
    http::header,
    middleware::{Compress, Condition, from_fn},
    web::Data,
};
use anyhow::Context as _;
use rookery_storage::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use utoipa_actix_web::AppExt as _;

use crate::{
    auth::Auth,
    config::{Config, CorsOrigins},
    limits::Limits,
    middleware::{observe, protect},
    openapi::{self, Methods, Published},
    routes, telemetry,
    workers::{Work, Workers},
};

/// How long requests may take to finish after the stop: background work may take as long again, and with the
/// closing of connections the process is gone within ten seconds.
pub const FINISH_WITHIN: Duration = Duration::from_secs(4);

/// How long a connection is kept for the next request: longer than the usual minute of a proxy, so that it is the proxy who closes
/// and no request meets a closed connection.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Seldom enough to cost nothing; of the metrics, a sample of 8 bytes is kept for every request in between.
const TIDY_EVERY: Duration = Duration::from_secs(10);

/// What tells whether the process takes requests.
#[derive(Debug)]
pub struct Lifecycle {
    /// Cancelled when the process is to stop.
    pub stop: CancellationToken,
    /// The loops of background work.
    pub workers: Workers,
}

/// The service, bound to its port and not yet running.
pub struct Application {
    server: Server,
    addresses: Vec<SocketAddr>,
    lifecycle: Arc<Lifecycle>,
    store: Store,
}

impl Application {
    /// Binds the port and starts the background work: [`crate::workers::ALL`], or none of it in a process that only serves.
    ///
    /// # Errors
    /// The port is taken, or the signing key cannot be read or made.
    pub fn build(config: &Config, store: Store, works: &[Work]) -> anyhow::Result<Self> {
        telemetry::metrics();
        let stop = CancellationToken::new();
        let limits = Data::new(Limits::new(config));
        let auth = Data::new(Auth::new(config)?);
        let document = openapi::document();
        let methods = Data::new(Methods::of(&document));
        let document = Data::new(Published(document.to_json()?.into()));
        let lifecycle = Arc::new(Lifecycle { workers: Workers::start(works, &store, &stop), stop: stop.clone() });
        tokio::spawn(tidy(limits.clone().into_inner(), stop.clone()));

        let (origins, bench) = (config.cors_origins.clone(), config.bench);
        let (shared_store, shared_lifecycle) = (store.clone(), lifecycle.clone());
        let server = HttpServer::new(move || {
            let (app, _document) = App::new()
                .app_data(Data::new(shared_store.clone()))
                .app_data(Data::from(shared_lifecycle.clone()))
                .app_data(limits.clone())
                .app_data(auth.clone())
                .app_data(methods.clone())
                .app_data(document.clone())
                .into_utoipa_app()
                .configure(routes::configure)
                .split_for_parts();
            // Wrapped from inside out.
            app.configure(|app| {
                if bench {
                    routes::configure_bench(app);
                }
            })
            .configure(routes::configure_pages)
            .wrap(Compress::default())
            .wrap(from_fn(protect))
            .wrap(Condition::new(origins != CorsOrigins::Only(Vec::new()), cors(&origins)))
            .wrap(from_fn(observe))
        })
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(FINISH_WITHIN.as_secs())
        .shutdown_signal(stop.cancelled_owned())
        .bind(&*config.listen)
        .with_context(|| format!("cannot listen on {:?}", config.listen))?;
        Ok(Self { addresses: server.addrs(), server: server.run(), lifecycle, store })
    }

    /// Where the service listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }

    /// Cancelling it stops the service, as `SIGTERM` does.
    #[must_use]
    pub fn stopper(&self) -> CancellationToken {
        self.lifecycle.stop.clone()
    }

    /// Serves until the stop: readiness fails, no connection is taken any more, requests and background steps finish, connections to
    /// the database are closed.
    ///
    /// # Errors
    /// The server failed.
    pub async fn run_until_stopped(self) -> io::Result<()> {
        let Self { server, lifecycle, store, .. } = self;
        let serve = async {
            let served = server.await;
            // Also where the server ended by itself.
            lifecycle.stop.cancel();
            served
        };
        // Beside the requests, not after them: together they have the time that one of them may take.
        let work = async {
            lifecycle.stop.cancelled().await;
            tokio::time::timeout(FINISH_WITHIN, lifecycle.workers.wait()).await
        };
        let (served, worked) = tokio::join!(serve, work);
        if worked.is_err() {
            tracing::warn!("background work did not end in time; its leases will lapse");
        }
        store.close().await;
        served
    }
}

/// Cancels `stop` at the first `SIGTERM` or `SIGINT`.
///
/// # Errors
/// The process cannot listen to signals.
pub fn stop_on_signals(stop: CancellationToken) -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    });
    Ok(())
}

/// Keeps what this process remembers from growing, whether or not anybody asks for its metrics.
async fn tidy(limits: Arc<Limits>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(TIDY_EVERY);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        limits.evict();
        telemetry::metrics().run_upkeep();
    }
}

/// CORS by configuration. Tokens travel in a header that a page sets itself, never in a cookie: credentials stay off.
fn cors(origins: &CorsOrigins) -> Cors {
    let cors = Cors::default()
        .allowed_methods(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
        .allowed_headers([header::AUTHORIZATION, header::CONTENT_TYPE, header::ACCEPT, header::IF_NONE_MATCH])
        .allowed_headers(["idempotency-key", "last-event-id"])
        .expose_headers([
            "x-request-id",
            "retry-after",
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "link",
            "location",
            "idempotency-replayed",
            "etag",
            "x-feed-model",
        ])
        .max_age(3600);
    match origins {
        CorsOrigins::Any => cors.allow_any_origin().send_wildcard(),
        CorsOrigins::Only(origins) => origins.iter().fold(cors, |cors, origin| cors.allowed_origin(origin)),
    }
}
