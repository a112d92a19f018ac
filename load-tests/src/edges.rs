//! Edge lists as files: reading one as a whole or refusing it, and writing one.
//!
//! `rookery import` loads the same file and has the last word on it; it is read here to know who has how many followers.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Read, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result};
use flate2::read::MultiGzDecoder;
pub(crate) use rookery_domain::edge_list::Edge;
use rookery_domain::edge_list::{HEADER, parse};

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

/// Writes a plain edge list that [`read`] reads back.
pub(crate) fn write(path: &Path, edges: impl IntoIterator<Item = Edge>) -> Result<()> {
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

    #[test]
    fn what_is_written_is_read_back_plain_and_gzipped() {
        let folder = tempfile::tempdir().unwrap();
        let edges = [(5, 1), (1, 5), (2, 1)];
        let plain = folder.path().join("edges.csv");
        write(&plain, edges).unwrap();
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
