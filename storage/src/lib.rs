//! The document model of Rookery on MongoDB: the only crate that names the driver.
//!
//! One module per noun owns its documents and the writes that keep its invariants; [`pending`] holds the one protocol by which
//! children (follows, posts, comments) are applied to their parents. Document types never leave this crate: what passes out are the
//! types of `rookery-domain`. Expected outcomes are values, refusals are the domain's enums, and [`Error`] has faults only.

pub mod collections;
pub mod comments;
pub mod embedded;
mod error;
mod lease;
pub mod migrations;
pub mod pending;
pub mod posts;
mod store;
pub mod testing;
pub mod users;

pub use error::{Error, Result};
pub use store::{Settings, Store};
