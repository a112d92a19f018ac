//! What counting and deleting comments does to the post and to the tree: one pure function over a batch of comments and those of their
//! ancestors that it can touch.
//!
//! A comment has a sequence number exactly while it is *shown*: counted as a live comment, or, once deleted, as a tombstone that keeps
//! its shown replies in their place. A tombstone without shown replies is hidden: it gives its number back and is purged later; until
//! then a reply that was accepted while it was being deleted finds it and shows it again. Showing and hiding go up the tree as far as
//! there are tombstones. An ancestor is always numbered before its descendants, so a list in the order of the numbers has every parent
//! before its replies.
//!
//! The caller loads what [`Tree::unknown`] asks for until it asks for nothing, and then writes what [`Tree::settle`] says.

use std::collections::{BTreeMap, BTreeSet};

use crate::CommentId;

/// What is wanted of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentState {
    /// It is to be counted and shown.
    Live,
    /// Its author deleted it; this is not applied yet.
    Removed,
    /// It is deleted; shown while it has shown replies.
    Tombstone,
}

/// A comment as the tree sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The comment it answers.
    pub parent: Option<CommentId>,
    /// Its level, 0 without a parent.
    pub depth: i32,
    /// What is wanted of it.
    pub state: CommentState,
    /// Its place in the lists, while it is shown.
    pub seq: Option<i64>,
    /// Direct replies that are counted as live.
    pub replies: i64,
    /// Direct replies that are shown: live ones and tombstones.
    pub children: i64,
}

/// A batch of pending comments of one post, and the ancestors that it can touch.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    nodes: BTreeMap<CommentId, Node>,
    absent: BTreeSet<CommentId>,
    // Parents before their replies, then in the order of the ids.
    batch: BTreeSet<(i32, CommentId)>,
}

/// What is to be written so that everything in a batch is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// To add to the post's live comments.
    pub comments: i64,
    /// To add to the post's shown tombstones.
    pub tombstones: i64,
    /// The last sequence number that was given out.
    pub last_seq: i64,
    /// Comments that are shown from now on, with their numbers, in ascending order.
    pub numbered: Vec<(CommentId, i64)>,
    /// Those of the numbered that are live: candidates for the subset, in the order of their numbers.
    pub counted: Vec<CommentId>,
    /// Comments whose deletion is applied: their text and author go, and they leave the subset.
    pub buried: Vec<CommentId>,
    /// Tombstones that are no longer shown: they give their number back and are purged later.
    pub hidden: Vec<CommentId>,
    /// What to add to a comment's replies and children.
    pub moved: BTreeMap<CommentId, Moved>,
    /// Comments that had been applied before.
    pub cleared: Vec<CommentId>,
    /// Replies to a comment that does not exist, which nobody was told of: to be deleted.
    pub dropped: Vec<CommentId>,
    /// Replies to a comment that itself is not applied yet: to be left as they are.
    pub waiting: Vec<CommentId>,
}

/// What stands above a comment that is to be shown.
enum Above {
    /// These hidden tombstones, from the nearest on; then one that is shown, or the post.
    Hidden(Vec<CommentId>),
    /// A comment that itself is not applied yet.
    NotApplied,
    /// A comment that does not exist.
    Unknown,
}

/// What to add to a comment's totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moved {
    /// To its live direct replies.
    pub replies: i64,
    /// To its shown direct replies.
    pub children: i64,
}

impl Tree {
    /// The tree of a batch of pending comments.
    pub fn new(batch: impl IntoIterator<Item = (CommentId, Node)>) -> Self {
        let nodes: BTreeMap<CommentId, Node> = batch.into_iter().collect();
        let batch = nodes.iter().map(|(id, node)| (node.depth, *id)).collect();
        Self { nodes, absent: BTreeSet::new(), batch }
    }

    /// The comments that must be known before the batch can be settled: the parents of the batch, and above a deleted comment its
    /// parent too, since showing and hiding go on there. Above a live one nothing changes.
    #[must_use]
    pub fn unknown(&self) -> Vec<CommentId> {
        let goes_on = |id: &CommentId, node: &Node| node.state != CommentState::Live || self.batch.contains(&(node.depth, *id));
        let parents = self.nodes.iter().filter(|(id, node)| goes_on(id, node)).filter_map(|(_, node)| node.parent);
        let unknown: BTreeSet<CommentId> = parents.filter(|id| !self.nodes.contains_key(id) && !self.absent.contains(id)).collect();
        unknown.into_iter().collect()
    }

    /// Takes in what was found of those that were `asked` for; the others do not exist.
    pub fn learn(&mut self, asked: &[CommentId], found: impl IntoIterator<Item = (CommentId, Node)>) {
        self.nodes.extend(found);
        self.absent.extend(asked.iter().filter(|id| !self.nodes.contains_key(id)));
    }

    /// Applies the batch to a post that has given out numbers up to `last_seq`.
    #[must_use]
    pub fn settle(mut self, last_seq: i64) -> Settled {
        let before = self.nodes.clone();
        let mut settled = Settled { last_seq, ..Settled::default() };
        for (_, id) in std::mem::take(&mut self.batch) {
            self.apply(id, &mut settled);
        }
        for (id, node) in &self.nodes {
            let Some(was) = before.get(id) else { continue };
            let moved = Moved { replies: node.replies - was.replies, children: node.children - was.children };
            if moved != Moved::default() {
                settled.moved.insert(*id, moved);
            }
            if was.state == CommentState::Removed && node.state == CommentState::Tombstone {
                settled.buried.push(*id);
            }
            match node.seq {
                Some(seq) if was.seq != node.seq => settled.numbered.push((*id, seq)),
                None if node.state == CommentState::Tombstone && (was.seq.is_some() || was.state == CommentState::Removed) => {
                    settled.hidden.push(*id);
                }
                _ => {}
            }
        }
        settled.numbered.sort_by_key(|(_, seq)| *seq);
        settled
    }

    fn apply(&mut self, id: CommentId, settled: &mut Settled) {
        let Some(node) = self.nodes.get(&id).copied() else { return };
        match (node.state, node.seq) {
            (CommentState::Live, None) => match self.hidden_above(node) {
                Above::Unknown => settled.dropped.push(id),
                Above::NotApplied => settled.waiting.push(id),
                Above::Hidden(path) => {
                    settled.comments += 1;
                    settled.tombstones += i64::try_from(path.len()).unwrap_or(i64::MAX);
                    settled.counted.push(id);
                    for id in path.into_iter().rev().chain([id]) {
                        self.show(id, settled);
                    }
                    self.change_parent(node.parent, |parent| parent.replies += 1);
                }
            },
            (CommentState::Removed, seq) => {
                self.change(id, |node| node.state = CommentState::Tombstone);
                if seq.is_some() {
                    settled.comments -= 1;
                    settled.tombstones += 1;
                    self.change_parent(node.parent, |parent| parent.replies -= 1);
                    self.hide_if_childless(id, settled);
                }
            }
            (CommentState::Live | CommentState::Tombstone, _) => settled.cleared.push(id),
        }
    }

    /// What stands between a comment and those above it that are shown.
    fn hidden_above(&self, node: Node) -> Above {
        let (mut path, mut at) = (Vec::new(), node.parent);
        while let Some(id) = at {
            match self.nodes.get(&id) {
                None => return Above::Unknown,
                Some(above) if above.seq.is_some() => break,
                Some(above) if above.state == CommentState::Tombstone => at = above.parent,
                Some(_) => return Above::NotApplied,
            }
            path.push(id);
        }
        Above::Hidden(path)
    }

    /// Gives `id`, whose parent is shown, its number.
    fn show(&mut self, id: CommentId, settled: &mut Settled) {
        settled.last_seq += 1;
        let seq = settled.last_seq;
        self.change(id, |node| node.seq = Some(seq));
        self.change_parent(self.nodes.get(&id).and_then(|node| node.parent), |parent| parent.children += 1);
    }

    /// Hides `id` if it is a shown tombstone without shown replies, and those above it that become so.
    fn hide_if_childless(&mut self, id: CommentId, settled: &mut Settled) {
        let mut at = Some(id);
        while let Some(id) = at {
            let Some(node) = self.nodes.get(&id).copied() else { return };
            if node.state != CommentState::Tombstone || node.seq.is_none() || node.children > 0 {
                return;
            }
            settled.tombstones -= 1;
            self.change(id, |node| node.seq = None);
            self.change_parent(node.parent, |parent| parent.children -= 1);
            at = node.parent;
        }
    }

    fn change_parent(&mut self, parent: Option<CommentId>, change: impl FnOnce(&mut Node)) {
        if let Some(parent) = parent {
            self.change(parent, change);
        }
    }

    fn change(&mut self, id: CommentId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&id) {
            change(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// A post and all its comments, as the database would hold them.
    #[derive(Debug, Default)]
    struct World {
        nodes: BTreeMap<CommentId, Node>,
        pending: BTreeSet<CommentId>,
        comments: i64,
        tombstones: i64,
        last_seq: i64,
        made: u128,
    }

    impl World {
        fn comment(&mut self, parent: Option<CommentId>) -> CommentId {
            self.made += 1;
            let id = CommentId(Uuid::from_u128(self.made));
            let depth = parent.and_then(|parent| self.nodes.get(&parent)).map_or(0, |parent| parent.depth + 1);
            self.nodes.insert(id, Node { parent, depth, state: CommentState::Live, seq: None, replies: 0, children: 0 });
            self.pending.insert(id);
            id
        }

        fn delete(&mut self, id: CommentId) {
            if let Some(node) = self.nodes.get_mut(&id)
                && node.state == CommentState::Live
            {
                node.state = CommentState::Removed;
                self.pending.insert(id);
            }
        }

        /// Settles as the store does, knowing only what the tree asks for.
        fn apply(&mut self, batch: &[CommentId]) -> Settled {
            let known = |ids: &[CommentId]| -> Vec<(CommentId, Node)> {
                ids.iter().filter_map(|id| Some((*id, *self.nodes.get(id)?))).collect()
            };
            let mut tree = Tree::new(known(batch));
            loop {
                let asked = tree.unknown();
                if asked.is_empty() {
                    break;
                }
                let found = known(&asked);
                tree.learn(&asked, found);
            }
            let settled = tree.settle(self.last_seq);
            self.comments += settled.comments;
            self.tombstones += settled.tombstones;
            self.last_seq = settled.last_seq;
            for (id, seq) in &settled.numbered {
                self.change(*id, |node| node.seq = Some(*seq));
            }
            for id in &settled.buried {
                self.change(*id, |node| node.state = CommentState::Tombstone);
            }
            for id in &settled.hidden {
                self.change(*id, |node| node.seq = None);
            }
            for (id, moved) in &settled.moved {
                self.change(*id, |node| {
                    node.replies += moved.replies;
                    node.children += moved.children;
                });
            }
            for id in &settled.dropped {
                self.nodes.remove(id);
            }
            self.pending.retain(|id| !batch.contains(id) || settled.waiting.contains(id));
            settled
        }

        fn change(&mut self, id: CommentId, change: impl FnOnce(&mut Node)) {
            if let Some(node) = self.nodes.get_mut(&id) {
                change(node);
            }
        }

        fn drain(&mut self) {
            while !self.pending.is_empty() {
                let all: Vec<CommentId> = self.pending.iter().copied().collect();
                let settled = self.apply(&all);
                assert!(settled.waiting.is_empty(), "with all of them in one batch nobody waits");
            }
        }

        /// Removes what the purge would: hidden tombstones that nothing answers.
        fn purge(&mut self) {
            let answered: BTreeSet<CommentId> = self.nodes.values().filter_map(|node| node.parent).collect();
            let pending = &self.pending;
            self.nodes.retain(|id, node| {
                node.state != CommentState::Tombstone || node.seq.is_some() || answered.contains(id) || pending.contains(id)
            });
        }

        fn node(&self, id: CommentId) -> Node {
            self.nodes[&id]
        }

        /// Counts everything anew and compares.
        fn check(&self) {
            let shown = |node: &&Node| node.seq.is_some();
            let counted = |node: &&Node| node.seq.is_some() && node.state != CommentState::Tombstone;
            let total = |of: &dyn Fn(&&Node) -> bool| i64::try_from(self.nodes.values().filter(of).count()).unwrap_or(-1);
            assert_eq!(self.comments, total(&counted), "comments");
            assert_eq!(self.comments + self.tombstones, total(&shown), "comments and tombstones");
            let numbers: BTreeSet<i64> = self.nodes.values().filter_map(|node| node.seq).collect();
            assert_eq!(i64::try_from(numbers.len()), Ok(total(&shown)), "no number twice");
            assert!(numbers.last() <= Some(&self.last_seq));
            for (id, node) in &self.nodes {
                assert_eq!(node.replies, total(&|n| n.parent == Some(*id) && counted(n)), "replies of {id}");
                assert_eq!(node.children, total(&|n| n.parent == Some(*id) && shown(n)), "children of {id}");
                if node.state == CommentState::Tombstone {
                    assert_eq!(node.seq.is_some(), node.children > 0, "a tombstone is shown while it has shown replies");
                }
                if let (Some(parent), Some(seq)) = (node.parent, node.seq) {
                    let above = self.nodes.get(&parent).and_then(|parent| parent.seq);
                    assert!(above.is_some_and(|above| above < seq), "a parent stands before its replies");
                }
            }
        }
    }

    /// One act in a world whose comments are named by their place among those there are.
    #[derive(Debug, Clone)]
    enum Act {
        Comment,
        Reply(usize),
        Delete(usize),
        Apply(Vec<usize>),
        Purge,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            2 => Just(Act::Comment),
            5 => any::<usize>().prop_map(Act::Reply),
            4 => any::<usize>().prop_map(Act::Delete),
            4 => prop::collection::vec(any::<usize>(), 1..6).prop_map(Act::Apply),
            1 => Just(Act::Purge),
        ];
        prop::collection::vec(act, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn the_totals_are_what_a_recount_finds(acts in acts()) {
            let mut world = World::default();
            for act in acts {
                let nth = |n: usize, of: &[CommentId]| of.get(n % of.len().max(1)).copied();
                let all: Vec<CommentId> = world.nodes.keys().copied().collect();
                match act {
                    Act::Comment => {
                        world.comment(None);
                    }
                    // Also under one deleted meanwhile: that is what a request does that read it while it was live.
                    Act::Reply(n) => {
                        world.comment(nth(n, &all));
                    }
                    Act::Delete(n) => nth(n, &all).into_iter().for_each(|id| world.delete(id)),
                    Act::Apply(picks) => {
                        let pending: Vec<CommentId> = world.pending.iter().copied().collect();
                        let batch: Vec<CommentId> = picks.iter().filter_map(|n| nth(*n, &pending)).collect();
                        world.apply(&batch);
                    }
                    Act::Purge => world.purge(),
                }
                world.check();
            }
            world.drain();
            world.check();
            prop_assert!(world.nodes.values().all(|node| node.state != CommentState::Live || node.seq.is_some()), "every live comment is counted");
            for id in world.nodes.keys().copied().collect::<Vec<_>>() {
                world.delete(id);
            }
            world.drain();
            world.check();
            prop_assert_eq!((world.comments, world.tombstones), (0, 0), "with the last comment all tombstones go");
        }
    }

    #[test]
    fn a_comment_deleted_before_it_was_counted_changes_no_total() {
        let mut world = World::default();
        let id = world.comment(None);
        world.delete(id);
        let settled = world.apply(&[id]);
        assert_eq!((settled.comments, settled.tombstones, settled.last_seq), (0, 0, 0));
        assert_eq!((settled.buried, settled.hidden), (vec![id], vec![id]));
        world.check();
    }

    #[test]
    fn a_deleted_comment_with_replies_stays_until_its_last_reply_goes() {
        let mut world = World::default();
        let root = world.comment(None);
        let middle = world.comment(Some(root));
        let tip = world.comment(Some(middle));
        world.drain();
        world.delete(root);
        world.delete(middle);
        world.drain();
        assert_eq!((world.comments, world.tombstones), (1, 2));
        assert_eq!((world.node(root).replies, world.node(root).children), (0, 1));
        world.delete(tip);
        let settled = world.apply(&[tip]);
        assert_eq!((settled.comments, settled.tombstones), (-1, -2), "both tombstones go with it");
        assert_eq!(settled.hidden, [root, middle, tip]);
        world.check();
    }

    #[test]
    fn a_reply_accepted_while_its_parent_was_deleted_shows_the_parent_again() {
        let mut world = World::default();
        let root = world.comment(None);
        let parent = world.comment(Some(root));
        world.drain();
        let reply = world.comment(Some(parent));
        world.delete(parent);
        world.delete(root);
        world.apply(&[root, parent]);
        assert_eq!((world.comments, world.tombstones), (0, 0), "both are hidden");
        let settled = world.apply(&[reply]);
        assert_eq!((settled.comments, settled.tombstones), (1, 2));
        assert_eq!(settled.numbered, [(root, 3), (parent, 4), (reply, 5)], "from the top");
        assert_eq!(settled.counted, [reply]);
        world.check();
    }

    #[test]
    fn a_reply_waits_for_its_parent() {
        let mut world = World::default();
        let parent = world.comment(None);
        let reply = world.comment(Some(parent));
        assert_eq!(world.apply(&[reply]).waiting, [reply]);
        assert_eq!(world.apply(&[reply, parent]).numbered, [(parent, 1), (reply, 2)], "in one batch the parent goes first");
        world.check();
    }

    #[test]
    fn a_reply_to_a_comment_that_never_was_is_dropped() {
        let mut world = World::default();
        let reply = world.comment(Some(CommentId(Uuid::from_u128(99))));
        assert_eq!(world.apply(&[reply]).dropped, [reply]);
        world.check();
    }

    #[test]
    fn above_a_live_comment_nothing_is_asked_for() {
        let mut world = World::default();
        let root = world.comment(None);
        let middle = world.comment(Some(root));
        let tip = world.comment(Some(middle));
        let mut tree = Tree::new([(tip, world.node(tip))]);
        assert_eq!(tree.unknown(), [middle]);
        tree.learn(&[middle], [(middle, world.node(middle))]);
        assert_eq!(tree.unknown(), []);
    }
}
