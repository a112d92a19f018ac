//! The read that load tests compare with: one document of 4 KB by its id, through the same connection as everything else.

use bson::doc;
use serde::{Deserialize, Serialize};

use crate::{Result, Store, error::is_duplicate_key};

/// Outside the schema: it is made where it is asked for and holds one document.
const COLLECTION: &str = "bench";

#[derive(Debug, Serialize, Deserialize)]
struct FillerDoc {
    #[serde(rename = "_id")]
    id: i32,
    filler: String,
}

impl Store {
    /// Reads the document, and makes it the first time.
    pub async fn bench_find_one(&self) -> Result<String> {
        let documents = self.coll::<FillerDoc>(COLLECTION);
        if let Some(found) = documents.find_one(doc! { "_id": 1 }).await? {
            return Ok(found.filler);
        }
        let new = FillerDoc { id: 1, filler: "x".repeat(4_000) };
        match documents.insert_one(&new).await {
            Ok(_) => Ok(new.filler),
            Err(error) if is_duplicate_key(&error) => Ok(new.filler),
            Err(error) => Err(error.into()),
        }
    }
}
