//! Texts: normalisation, limits, tags and mentions.
