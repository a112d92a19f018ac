//! The document model of Rookery on MongoDB: the only crate that names the driver.
//!
//! One module per noun owns its documents and the writes that keep its invariants; [`pending`] holds the one protocol by which
//! children (follows, posts, comments, likes, reposts) are applied to their parents. Document types never leave this crate: what passes out are the
//! types of `rookery-domain`. Expected outcomes are values, refusals are the domain's enums, and [`Error`] has faults only.

mod bench;
pub mod blocks;
mod bulk;
pub mod collections;
pub mod comments;
pub mod credentials;
mod deletion;
pub mod embedded;
mod error;
pub mod export;
pub mod feed;
#[cfg(test)]
mod feed_interleavings;
pub mod follow_lists;
mod gather;
pub mod graph;
#[cfg(test)]
mod graph_interleavings;
#[cfg(test)]
mod graph_model;
mod heads;
mod hidden;
pub mod idempotency;
pub mod jobs;
mod lease;
pub mod migrations;
pub mod mutes;
pub mod notifications;
pub mod outlier_list;
mod overflow;
pub mod pending;
pub mod posts;
pub mod profiles;
pub mod reactions;
mod relations;
pub mod rename;
pub mod requests;
#[cfg(test)]
mod requests_interleavings;
pub mod search;
mod seq_page;
pub mod sessions;
mod shared;
pub mod stats;
mod store;
pub mod suggestions;
pub mod testing;
mod time_page;
pub mod timelines;
mod user_lists;
pub mod users;
pub mod verify;

pub use error::{Error, Result};
pub use store::{Settings, Store, new_id, now};
