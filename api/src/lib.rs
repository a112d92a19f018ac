//! The HTTP service of Rookery: what it answers, and how it runs.
//!
//! A request passes [`middleware`] (its id, its problem document, its deadline), CORS, [`auth`] (whose token is it) and [`limits`] (is
//! there something left in the bucket) and comes to a handler of [`routes`], which extracts, makes one call into `rookery-storage`
//! and answers. `*Request` and `*Response` types never leave this crate.

pub mod app;
pub mod auth;
pub mod config;
pub mod error;
pub mod extract;
pub mod idempotency;
pub mod limits;
pub mod middleware;
pub mod openapi;
pub mod page;
pub mod passwords;
pub mod routes;
pub mod telemetry;
pub mod tokens;
pub mod workers;
