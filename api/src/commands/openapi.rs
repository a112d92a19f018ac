//! `rookery openapi`.

/// Prints the OpenAPI document, as it is committed.
pub(crate) fn run() -> anyhow::Result<()> {
    super::report(&rookery_api::openapi::document().to_pretty_json()?)
}
