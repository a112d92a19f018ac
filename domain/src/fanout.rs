//! How a new post reaches its readers: pushed into their timelines, or pulled when they read.

/// The feed model a process runs: three thresholds of one algorithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FeedModel {
    /// Posts of outliers are pulled, all others are pushed.
    #[default]
    Hybrid,
    /// Every post is pushed: the threshold is infinite.
    Push,
    /// Every post is pulled: the threshold is zero.
    Pull,
}

impl FeedModel {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// How one post is delivered; fixed when it is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Readers pull it, for good.
    Pull,
    /// Workers enter it into the timelines of the followers; until they are done, readers pull it.
    Push,
}

/// How a post of an author is delivered.
#[must_use]
pub const fn delivery(model: FeedModel, author_is_outlier: bool) -> Delivery {
    match (model, author_is_outlier) {
        (FeedModel::Pull, _) | (FeedModel::Hybrid, true) => Delivery::Pull,
        (FeedModel::Push, _) | (FeedModel::Hybrid, false) => Delivery::Push,
    }
}
