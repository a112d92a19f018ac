//! Changing one's own account.

use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use rookery_domain::{Handle, UserId};

use crate::{
    Result, Store,
    collections::{FOLLOWS, USERS},
    graph::IdDoc,
    rename::Edited,
    search::SearchDoc,
    store::{b, commit, until_no_conflict},
    users::UserDoc,
};

/// What is to be changed; what is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileEdit {
    /// The handle, which nobody else may have.
    pub handle: Option<Handle>,
    /// The name to show, as [`rookery_domain::text::display_name`] gives it.
    pub display_name: Option<String>,
    /// A few words, as [`rookery_domain::text::bio`] gives them.
    pub bio: Option<String>,
    /// The address of a picture, as [`rookery_domain::text::avatar_url`] gives it, or no picture.
    pub avatar_url: Option<Option<String>>,
    /// Whether following needs consent.
    pub private: Option<bool>,
}

impl ProfileEdit {
    fn update(self) -> Document {
        let (mut set, mut unset) = (Document::new(), Document::new());
        if let Some(display_name) = self.display_name {
            let SearchDoc { name, keys } = SearchDoc::of(&display_name);
            set.insert("search", doc! { "name": name, "keys": keys });
            set.insert("displayName", display_name);
        }
        if let Some(bio) = self.bio {
            set.insert("bio", bio);
        }
        match self.avatar_url {
            Some(Some(url)) => drop(set.insert("avatarUrl", url)),
            Some(None) => drop(unset.insert("avatarUrl", "")),
            None => {}
        }
        match self.private {
            Some(true) => {
                set.insert("settings.private", true);
                unset.insert("opening", "");
            }
            Some(false) => {
                set.insert("settings.private", false);
                // Stays until everybody who had asked is accepted.
                set.insert("opening", 1_i64);
            }
            None => {}
        }
        let parts = [("$set", set), ("$unset", unset)];
        parts.into_iter().filter(|(_, fields)| !fields.is_empty()).map(|(part, fields)| (part.to_owned(), fields.into())).collect()
    }
}

impl Store {
    /// Changes an account and gives it as it is then. A handle first, since it may be taken; everything else in one write.
    ///
    /// The copies of its name and picture, in posts and comments, follow by a job.
    ///
    /// Going private keeps the followers, and with them the follows that are written and not applied yet. Going public accepts whoever
    /// has asked: a batch of them now, the rest by the applier.
    pub async fn edit_profile(&self, user: UserId, edit: ProfileEdit) -> Result<Edited> {
        if let Some(handle) = &edit.handle {
            match self.change_handle(user, handle).await? {
                Edited::Now(_) => {}
                refused => return Ok(refused),
            }
        }
        if edit.private == Some(true) {
            self.consent_to_pending(user).await?;
        }
        let goes_public = edit.private == Some(false);
        let Some(edited) = self.mark_edited(user, edit).await? else { return Ok(Edited::Gone) };
        if goes_public && until_no_conflict(|| self.accept_batch(user)).await?.is_some() {
            self.wake().merger.notify_one();
            self.leave_to_applier(async || {
                let pending = doc! { "pending": true, "followeeId": b(user) };
                Ok(self.coll::<IdDoc>(FOLLOWS).find_one(pending).projection(doc! { "_id": 1 }).await?.is_none())
            })
            .await?;
        }
        Ok(Edited::Now(edited.try_into()?))
    }

    /// Writes the account's own document.
    pub(crate) async fn mark_edited(&self, user: UserId, edit: ProfileEdit) -> Result<Option<UserDoc>> {
        let live = doc! { "_id": b(user), "state": "live" };
        let renames = edit.display_name.is_some() || edit.avatar_url.is_some();
        let update = edit.update();
        if update.is_empty() {
            return Ok(self.coll::<UserDoc>(USERS).find_one(live).await?);
        }
        let users = self.coll::<UserDoc>(USERS);
        let write = || users.find_one_and_update(live.clone(), update.clone()).return_document(ReturnDocument::After);
        if !renames {
            return until_no_conflict(async || Ok(write().await?)).await;
        }
        let edited = until_no_conflict(async || {
            // A transaction, so that a crash cannot leave the copies without the job that rewrites them.
            let mut session = self.begin().await?;
            let edited = write().session(&mut session).await?;
            if edited.is_some() {
                self.enqueue_rename(user, &mut session).await?;
                commit(session).await?;
            }
            Ok(edited)
        })
        .await?;
        self.wake().jobs.notify_one();
        Ok(edited)
    }
}
