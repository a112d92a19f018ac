//! Children and parents.
