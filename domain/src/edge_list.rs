//! Edge lists: who follows whom, as the public graph collections write it.
//!
//! A header `id_1,id_2`, then one edge a line: account `id_1` follows `id_2`; in a mutual list each line means both directions. A list
//! is read as a whole or refused, so that a bad line loads nothing.

use std::{collections::HashSet, io::BufRead};

/// `(follower, followee)`, as numbered in the list.
pub type Edge = (u64, u64);

/// The first line of every list.
pub const HEADER: &str = "id_1,id_2";

/// The first line that is wrong, counted from 1, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLine {
    /// Which line; the header is line 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a list. Every edge is there once, in the order of the list, however often it is named.
///
/// # Errors
/// The first line that is wrong.
pub fn parse(reader: impl BufRead, mutual: bool) -> Result<Vec<Edge>, BadLine> {
    let (mut seen, mut edges, mut lines) = (HashSet::new(), Vec::new(), 0);
    for (line, number) in reader.lines().zip(1..) {
        let bad = |why: String| BadLine { line: number, why };
        let line = line.map_err(|error| bad(error.to_string()))?;
        lines = number;
        if number == 1 {
            if line.trim_end() != HEADER {
                return Err(bad(format!("the header is not `{HEADER}`")));
            }
            continue;
        }
        let (follower, followee) = edge(line.trim_end()).map_err(bad)?;
        let both = [(follower, followee), (followee, follower)];
        edges.extend(both.into_iter().take(if mutual { 2 } else { 1 }).filter(|edge| seen.insert(*edge)));
    }
    if lines == 0 {
        return Err(BadLine { line: 1, why: format!("the file is empty, it should begin with `{HEADER}`") });
    }
    Ok(edges)
}

fn edge(line: &str) -> Result<Edge, String> {
    let number = |text: &str| {
        // `parse` would take a sign.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).ok_or_else(|| format!("`{text}` is not an account number"))
    };
    let (follower, followee) = line.split_once(',').ok_or("not two numbers with a comma between")?;
    let (follower, followee) = (number(follower)?, number(followee)?);
    if follower == followee { Err(format!("account {follower} cannot follow itself")) } else { Ok((follower, followee)) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use super::*;

    fn refusal(text: &str) -> String {
        parse(text.as_bytes(), false).unwrap_err().to_string()
    }

    #[test]
    fn a_directed_list_keeps_its_direction_and_its_order() {
        assert_eq!(parse("id_1,id_2\n3,1\n1,2\n".as_bytes(), false).unwrap(), [(3, 1), (1, 2)]);
    }

    #[test]
    fn a_mutual_list_has_both_directions_once() {
        assert_eq!(parse("id_1,id_2\r\n0,1\r\n1,0\r\n".as_bytes(), true).unwrap(), [(0, 1), (1, 0)]);
    }

    #[test]
    fn a_bad_line_is_named_with_its_number_and_why() {
        for (text, why) in [
            ("", "line 1: the file is empty"),
            ("a,b\n1,2\n", "line 1: the header"),
            ("id_1,id_2\n1,2\n3\n", "line 3: not two numbers"),
            ("id_1,id_2\n1,2\n\n", "line 3: not two numbers"),
            ("id_1,id_2\n1,x\n", "line 2: `x` is not an account number"),
            ("id_1,id_2\n1,+2\n", "line 2: `+2` is not an account number"),
            ("id_1,id_2\n1,2,3\n", "line 2: `2,3` is not an account number"),
            ("id_1,id_2\n1,99999999999999999999\n", "line 2: `99999999999999999999` is not an account number"),
            ("id_1,id_2\n7,7\n", "line 2: account 7 cannot follow itself"),
        ] {
            assert!(refusal(text).starts_with(why), "{text:?}: {}", refusal(text));
        }
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_named_with_its_number() {
        let error = parse(&b"id_1,id_2\n1,2\n\xff\n"[..], false).unwrap_err();
        assert_eq!(error.line, 3);
    }
}
