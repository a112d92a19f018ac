//! The decisions of Rookery: pure functions and the types that pass between the layers.
//!
//! Nothing here does I/O, reads a clock or makes an id: `now` and new ids are arguments. That is what lets the rules be tested
//! exhaustively, and what CI asserts on the crate graph (no tokio, mongodb, actix or utoipa below this crate).

pub mod comments;
pub mod credentials;
pub mod edge_list;
pub mod email;
pub mod export;
pub mod fanout;
pub mod feed;
pub mod graph;
pub mod handle;
pub mod ids;
pub mod jobs;
pub mod notifications;
pub mod outlier;
pub mod page;
pub mod pending;
pub mod post;
pub mod reactions;
pub mod stats;
pub mod suggestions;
pub mod text;
pub mod timestamp;
pub mod user;

pub use email::Email;
pub use handle::Handle;
pub use ids::{CommentId, EdgeId, JobId, NotificationId, PostId, SessionId, UserId};
pub use page::{Limit, Page};
pub use timestamp::Timestamp;
