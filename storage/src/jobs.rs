//! Jobs: background work that outlives the request that asked for it, and the process that began it.
//!
//! A job is a document with ids for a payload. A worker claims it with a lease, does a bounded batch of it, and notes how far it has come
//! in a write filtered by the lease, so that a worker which lost it (a pause longer than the lease) is fenced. What fails is
//! put off, for longer each time, and parked in the end, where an administrator sees it. A job's batches are idempotent: a
//! crash between a batch and its note repeats the batch. After a turn the job goes to the back of the queue, so that a large one holds
//! up no small one.
//!
//! What the batches do is the business of their kind: [`crate::deletion`], [`crate::rename`], [`crate::verify`].

use std::{convert::Infallible, time::Duration};

use bson::{Document, doc};
use futures::{TryStreamExt as _, future::join_all};
use mongodb::{ClientSession, options::ReturnDocument};
use rookery_domain::{
    JobId, Limit, Page, UserId,
    jobs::{Finding, Job, JobKind, JobState},
    page::TimeCursor,
};
use serde::{Deserialize, Serialize};

use crate::{
    Result, Store,
    collections::JOBS,
    pending::Progress,
    store::{b, date, new_id, now, timestamp},
    time_page::{self, Extent},
    verify::Findings,
};

/// Jobs that one step does side by side.
const SIDE_BY_SIDE: usize = 4;

/// Batches of one job before it goes to the back of the queue.
const TURN: usize = 10;

/// How long a claim lasts: long against a batch, which renews it, short against a person's patience after a crash.
const CLAIM: Duration = Duration::from_secs(10);

/// Attempts in a row without progress after which a job is parked: some two minutes.
const ATTEMPTS: i32 = 15;

/// The pause after the first failed attempt; each further one doubles it, up to the claim's length.
const BACKOFF_MS: u64 = 100;

/// The pause of a job that waits for other background work.
const WAIT: Duration = Duration::from_millis(100);

/// A job as the database holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    kind: JobKindDoc,
    payload: PayloadDoc,
    state: JobStateDoc,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseDoc>,
    attempts: i32,
    progress: i64,
    created_at: bson::DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_after: Option<bson::DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<bson::DateTime>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    findings: Vec<FindingDoc>,
}

/// What a check found of one kind of drift.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FindingDoc {
    kind: String,
    found: i64,
    repaired: i64,
    examples: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum JobKindDoc {
    Deletion,
    Rename,
    Verify,
    Repair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum JobStateDoc {
    Pending,
    Done,
    Parked,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PayloadDoc {
    user_id: bson::Uuid,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct LeaseDoc {
    owner: bson::Uuid,
    until: bson::DateTime,
}

/// How far a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// What it is at.
    pub stage: Stage,
    /// Which time it is at that.
    pub pass: i32,
    /// The number to go on from, where the stage goes by numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// The id to go on behind, where the stage goes by ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<bson::Uuid>,
}

impl Checkpoint {
    /// The beginning of a stage.
    pub(crate) const fn at(stage: Stage, pass: i32) -> Self {
        Self { stage, pass, seq: None, id: None }
    }
}

/// What a job goes through. Each kind of job has its own order of those that concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Stage {
    Sessions,
    Followers,
    Following,
    Blocks,
    Posts,
    Comments,
    Likes,
    Reposts,
    Bookmarks,
    Mentions,
    Notifications,
    Timeline,
    Stats,
    Account,
    Accounts,
    Mutes,
    Requests,
    Outliers,
    Replies,
    Revisions,
    CommentLikes,
    Copies,
    Windows,
    Pending,
}

/// What one batch did, and what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Documents dealt with.
    pub items: usize,
    /// How the job goes on.
    pub then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// There is more, from here.
    On(Checkpoint),
    /// Other background work is at what comes next: again a moment later.
    Wait,
    /// The job is done.
    Finished,
}

impl JobDoc {
    /// A job that is to be done at once.
    fn new(kind: JobKind, user: UserId) -> Self {
        let at = date(now());
        Self {
            id: b(new_id()),
            kind: match kind {
                JobKind::Deletion => JobKindDoc::Deletion,
                JobKind::Rename => JobKindDoc::Rename,
                JobKind::Verify => JobKindDoc::Verify,
                JobKind::Repair => JobKindDoc::Repair,
            },
            payload: PayloadDoc { user_id: b(user) },
            state: JobStateDoc::Pending,
            checkpoint: None,
            lease: None,
            attempts: 0,
            progress: 0,
            created_at: at,
            run_after: Some(at),
            finished_at: None,
            findings: Vec::new(),
        }
    }

    /// Batches before it goes to the back of the queue. One of a check is as long as ten of another.
    fn turn(&self) -> usize {
        match self.kind {
            JobKindDoc::Deletion | JobKindDoc::Rename => TURN,
            JobKindDoc::Verify | JobKindDoc::Repair => 1,
        }
    }
}

impl From<FindingDoc> for Finding {
    fn from(FindingDoc { kind, found, repaired, examples }: FindingDoc) -> Self {
        Self { kind, found, repaired, examples }
    }
}

impl From<Finding> for FindingDoc {
    fn from(Finding { kind, found, repaired, examples }: Finding) -> Self {
        Self { kind, found, repaired, examples }
    }
}

/// Adds what a check has found so far to a note of its job.
fn note_findings(job: &JobDoc, note: &mut Document) -> Result<()> {
    if !job.findings.is_empty() {
        let findings = job.findings.iter().map(bson::serialize_to_document).collect::<Result<Vec<_>, _>>();
        note.get_document_mut("$set")
            .map_err(mongodb::error::Error::custom)?
            .insert("findings", findings.map_err(mongodb::error::Error::from)?);
    }
    Ok(())
}

impl From<JobDoc> for Job {
    fn from(job: JobDoc) -> Self {
        Self {
            id: JobId(job.id.into()),
            kind: match job.kind {
                JobKindDoc::Deletion => JobKind::Deletion,
                JobKindDoc::Rename => JobKind::Rename,
                JobKindDoc::Verify => JobKind::Verify,
                JobKindDoc::Repair => JobKind::Repair,
            },
            user: UserId(job.payload.user_id.into()),
            state: match job.state {
                JobStateDoc::Pending => JobState::Pending,
                JobStateDoc::Done => JobState::Done,
                JobStateDoc::Parked => JobState::Parked,
            },
            attempts: job.attempts,
            progress: job.progress,
            run_after: job.run_after.map(timestamp),
            finished_at: job.finished_at.map(timestamp),
            findings: job.findings.into_iter().map(Finding::from).collect(),
        }
    }
}

impl Store {
    /// A page of the jobs, newest first. Those that were done more than 30 days ago are gone.
    pub async fn jobs(&self, limit: Limit, cursor: Option<TimeCursor>) -> Result<Page<Job, TimeCursor>> {
        // So few that one slice holds them all.
        let at = now();
        let extent = Extent { first: at, total: 0, now: at };
        time_page::newest_first(cursor, limit, extent, async |slice| {
            let found = self.coll::<JobDoc>(JOBS).find(slice.of(&doc! {})).sort(slice.sort()).limit(slice.most).await?;
            Ok(found.map_ok(|job| (job.id.into(), job.into())).try_collect().await?)
        })
        .await
    }

    /// Asks for a check of every invariant, and where `repair` says so for mending what does not hold.
    pub async fn start_check(&self, by: UserId, repair: bool) -> Result<JobId> {
        let job = JobDoc::new(if repair { JobKind::Repair } else { JobKind::Verify }, by);
        self.coll::<JobDoc>(JOBS).insert_one(&job).await?;
        self.wake().jobs.notify_one();
        Ok(JobId(job.id.into()))
    }

    /// Asks for a job in a transaction that also writes why it is needed: a crash leaves both or neither. Wake the worker after the
    /// commit.
    pub(crate) async fn insert_job(&self, kind: JobKind, user: UserId, session: &mut ClientSession) -> Result<JobId> {
        let job = JobDoc::new(kind, user);
        self.coll::<JobDoc>(JOBS).insert_one(&job).session(session).await?;
        Ok(JobId(job.id.into()))
    }

    /// One round of the job worker: a turn of each of the few jobs that have waited longest. The number is that of documents.
    pub async fn jobs_step(&self) -> Result<Progress> {
        let mut claimed = Vec::new();
        while claimed.len() < SIDE_BY_SIDE
            && let Some(job) = self.claim_job().await?
        {
            claimed.push(job);
        }
        if claimed.is_empty() {
            return Ok(Progress::Idle);
        }
        // Each for itself: a fault with one holds up nobody else.
        let (mut items, mut fault) = (0, None);
        for turn in join_all(claimed.into_iter().map(|job| Box::pin(self.job_turn(job)))).await {
            match turn {
                Ok(did) => items += did,
                Err(error) => fault = Some(error),
            }
        }
        match fault {
            Some(fault) => Err(fault),
            // A job that found nothing to do is work too.
            None => Ok(Progress::Did(items.max(1))),
        }
    }

    /// Claims the job that has waited longest. The claim is in `runAfter` too: a crashed worker's job comes up again by itself.
    pub(crate) async fn claim_job(&self) -> Result<Option<JobDoc>> {
        let at = now();
        let until = date(at.plus(CLAIM));
        let due = doc! { "state": "pending", "runAfter": { "$lte": date(at) } };
        let claim = doc! {
            "$set": { "lease": { "owner": bson::Uuid::new(), "until": until }, "runAfter": until },
            "$inc": { "attempts": 1 },
        };
        let jobs = self.coll::<JobDoc>(JOBS);
        let claimed = jobs.find_one_and_update(due, claim).sort(doc! { "runAfter": 1 }).return_document(ReturnDocument::After);
        Ok(claimed.await?)
    }

    /// A turn of a claimed job. Gives the number of documents dealt with.
    async fn job_turn(&self, mut job: JobDoc) -> Result<usize> {
        let mut items = 0;
        for _ in 0..job.turn() {
            let claimed = job.clone();
            // A batch may be longer than a claim: that of an account with a million followers.
            let batch = tokio::select! {
                batch = self.job_batch(&mut job) => batch,
                never = self.keep_claim(&claimed) => match never {},
            };
            let batch = match batch {
                Ok(batch) => batch,
                Err(fault) => {
                    self.put_job_off(&job).await?;
                    return Err(fault);
                }
            };
            items += batch.items;
            let stands = match batch.then {
                Then::On(checkpoint) => self.advance_job(&mut job, checkpoint, batch.items).await?,
                Then::Wait => {
                    self.release_job(&job, WAIT).await?;
                    false
                }
                Then::Finished => {
                    self.finish_job(&job, batch.items).await?;
                    false
                }
            };
            if !stands {
                return Ok(items);
            }
        }
        self.release_job(&job, Duration::ZERO).await?;
        Ok(items)
    }

    /// Renews the claim on a job again and again. Where it is lost, the next note finds that.
    async fn keep_claim(&self, job: &JobDoc) -> Infallible {
        loop {
            tokio::time::sleep(CLAIM / 3).await;
            let until = date(now().plus(CLAIM));
            if let Err(fault) = self.write_job(job, doc! { "$set": { "lease.until": until, "runAfter": until } }).await {
                tracing::warn!(job = %job.id, error = &fault as &dyn std::error::Error, "a claim was not renewed");
            }
        }
    }

    /// One batch of a claimed job.
    pub(crate) async fn job_batch(&self, job: &mut JobDoc) -> Result<Batch> {
        let user = UserId(job.payload.user_id.into());
        match job.kind {
            JobKindDoc::Verify | JobKindDoc::Repair => {
                let mut findings = Findings::from(job.findings.iter().cloned().map(Finding::from).collect::<Vec<_>>());
                let batch = self.check_batch(job.checkpoint, job.kind == JobKindDoc::Repair, &mut findings).await?;
                job.findings = Vec::from(findings).into_iter().map(FindingDoc::from).collect();
                Ok(batch)
            }
            JobKindDoc::Deletion => self.deletion_batch(user, job.checkpoint).await,
            JobKindDoc::Rename => self.rename_batch(user, job.checkpoint, timestamp(job.created_at)).await,
        }
    }

    /// Notes how far a job has come, if the claim still stands, and renews it.
    pub(crate) async fn advance_job(&self, job: &mut JobDoc, checkpoint: Checkpoint, items: usize) -> Result<bool> {
        let until = date(now().plus(CLAIM));
        let noted = bson::serialize_to_document(&checkpoint).map_err(mongodb::error::Error::from)?;
        let mut note = doc! {
            "$set": { "checkpoint": noted, "lease.until": until, "runAfter": until, "attempts": 0 },
            "$inc": { "progress": i64::try_from(items).unwrap_or(i64::MAX) },
        };
        note_findings(job, &mut note)?;
        (job.checkpoint, job.attempts) = (Some(checkpoint), 0);
        self.write_job(job, note).await
    }

    /// Gives a job back, to be taken up after a pause.
    async fn release_job(&self, job: &JobDoc, pause: Duration) -> Result<()> {
        let back = doc! { "$set": { "runAfter": date(now().plus(pause)), "attempts": 0 }, "$unset": { "lease": "" } };
        self.write_job(job, back).await?;
        Ok(())
    }

    async fn finish_job(&self, job: &JobDoc, items: usize) -> Result<()> {
        let mut done = doc! {
            "$set": { "state": "done", "finishedAt": date(now()), "attempts": 0 },
            "$inc": { "progress": i64::try_from(items).unwrap_or(i64::MAX) },
            "$unset": { "lease": "", "runAfter": "", "checkpoint": "" },
        };
        note_findings(job, &mut done)?;
        self.write_job(job, done).await?;
        Ok(())
    }

    /// Puts a failed job off, for longer each time, and parks it in the end.
    async fn put_job_off(&self, job: &JobDoc) -> Result<()> {
        let next = if job.attempts >= ATTEMPTS {
            metrics::counter!("jobs_parked_total").increment(1);
            tracing::error!(job = %job.id, attempts = job.attempts, "a job is parked");
            doc! { "$set": { "state": "parked" }, "$unset": { "lease": "", "runAfter": "" } }
        } else {
            let pause = Duration::from_millis(BACKOFF_MS.saturating_mul(1 << job.attempts.clamp(0, 16))).min(CLAIM);
            doc! { "$set": { "runAfter": date(now().plus(pause)) }, "$unset": { "lease": "" } }
        };
        self.write_job(job, next).await?;
        Ok(())
    }

    /// Lets the claims of crashed workers lapse now.
    #[cfg(test)]
    pub(crate) async fn lapse_job_claims(&self) -> Result<()> {
        let lapse = doc! { "$set": { "runAfter": date(now().minus(Duration::from_secs(1))) } };
        self.coll::<JobDoc>(JOBS).update_many(doc! { "state": "pending" }, lapse).await?;
        Ok(())
    }

    /// Does all jobs to their end, and what they leave to the appliers.
    #[cfg(test)]
    pub(crate) async fn finish_jobs(&self) -> Result<()> {
        loop {
            let worked = [
                self.jobs_step().await?,
                self.apply_follows_step().await?,
                self.apply_posts_step().await?,
                self.apply_comments_step().await?,
                self.apply_reactions_step().await?,
                self.sweep_likes_step().await?,
                self.merge_step().await?,
                self.deliver_step().await?,
            ];
            let unfinished = self.coll::<JobDoc>(JOBS).find_one(doc! { "state": "pending" }).await?;
            if worked == [Progress::Idle; 8] && unfinished.is_none() {
                return Ok(());
            }
        }
    }

    /// Writes a job as long as the claim on it stands. False: it is lost.
    async fn write_job(&self, job: &JobDoc, change: Document) -> Result<bool> {
        let held = doc! { "_id": job.id, "lease.owner": job.lease.map(|lease| lease.owner) };
        Ok(self.coll::<JobDoc>(JOBS).update_one(held, change).await?.matched_count == 1)
    }
}
