//! Finds and runs the database for development and tests.
