//! Statistics of one's own account.

use actix_web::{HttpResponse, get, web::Data};
use rookery_domain::{
    Timestamp,
    stats::{HourlyStats, Span, SpanFault},
};
use rookery_storage::{Store, now};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    auth::Viewer,
    error::{Code, Problem, Result},
    extract::{PathUser, Query, UserParam},
};

/// A span of time.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SpanQuery {
    /// Where the span begins: RFC 3339. Without it, seven days before its end.
    #[param(format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: Option<String>,
    /// Where the span ends, and what no longer belongs to it: RFC 3339, at most 31 days after `from`. Without it, now.
    #[param(format = DateTime, example = "2026-01-08T00:00:00Z")]
    to: Option<String>,
}

/// Statistics by the hour.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stats)]
pub struct StatsResponse {
    /// The hours in which something happened, the earliest first.
    items: Vec<HourlyStatsResponse>,
}

/// What happened in one hour.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HourlyStats)]
pub struct HourlyStatsResponse {
    /// When the hour begins, UTC.
    #[schema(value_type = String, format = DateTime)]
    hour: Timestamp,
    /// Views of the account's posts.
    views: i64,
    /// Followers gained.
    new_followers: i64,
    /// Followers lost.
    lost_followers: i64,
    /// Posts written.
    posts: i64,
    /// Likes received, of posts and of comments.
    likes: i64,
    /// Comments received: under the account's posts, at any depth.
    comments: i64,
}

impl From<HourlyStats> for HourlyStatsResponse {
    fn from(HourlyStats { hour, figures }: HourlyStats) -> Self {
        Self {
            hour: hour.start(),
            views: figures.views,
            new_followers: figures.new_followers,
            lost_followers: figures.lost_followers,
            posts: figures.posts,
            likes: figures.likes,
            comments: figures.comments,
        }
    }
}

/// Get the statistics of one's own account
///
/// By the hour (UTC), the earliest first: every hour that the span touches and in which something happened; one that is missing had nothing. Each figure counts
/// what came in its hour: taking something back (an unfollow, an unlike, a deletion) lowers none, so that the sum over hours is not the count of a profile. A *view* is a read of a
/// post by itself (`GET /posts/{id}`) by anybody but its author; lists and feeds do not count. What happens is there within a few seconds. The figures are an
/// approximation: a server that is killed loses the last of them. They are kept for 400 days.
#[utoipa::path(tag = "users", params(UserParam, SpanQuery), responses(
    (status = 200, description = "The statistics", body = StatsResponse),
    (status = 400, description = "`invalid_query`: `from` or `to` is no time, `from` is after `to`, or they are more than 31 days apart"),
    (status = 403, description = "`forbidden`: it is the account of somebody else"),
    (status = 404, description = "There is no such account, or it blocks the caller"),
))]
#[get("/users/{user}/stats")]
pub(crate) async fn get_stats(
    viewer: Viewer,
    PathUser(user): PathUser,
    Query(asked): Query<SpanQuery>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let user = store.user(&user).await?.ok_or(Problem::not_found())?.id;
    if user != viewer.user_id {
        let relation = store.relationships(viewer.user_id, &[user]).await?.first().map(|(_, relation)| *relation);
        let seen = relation.is_some_and(|relation| !relation.blocked_by);
        return Err(if seen { Problem::new(Code::Forbidden) } else { Problem::not_found() });
    }
    let span = Span::new(time("from", asked.from)?, time("to", asked.to)?, now()).map_err(|fault| match fault {
        SpanFault::Reversed => Problem::new(Code::InvalidQuery).field("from", "reversed", fault.to_string()),
        SpanFault::TooLong => Problem::new(Code::InvalidQuery).field("from", "too_long", fault.to_string()),
    })?;
    let items = store.stats_of(user, span).await?.into_iter().map(HourlyStatsResponse::from).collect();
    Ok(HttpResponse::Ok().json(StatsResponse { items }))
}

fn time(field: &'static str, text: Option<String>) -> Result<Option<Timestamp>> {
    let parse = |text: String| {
        text.parse().map_err(|fault: rookery_domain::timestamp::InvalidTime| {
            Problem::new(Code::InvalidQuery).field(field, "invalid_time", fault.to_string())
        })
    };
    text.map(parse).transpose()
}
