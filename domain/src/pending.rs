//! Wanted and applied: what the applier must do with a child.
//!
//! A child (a follow, a post, a comment, a reaction) says what is *wanted* by its state and what is *applied* by its `seq`: it has
//! one exactly while its parent counts it. A request writes only what is wanted, and marks the child `pending`; the applier moves
//! the parent by the difference. Both facts live on the child, so a crash between the two writes loses nothing, and a child that
//! changed its mind twice before it was applied has no effect at all.

/// The one step that makes what is applied equal to what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Give the child the next `seq` and add one to the parent.
    Count,
    /// Take one from the parent and delete the child.
    Uncount,
    /// Delete the child: the parent never counted it.
    Drop,
    /// Nothing but the `pending` mark to clear.
    Clear,
}

/// What to do with a child that is `wanted` or not, and `counted` or not.
#[must_use]
pub const fn step(wanted: bool, counted: bool) -> Step {
    match (wanted, counted) {
        (true, false) => Step::Count,
        (false, true) => Step::Uncount,
        (false, false) => Step::Drop,
        (true, true) => Step::Clear,
    }
}

/// Half of a batch that met a write conflict, down to one: somewhere in it is the document that others write, and a smaller
/// transaction meets fewer of them.
#[must_use]
pub const fn halved(batch: usize) -> usize {
    if batch < 2 { 1 } else { batch / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_changed_its_mind_before_it_was_applied_has_no_effect() {
        assert_eq!(step(false, false), Step::Drop, "an unfollow of a follow not yet applied");
        assert_eq!(step(true, true), Step::Clear, "a refollow before the removal was applied");
    }
}
