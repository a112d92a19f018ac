//! Edge lists: reading one as a whole or refusing it, and writing one.
//!
//! The form is that of the public graph collections: a header `id_1,id_2`, then one edge a line, plain or gzipped. `id_1` follows
//! `id_2`; in a mutual list each line means both directions. The same file is loaded by `rookery import`, which has the last word on
//! it; it is read here to know who has how many followers.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use flate2::read::MultiGzDecoder;

/// `(follower, followee)`, as numbered in the file.
pub(crate) type Edge = (u64, u64);

const HEADER: &str = "id_1,id_2";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads a file, gzipped or plain by its first bytes. Every edge is there once, in the order of the file, however often it is named.
///
/// # Errors
/// The first line that is wrong, with its number (the header is line 1) and why.
pub(crate) fn read(path: &Path, mutual: bool) -> Result<Vec<Edge>> {
    let shown = path.display();
    let mut file = BufReader::new(File::open(path).with_context(|| format!("cannot open {shown}"))?);
    let gzipped = file.fill_buf().with_context(|| format!("cannot read {shown}"))?.starts_with(&GZIP_MAGIC);
    let reader: Box<dyn Read> = if gzipped { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    parse(BufReader::new(reader), mutual).with_context(|| shown.to_string())
}

fn parse(reader: impl BufRead, mutual: bool) -> Result<Vec<Edge>> {
    let mut lines = reader.lines();
    let header = lines.next().context("line 1: the file is empty, it should begin with `id_1,id_2`")?.context("line 1")?;
    if header.trim_end() != HEADER {
        bail!("line 1: the header is not `{HEADER}`");
    }
    let mut seen = HashSet::new();
    let mut edges = Vec::new();
    for (line, number) in lines.zip(2_u64..) {
        let line = line.with_context(|| format!("line {number}"))?;
        let (follower, followee) = edge(line.trim_end()).with_context(|| format!("line {number}"))?;
        let both = [(follower, followee), (followee, follower)];
        edges.extend(both.into_iter().take(if mutual { 2 } else { 1 }).filter(|edge| seen.insert(*edge)));
    }
    Ok(edges)
}

fn edge(line: &str) -> Result<Edge> {
    let number = |text: &str| {
        // `parse` would take a sign.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).with_context(|| format!("`{text}` is not an account number"))
    };
    let Some((follower, followee)) = line.split_once(',') else { bail!("not two numbers with a comma between") };
    let (follower, followee) = (number(follower)?, number(followee)?);
    if follower == followee {
        bail!("account {follower} cannot follow itself");
    }
    Ok((follower, followee))
}

/// Writes a plain edge list that [`read`] reads back.
pub(crate) fn write(path: &Path, edges: &[Edge]) -> Result<()> {
    let shown = path.display();
    let mut file = BufWriter::new(File::create(path).with_context(|| format!("cannot make {shown}"))?);
    writeln!(file, "{HEADER}")?;
    for (follower, followee) in edges {
        writeln!(file, "{follower},{followee}")?;
    }
    file.flush().with_context(|| format!("cannot write {shown}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn refusal(text: &str) -> String {
        format!("{:#}", parse(text.as_bytes(), false).unwrap_err())
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
        assert!(format!("{error:#}").starts_with("line 3:"), "{error:#}");
    }

    #[test]
    fn what_is_written_is_read_back_plain_and_gzipped() {
        let folder = tempfile::tempdir().unwrap();
        let edges = [(5, 1), (1, 5), (2, 1)];
        let plain = folder.path().join("edges.csv");
        write(&plain, &edges).unwrap();
        assert_eq!(read(&plain, false).unwrap(), edges);

        // Known by its content, whatever its name.
        let zipped = folder.path().join("edges");
        let mut encoder = GzEncoder::new(File::create(&zipped).unwrap(), Compression::fast());
        encoder.write_all(&std::fs::read(&plain).unwrap()).unwrap();
        encoder.finish().unwrap();
        assert_eq!(read(&zipped, false).unwrap(), edges);
    }

    #[test]
    fn a_gzip_file_cut_short_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"id_1,id_2\n1,2\n3,4\n").unwrap();
        let bytes = encoder.finish().unwrap();
        let path = folder.path().join("cut.csv.gz");
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        assert!(read(&path, false).is_err());
    }
}
