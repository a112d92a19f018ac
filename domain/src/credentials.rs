//! Passwords: which are strong enough.
