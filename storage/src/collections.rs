//! Names, validators and indexes of every collection.
