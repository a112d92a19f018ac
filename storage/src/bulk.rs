//! Many update statements in one command.
//!
//! The driver's own `bulk_write` needs a server of version 8; the `update` command with many statements is older than all supported
//! versions and costs one round trip, inside a transaction or out of one. The command's reply carries errors of single statements,
//! which `run_command` does not look at: that is done here.

use bson::{Bson, Document, doc};
use mongodb::{ClientSession, error::ErrorKind};
use serde::Deserialize;

use crate::{Error, Result, Store};

/// One statement: a filter and an update (or the stages of one), whether a document is made where none matches, and whether all that
/// match are updated or the first.
#[derive(Debug)]
pub(crate) struct Statement {
    pub filter: Document,
    pub update: Bson,
    pub upsert: bool,
    pub multi: bool,
}

impl Statement {
    pub(crate) fn update(filter: Document, update: Document) -> Self {
        Self { filter, update: update.into(), upsert: false, multi: false }
    }

    pub(crate) fn upsert(filter: Document, update: Document) -> Self {
        Self { filter, update: update.into(), upsert: true, multi: false }
    }

    /// One update of all documents that match.
    pub(crate) fn update_many(filter: Document, update: impl Into<Bson>) -> Self {
        Self { filter, update: update.into(), upsert: false, multi: true }
    }
}

#[derive(Debug, Deserialize)]
struct Reply {
    n: i64,
    #[serde(default, rename = "writeErrors")]
    write_errors: Vec<WriteError>,
}

/// A statement that did nothing.
#[derive(Debug, Deserialize)]
pub(crate) struct WriteError {
    /// Its place in the list.
    #[serde(default)]
    pub index: usize,
    pub code: i32,
    pub errmsg: String,
}

/// Statements in one command: the server takes 100,000, the bound here keeps a command's size (about 300 bytes each) well below 16 MB.
const MOST: usize = 1_000;

const WRITE_CONFLICT: i32 = 112;

impl Store {
    /// Runs the statements inside a transaction, in order of the list, and gives the number of documents matched or made.
    pub(crate) async fn update_all(
        &self,
        session: &mut ClientSession,
        collection: &str,
        statements: Vec<Statement>,
    ) -> Result<i64> {
        let mut matched = 0;
        for part in chunks(statements) {
            let reply = self.db().run_command(command(collection, part)).session(&mut *session).await?;
            matched += read(reply)?;
        }
        Ok(matched)
    }

    /// Runs the statements, at most [`MOST`], outside of any transaction and each for itself, and gives those that failed. The command is
    /// sent once: an error says that nobody knows which of them were done, unless [`crate::error::is_unsent`].
    pub(crate) async fn update_each(
        &self,
        collection: &str,
        statements: Vec<Statement>,
    ) -> Result<Vec<WriteError>, mongodb::error::Error> {
        let mut command = command(collection, statements);
        // `run_command` adds neither of what the client's own writes have.
        command.extend(doc! { "ordered": false, "writeConcern": { "w": "majority", "j": true } });
        let reply = self.db().run_command(command).await?;
        let reply: Reply = bson::deserialize_from_document(reply)?;
        Ok(reply.write_errors)
    }
}

fn chunks(mut statements: Vec<Statement>) -> Vec<Vec<Statement>> {
    let mut parts = Vec::with_capacity(statements.len() / MOST + 1);
    while statements.len() > MOST {
        let rest = statements.split_off(MOST);
        parts.push(std::mem::replace(&mut statements, rest));
    }
    if !statements.is_empty() {
        parts.push(statements);
    }
    parts
}

fn command(collection: &str, statements: Vec<Statement>) -> Document {
    let updates: Vec<Document> =
        statements.into_iter().map(|s| doc! { "q": s.filter, "u": s.update, "upsert": s.upsert, "multi": s.multi }).collect();
    doc! { "update": collection, "updates": updates, "ordered": true }
}

fn read(reply: Document) -> Result<i64> {
    let reply: Reply = bson::deserialize_from_document(reply).map_err(mongodb::error::Error::from)?;
    match reply.write_errors.first() {
        None => Ok(reply.n),
        Some(error) => {
            let fault =
                mongodb::error::Error::from(ErrorKind::Custom(std::sync::Arc::new(format!("{}: {}", error.code, error.errmsg))));
            Err(if error.code == WRITE_CONFLICT { Error::Conflict(fault) } else { Error::Refused(fault) })
        }
    }
}
