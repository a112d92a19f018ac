//! Lists: how a caller asks for a page and how it is answered, the same for every list.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpRequest, HttpResponse, dev::Payload, http::header};
use rookery_domain::{Limit, Page, page::Cursor};
use serde::Serialize;
use url::form_urlencoded;
use utoipa::IntoParams;

use crate::error::{Code, Problem};

/// The page that a caller asks for. Parameters that it does not know stay in the links to other pages.
#[derive(Debug)]
pub struct ListQuery<C> {
    /// How many items.
    pub limit: Limit,
    /// From where; none for the beginning.
    pub cursor: Option<C>,
    path: String,
    /// The other parameters, encoded.
    others: String,
}

/// For the documentation: the parameters of every list.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters that `ListQuery` reads")]
pub struct ListParams {
    /// How many items to give, from 1 to 100.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u8>,
    /// `nextCursor` or `prevCursor` of an earlier answer.
    cursor: Option<String>,
}

impl<C: Cursor> ListQuery<C> {
    fn parse(path: &str, query: &str) -> Result<Self, Problem> {
        let (mut limit, mut cursor) = (None, None);
        let mut others = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "limit" if limit.is_none() => limit = Some(parse_limit(&value).ok_or(Problem::new(Code::InvalidLimit))?),
                "limit" => return Err(Problem::new(Code::InvalidLimit).detail("The limit is given twice")),
                "cursor" if cursor.is_none() => cursor = Some(C::decode(&value).map_err(|_| Problem::new(Code::InvalidCursor))?),
                "cursor" => return Err(Problem::new(Code::InvalidCursor).detail("The cursor is given twice")),
                _ => {
                    others.append_pair(&name, &value);
                }
            }
        }
        if let Some(limit) = limit {
            others.append_pair("limit", &limit.get().to_string());
        }
        Ok(Self { limit: limit.unwrap_or(Limit::DEFAULT), cursor, path: path.to_owned(), others: others.finish() })
    }

    /// The answer with a page: its body, made by `body` from the items and the two cursors (`FollowerPage::new`), and the `Link` header
    /// that says the same.
    pub fn answer<T, B: Serialize>(
        &self,
        page: Page<T, C>,
        body: impl FnOnce(Vec<T>, Option<String>, Option<String>) -> B,
    ) -> HttpResponse {
        let (next, prev) = (page.next.map(|cursor| cursor.encode()), page.prev.map(|cursor| cursor.encode()));
        let links: Vec<_> = [("next", &next), ("prev", &prev)]
            .into_iter()
            .filter_map(|(rel, cursor)| Some(self.link(rel, cursor.as_deref()?)))
            .collect();
        let mut response = HttpResponse::Ok();
        if !links.is_empty() {
            response.insert_header((header::LINK, links.join(", ")));
        }
        response.json(body(page.items, next, prev))
    }

    fn link(&self, rel: &str, cursor: &str) -> String {
        // A path may hold every character but these two that would end the address.
        let path = self.path.replace('<', "%3C").replace('>', "%3E");
        let and = if self.others.is_empty() { "" } else { "&" };
        format!("<{path}?{}{and}cursor={cursor}>; rel=\"{rel}\"", self.others)
    }
}

/// Digits alone: no sign, no space, no fraction.
fn parse_limit(text: &str) -> Option<Limit> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { Limit::new(text.parse().ok()?) } else { None }
}

impl<C: Cursor> FromRequest for ListQuery<C> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::parse(request.path(), request.query_string()))
    }
}

/// Makes the body of one list: a concrete type, since a generic one would have its items written out in the OpenAPI document instead
/// of referred to.
///
/// ```text
/// page_of! {
///     /// Followers of an account.
///     FollowerPage of FollowerResponse
/// }
/// ```
#[macro_export]
macro_rules! page_of {
    ($(#[$doc:meta])* $page:ident of $item:ident) => {
        $(#[$doc])*
        #[derive(Debug, ::serde::Serialize, ::utoipa::ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $page {
            /// The items, in the order of the list.
            pub items: Vec<$item>,
            /// Leads on in the order of the list; null exactly where nothing follows.
            #[schema(required)]
            pub next_cursor: Option<String>,
            /// Leads back to the adjacent items before the first; null only on an empty list.
            #[schema(required)]
            pub prev_cursor: Option<String>,
        }

        impl $page {
            /// A page with these items between these cursors.
            pub fn new(items: Vec<$item>, next_cursor: Option<String>, prev_cursor: Option<String>) -> Self {
                Self { items, next_cursor, prev_cursor }
            }
        }
    };
}
#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use rookery_domain::page::SeqCursor;

    use super::*;

    fn parse(query: &str) -> Result<ListQuery<SeqCursor>, Code> {
        ListQuery::parse("/api/v1/users/@ada/followers", query).map_err(|problem| problem.code())
    }

    #[test]
    fn a_limit_is_a_whole_number_from_1_to_100() {
        assert_eq!(parse("").unwrap().limit, Limit::DEFAULT);
        assert_eq!(parse("limit=1").unwrap().limit.get(), 1);
        assert_eq!(parse("limit=100").unwrap().limit.get(), 100);
        for limit in ["0", "-1", "101", "1000000000000", "abc", "1.5", "", "%20", "+5", "1&limit=2", "%D9%A1"] {
            assert_eq!(parse(&format!("limit={limit}")).unwrap_err(), Code::InvalidLimit, "{limit}");
        }
    }

    #[test]
    fn a_cursor_is_one_of_ours() {
        let cursor = SeqCursor::Below(7);
        assert_eq!(parse(&format!("cursor={}", cursor.encode())).unwrap().cursor, Some(cursor));
        for garbled in ["", "garbage", "bm90IGEgY3Vyc29y", "..%2F..%2F", "%00"] {
            assert_eq!(parse(&format!("cursor={garbled}")).unwrap_err(), Code::InvalidCursor, "{garbled}");
        }
    }

    #[test]
    fn links_keep_what_else_was_asked() {
        let old = SeqCursor::Below(9).encode();
        let list = parse(&format!("sort=a%20%3E&cursor={old}&limit=5")).unwrap();
        let page = Page { items: vec![1], next: Some(SeqCursor::Below(7)), prev: Some(SeqCursor::Above(8)) };
        let response = list.answer(page, |items, _, _| items);
        let link = response.headers().get(header::LINK).unwrap().to_str().unwrap().to_owned();
        let (next, prev) = (SeqCursor::Below(7).encode(), SeqCursor::Above(8).encode());
        let here = "/api/v1/users/@ada/followers?sort=a+%3E&limit=5&cursor=";
        assert_eq!(link, format!("<{here}{next}>; rel=\"next\", <{here}{prev}>; rel=\"prev\""));
    }

    #[test]
    fn an_empty_list_has_no_links() {
        let response = parse("").unwrap().answer(Page::<(), SeqCursor>::empty(), |items, _, _| items);
        assert!(response.headers().get(header::LINK).is_none());
    }
}
