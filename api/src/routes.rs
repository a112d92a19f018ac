//! Every route of the service, on one screen. Each handler says its own method and path, and what it takes and gives.

pub mod account;
pub mod admin;
pub mod auth;
pub mod blocks;
pub mod comments;
pub mod export;
pub mod feed;
pub mod graph;
pub mod notifications;
pub mod operations;
pub mod posts;
pub mod profiles;
pub mod reactions;
pub mod requests;
pub mod search;
pub mod stats;
pub mod suggestions;
pub mod users;

use actix_web::{middleware::from_fn, web};
use utoipa_actix_web::{scope, service_config::ServiceConfig};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::{auth::authenticate, limits, openapi};

/// The whole table.
pub fn configure(all: &mut ServiceConfig<'_>) {
    all.service(operations::check_health)
        .service(operations::check_readiness)
        .service(operations::get_metrics)
        .service(operations::get_openapi)
        .service(
            scope(openapi::BASE_PATH)
                // Wrapped from inside out: the token is read before the bucket of its user is charged.
                .wrap(from_fn(limits::limit))
                .wrap(from_fn(authenticate))
                .wrap(from_fn(limits::limit_refused))
                .configure(api),
        );
}

/// What lies under `/api/v1`.
fn api(api: &mut ServiceConfig<'_>) {
    api.service(auth::register_user)
        .service(auth::log_in)
        .service(auth::refresh_session)
        .service(auth::log_out)
        .service(auth::list_sessions)
        .service(auth::revoke_session)
        .service(auth::change_password)
        .service(users::get_me)
        .service(profiles::edit_me)
        .service(account::delete_me)
        .service(export::export_me)
        .service(suggestions::list_suggestions)
        .service(search::list_users)
        .service(users::get_user)
        .service(graph::follow_user)
        .service(graph::unfollow_user)
        .service(graph::remove_follower)
        .service(graph::list_followers)
        .service(graph::list_following)
        .service(graph::list_known_followers)
        .service(graph::list_relationships)
        .service(stats::get_stats)
        .service(requests::list_follow_requests)
        .service(requests::accept_follow_request)
        .service(requests::reject_follow_request)
        .service(blocks::block_user)
        .service(blocks::unblock_user)
        .service(blocks::list_blocks)
        .service(blocks::mute_user)
        .service(blocks::unmute_user)
        .service(blocks::list_mutes)
        .service(posts::create_post)
        .service(posts::list_posts)
        .service(posts::get_post)
        .service(posts::edit_post)
        .service(posts::delete_post)
        .service(posts::list_post_history)
        .service(posts::list_user_posts)
        .service(posts::list_tag_posts)
        .service(comments::create_comment)
        .service(comments::list_comments)
        .service(comments::get_comment)
        .service(comments::get_thread)
        .service(comments::edit_comment)
        .service(comments::delete_comment)
        .service(reactions::like_post)
        .service(reactions::unlike_post)
        .service(reactions::list_likes)
        .service(reactions::repost_post)
        .service(reactions::undo_repost)
        .service(reactions::list_reposts)
        .service(reactions::bookmark_post)
        .service(reactions::remove_bookmark)
        .service(reactions::list_bookmarks)
        .service(reactions::like_comment)
        .service(reactions::unlike_comment)
        .service(feed::get_feed)
        .service(notifications::list_notifications)
        .service(notifications::count_unread_notifications)
        .service(notifications::read_notifications)
        .service(admin::list_jobs)
        .service(admin::list_outliers)
        .service(admin::start_verify)
        .service(admin::start_repair);
}

/// What load tests compare with, where the configuration asks for it: behind everything that a request under `/api/v1` passes.
pub fn configure_bench(bench: &mut web::ServiceConfig) {
    bench.service(
        web::scope("/bench")
            .wrap(from_fn(limits::limit))
            .wrap(from_fn(authenticate))
            .wrap(from_fn(limits::limit_refused))
            .service(operations::find_one),
    );
}

/// The documentation's page, and what no route takes.
pub fn configure_pages(pages: &mut web::ServiceConfig) {
    let ui = Config::from(openapi::DOCUMENT_PATH)
        .validator_url("none")
        .persist_authorization(true)
        .try_it_out_enabled(true)
        .display_request_duration(true)
        // Without the bar that loads other documents: the page may load none from elsewhere.
        .use_base_layout();
    pages
        .service(web::redirect("/docs", "/docs/"))
        .service(web::scope("/docs").wrap(operations::docs_headers()).service(SwaggerUi::new("/{_:.*}").config(ui)))
        .default_service(web::to(operations::refuse_unknown_route));
}
