//! Texts: normalisation, limits, tags and mentions. Every field that people write goes through here, once, when it is written.
//!
//! A text is composed (NFC), its line ends are newlines, and it is trimmed; then it is measured. The unit is the grapheme cluster
//! (UAX #29), what a reader takes for one character: a flag, a family and a letter with its marks count one. Since one cluster may
//! hold any number of marks, a ceiling of [`BYTES_PER_GRAPHEME`] for each allowed cluster bounds what is stored. Normalising what
//! was normalised changes nothing, so that a text may be sent back as it was read.

use std::collections::HashSet;

use unicode_normalization::{UnicodeNormalization as _, char::canonical_combining_class};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::{Handle, handle};

/// The most grapheme clusters of a post.
pub const POST_MOST: usize = 500;
/// The most grapheme clusters of a comment.
pub const COMMENT_MOST: usize = 300;
/// The most grapheme clusters of the words about an account.
pub const BIO_MOST: usize = 200;
/// The most grapheme clusters of a display name.
pub const DISPLAY_NAME_MOST: usize = 50;
/// The most bytes of the address of a picture.
pub const AVATAR_URL_MOST: usize = 500;
/// Bytes of UTF-8 for each allowed grapheme cluster: room for a text of flags, skin tones or stacked marks (5 to 8 bytes each), not
/// for one cluster of megabytes.
pub const BYTES_PER_GRAPHEME: usize = 10;
/// The most characters of a name that is searched for: twice the longest usual name, and a bound on what an index holds.
pub const SEARCHED_MOST: usize = 100;
/// The most tags taken from one text: more is no longer about anything, and each is an index entry.
pub const TAGS_MOST: usize = 50;
/// The most mentions taken from one text: each is a notification to somebody and, with the longest names, 1 KB of the post.
pub const MENTIONS_MOST: usize = 20;

/// Why a text is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// Nothing in it can be seen: only white space, zero-width characters and marks of direction.
    #[error("must have something visible in it")]
    Empty,
    /// It has more grapheme clusters than the field takes.
    #[error("must have at most {most} characters (grapheme clusters)")]
    TooLong {
        /// The most grapheme clusters.
        most: usize,
    },
    /// It has more bytes than the field takes, whatever the number of its grapheme clusters.
    #[error("must have at most {most} bytes in UTF-8")]
    TooManyBytes {
        /// The most bytes.
        most: usize,
    },
    /// It has control characters that the field does not take.
    #[error("must not have control characters")]
    Control,
    /// It is no http or https address.
    #[error("must be an http or https address")]
    NoAddress,
}

impl TextFault {
    /// The name on the wire, which never changes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLong { .. } => "too_long",
            Self::TooManyBytes { .. } => "too_many_bytes",
            Self::Control => "control_character",
            Self::NoAddress => "invalid_url",
        }
    }
}

/// The text of a post, in the form it is stored in.
///
/// # Errors
/// A [`TextFault`] for what is not 1 to [`POST_MOST`] grapheme clusters with something visible and no controls.
pub fn post(text: &str) -> Result<String, TextFault> {
    visible(long(text, POST_MOST)?)
}

/// The text of a comment, in the form it is stored in.
///
/// # Errors
/// A [`TextFault`] for what is not 1 to [`COMMENT_MOST`] grapheme clusters with something visible and no controls.
pub fn comment(text: &str) -> Result<String, TextFault> {
    visible(long(text, COMMENT_MOST)?)
}

/// The words about an account, in the form they are stored in: empty, or something visible.
///
/// # Errors
/// A [`TextFault`] for more than [`BIO_MOST`] grapheme clusters, controls, or characters none of which can be seen.
pub fn bio(text: &str) -> Result<String, TextFault> {
    let text = long(text, BIO_MOST)?;
    if text.is_empty() { Ok(text) } else { visible(text) }
}

/// A display name, in the form it is stored in. It is one line: newlines, tabs and other separators of lines are refused.
///
/// # Errors
/// A [`TextFault`] for what is not 1 to [`DISPLAY_NAME_MOST`] grapheme clusters on one line with something visible.
pub fn display_name(text: &str) -> Result<String, TextFault> {
    let name = visible(long(text, DISPLAY_NAME_MOST)?)?;
    if name.contains(['\n', '\t', '\u{2028}', '\u{2029}']) { Err(TextFault::Control) } else { Ok(name) }
}

/// The address of a picture, in the form it is stored in: ASCII, with everything else percent-encoded or in Punycode, so that two
/// addresses that look alike differ.
///
/// # Errors
/// [`TextFault::TooManyBytes`] past [`AVATAR_URL_MOST`], [`TextFault::NoAddress`] for anything but an http(s) address with a host.
pub fn avatar_url(text: &str) -> Result<String, TextFault> {
    let most = AVATAR_URL_MOST;
    if text.len() > most {
        return Err(TextFault::TooManyBytes { most });
    }
    // The parser would drop them silently.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(TextFault::NoAddress);
    }
    let url = url::Url::parse(text).map_err(|_| TextFault::NoAddress)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(TextFault::NoAddress);
    }
    let url = String::from(url);
    if url.len() > most { Err(TextFault::TooManyBytes { most }) } else { Ok(url) }
}

/// The tags of a text, folded, each once, in order, at most [`TAGS_MOST`].
///
/// A tag is `#` and a run of letters, digits, `_` and combining marks in any script, at least one of them a letter. The `#` stands
/// where a word could begin: not within one, and not after `/` or `&` (the fragment of an address, a character reference).
#[must_use]
pub fn tags(text: &str) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (before, rest) in starts(text, '#') {
        let begins_word = !before.is_some_and(|c| is_word(c) || matches!(c, '/' | '&'));
        let run = run(rest, is_word);
        if let (true, Some(tag)) = (begins_word, tag(run))
            && seen.insert(tag.clone())
        {
            found.push(tag);
            if found.len() == TAGS_MOST {
                break;
            }
        }
    }
    found
}

/// Reads the name of one tag, without its `#`, into the form that [`tags`] gives; none if it is no tag.
#[must_use]
pub fn tag(name: &str) -> Option<String> {
    // A mark cannot begin a word: it belongs to the `#` (the keycap, for one).
    let begins = name.chars().next().is_some_and(|c| is_word(c) && !is_mark(c));
    (begins && name.chars().all(is_word) && name.chars().any(is_letter)).then(|| fold(name))
}

/// The handles that a text mentions, each once, in order, at most [`MENTIONS_MOST`]. Whether anybody has them is for the caller to find out.
///
/// A mention is `@` and the longest run of ASCII letters, digits and `_`; more than 30 of them are none. It stands where a word could
/// begin and is not followed by what makes it a part of something longer: an e-mail address, an address of another server
/// (`@handle@host`), a word that goes on in letters which no handle has.
#[must_use]
pub fn mentions(text: &str) -> Vec<Handle> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (before, rest) in starts(text, '@') {
        let begins_word = !before.is_some_and(|c| is_word(c) || matches!(c, '/' | '=' | '+' | '-' | '@'));
        let run = run(rest, |c| c.is_ascii_alphanumeric() || c == '_');
        // Scripts without case (Han, kana, Hangul) put no space between a name and what follows it.
        let goes_on =
            rest[run.len()..].chars().next().is_some_and(|c| c == '@' || is_mark(c) || c.is_lowercase() || c.is_uppercase());
        if begins_word
            && !goes_on
            && run.len() <= handle::MAX_LEN
            && let Ok(handle) = Handle::parse(run)
            && seen.insert(handle.clone())
        {
            found.push(handle);
            if found.len() == MENTIONS_MOST {
                break;
            }
        }
    }
    found
}

/// The form in which names are searched for: without case and without the marks that readers leave out when they type (accents,
/// diaereses, vowel points), everything else as it is. At most [`SEARCHED_MOST`] characters.
///
/// The fold of a beginning of a text (at whole characters) is a beginning of its fold, so that a range of an index finds prefixes.
#[must_use]
pub fn searched(text: &str) -> String {
    // Upper case first: `ß` and `SS` meet there, and the two forms of sigma.
    let folded = text.nfkd().filter(|c| !is_accent(*c)).flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    // Changing the case may compose or bring a mark back.
    folded.nfkd().filter(|c| !is_accent(*c)).take(SEARCHED_MOST).collect()
}

/// Marks that stand above, below or through a letter. Those of combining class 6 to 9 (nukta, virama, the marks of kana) make another
/// letter, which nobody leaves out.
fn is_accent(c: char) -> bool {
    !matches!(canonical_combining_class(c), 0 | 6..=9)
}

/// A text of several lines, normalised and measured.
fn long(text: &str, most: usize) -> Result<String, TextFault> {
    // Before trimming: some controls are white space, and are refused wherever they stand.
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(TextFault::Control);
    }
    let composed: String = text.replace("\r\n", "\n").replace('\r', "\n").nfc().collect();
    let trimmed = composed.trim();
    // Bytes first: they are known, clusters must be counted.
    if trimmed.len() > most * BYTES_PER_GRAPHEME {
        Err(TextFault::TooManyBytes { most: most * BYTES_PER_GRAPHEME })
    } else if trimmed.graphemes(true).count() > most {
        Err(TextFault::TooLong { most })
    } else {
        Ok(trimmed.to_owned())
    }
}

fn visible(text: String) -> Result<String, TextFault> {
    if text.chars().all(|c| c.is_whitespace() || is_invisible(c)) { Err(TextFault::Empty) } else { Ok(text) }
}

/// Characters that show nothing: `Default_Ignorable_Code_Point` of Unicode 17 (zero-width, marks of direction, fillers, variation
/// selectors, tags), the marks of interlinear annotation, and the empty Braille pattern.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What a tag may hold. Letters that show nothing (the Hangul fillers) are left out: two tags that look alike are one.
fn is_word(c: char) -> bool {
    c == '_' || (!is_invisible(c) && (is_letter(c) || is_mark(c) || c.general_category() == GeneralCategory::DecimalNumber))
}

fn is_letter(c: char) -> bool {
    use GeneralCategory::{LowercaseLetter, ModifierLetter, OtherLetter, TitlecaseLetter, UppercaseLetter};
    let letter = matches!(c.general_category(), LowercaseLetter | ModifierLetter | OtherLetter | TitlecaseLetter | UppercaseLetter);
    letter && !is_invisible(c)
}

/// A combining mark. Enclosing ones are left out: they make a symbol of what they enclose.
fn is_mark(c: char) -> bool {
    matches!(c.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::SpacingMark) && !is_invisible(c)
}

/// Makes two spellings of a tag that differ in case alone the same: Unicode's full case folding, letter by letter (in a whole word it
/// would depend on the place of a sigma), then composed.
///
/// Folding is lower case by way of upper case, where `ß` and `SS`, and the two forms of sigma, meet; but for the dotless `ı`, whose upper
/// case is that of another letter. (Cherokee folds to upper case in Unicode, here to lower case like everything else: the classes are the
/// same.)
fn fold(tag: &str) -> String {
    // First to small letters, for one capital (ẞ) has no other.
    let folded = |c: char| match c {
        'ı' => vec![c],
        c => c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect(),
    };
    tag.nfc().flat_map(folded).nfc().collect()
}

/// Every `sign` of a text: the character before it, and what follows it.
fn starts(text: &str, sign: char) -> impl Iterator<Item = (Option<char>, &str)> {
    text.match_indices(sign).map(move |(at, sign)| (text[..at].chars().next_back(), &text[at + sign.len()..]))
}

/// The longest beginning of which every character is in the class.
fn run(text: &str, class: impl Fn(char) -> bool) -> &str {
    text.find(|c| !class(c)).map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Field = (fn(&str) -> Result<String, TextFault>, usize);
    const FIELDS: [Field; 4] = [(post, POST_MOST), (comment, COMMENT_MOST), (bio, BIO_MOST), (display_name, DISPLAY_NAME_MOST)];

    const FLAG: &str = "\u{1f1e9}\u{1f1ea}";
    const KEYCAP: &str = "1\u{fe0f}\u{20e3}";
    const STACKED: &str = "q\u{301}\u{323}";
    const THUMB: &str = "\u{1f44d}\u{1f3fd}";
    const FAMILY: &str = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466}";
    const JAMO: &str = "\u{1112}\u{1161}\u{11ab}";

    #[test]
    fn the_limit_counts_grapheme_clusters() {
        for (field, most) in FIELDS {
            for unit in ["a", "é", "漢", FLAG, KEYCAP, STACKED, THUMB, JAMO] {
                assert!(field(&unit.repeat(most)).is_ok(), "{unit} {most}");
                assert_eq!(field(&unit.repeat(most + 1)), Err(TextFault::TooLong { most }), "{unit} {most}");
            }
        }
    }

    #[test]
    fn ten_bytes_for_each_allowed_cluster_are_the_ceiling() {
        for (field, most) in FIELDS {
            let (fits, bytes) = (most * 10 / FAMILY.len(), most * 10);
            assert!(field(&FAMILY.repeat(fits)).is_ok());
            assert_eq!(field(&FAMILY.repeat(fits + 1)), Err(TextFault::TooManyBytes { most: bytes }));
            let tall = |marks: usize| format!("q{}", "\u{301}".repeat(marks));
            assert!(field(&tall(most * 5 - 1)).is_ok());
            assert_eq!(field(&tall(most * 5)), Err(TextFault::TooManyBytes { most: bytes }));
        }
    }

    #[test]
    fn the_limit_counts_after_trimming_and_composing() {
        for (field, most) in FIELDS {
            assert_eq!(field(&format!("  {}\n ", "e\u{301}".repeat(most))), Ok("é".repeat(most)));
        }
    }

    #[test]
    fn texts_are_trimmed_and_composed() {
        for (field, _) in FIELDS {
            assert_eq!(field(" \n cafe\u{301} \n ").as_deref(), Ok("café"));
        }
    }

    #[test]
    fn names_are_searched_without_case_and_accents_and_else_as_they_are() {
        for (name, folded) in [
            ("Zoë", "zoe"),
            ("ÅNGSTRÖM", "angstrom"),
            ("Straße", "strasse"),
            ("ΟΔΟΣ", "οδος".trim_end_matches('ς')),
            ("İstanbul", "istanbul"),
            ("Ελλάς", "ελλασ"),
            ("Ёлка", "елка"),
            (".*", ".*"),
            ("(a+)+$ %_", "(a+)+$ %_"),
            ("a\u{301}\u{323}b", "ab"),
        ] {
            assert!(searched(name).starts_with(folded), "{name}: {}", searched(name));
        }
        assert_ne!(searched("が"), searched("か"), "another letter, not an accent");
        assert_ne!(searched("कि"), searched("क"));
    }

    #[test]
    fn every_line_end_becomes_a_newline() {
        assert_eq!(post("a\r\nb\rc\n\td").as_deref(), Ok("a\nb\nc\n\td"));
    }

    #[test]
    fn a_display_name_is_one_line() {
        for name in ["a\nb", "a\tb", "a\r\nb", "a\u{2028}b"] {
            assert_eq!(display_name(name), Err(TextFault::Control), "{name:?}");
        }
    }

    #[test]
    fn controls_are_refused_wherever_they_stand() {
        for code in (0..0x20).chain(0x7f..0xa0) {
            let control = char::from(code);
            if !matches!(control, '\n' | '\r' | '\t') {
                for (field, _) in FIELDS {
                    for text in [format!("a{control}b"), format!("{control}b"), format!("a{control}")] {
                        assert_eq!(field(&text), Err(TextFault::Control), "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_text_with_nothing_visible_is_refused() {
        let blanks = [
            "",
            " ",
            "\n\n\t",
            "\u{a0}",
            "\u{3000}",
            "\u{200b}",
            "\u{200d}\u{200c}",
            "\u{2060}",
            "\u{feff}",
            "\u{202e}\u{202d}",
            "\u{2066}\u{2069}",
            "\u{200e}\n\u{200f}",
            "\u{ad}",
            "\u{3164}",
            "\u{115f}",
            "\u{2800}",
            "\u{fe0f}",
            "\u{e0020}",
        ];
        for blank in blanks {
            for field in [post, comment, display_name] {
                assert_eq!(field(blank), Err(TextFault::Empty), "{blank:?}");
            }
        }
    }

    #[test]
    fn a_bio_is_empty_or_visible() {
        assert_eq!(bio(" \n").as_deref(), Ok(""));
        assert_eq!(bio("\u{200b}"), Err(TextFault::Empty));
    }

    #[test]
    fn an_avatar_is_an_http_address() {
        assert_eq!(avatar_url("https://example.org/a.png").as_deref(), Ok("https://example.org/a.png"));
        assert_eq!(avatar_url("http://пример.example/ü").as_deref(), Ok("http://xn--e1afmkfd.example/%C3%BC"));
        for other in [
            "",
            "a.png",
            "ftp://example.org/a",
            "javascript:alert(1)",
            "data:image/png,",
            "https://",
            "https://a b/",
            "ht\ntp://a/",
        ] {
            assert_eq!(avatar_url(other), Err(TextFault::NoAddress), "{other:?}");
        }
        let long = |bytes: usize| format!("https://example.org/{}", "a".repeat(bytes - 20));
        assert!(avatar_url(&long(500)).is_ok());
        assert_eq!(avatar_url(&long(501)), Err(TextFault::TooManyBytes { most: 500 }));
        assert_eq!(avatar_url(&format!("https://example.org/{}", "é".repeat(200))), Err(TextFault::TooManyBytes { most: 500 }));
    }

    #[test]
    fn tags_are_found_whatever_their_place() {
        let cases: &[(&str, &[&str])] = &[
            ("#one", &["one"]),
            ("end #one", &["one"]),
            ("(#one), and #two.", &["one", "two"]),
            ("#one#two", &["one"]),
            ("##one", &["one"]),
            ("#One #ONE #one", &["one"]),
            ("#b #a #b", &["b", "a"]),
            ("#Ünïcode #日本語 #русский #ελλάς #ΕΛΛΆΣ", &["ünïcode", "日本語", "русский", "ελλάσ"]),
            ("#हिन्दी", &["हिन्दी"]),
            ("#e\u{301}t\u{e9} #\u{c9}T\u{c9}", &["été"]),
            ("#İstanbul", &["i\u{307}stanbul"]),
            ("#straße #STRASSE #Straẞe #ﬂuß #FLUSS", &["strasse", "fluss"]),
            ("#ısı #ISI", &["ısı", "isi"]),
            ("#snake_case #_a #a1 #1a", &["snake_case", "_a", "a1", "1a"]),
            ("#1 #2024 #_ #٣ # #! #️⃣a", &[]),
            ("word#no a_#no https://example.org/#no https://example.org/x#no &#x27;", &[]),
            ("#a\u{200b}b #a-b", &["a"]),
            ("#\u{3164}", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(tags(text), *expected, "{text:?}");
        }
    }

    #[test]
    fn one_tag_reads_as_it_does_in_a_text() {
        assert_eq!(tag("Été").as_deref(), Some("été"));
        for other in ["", "1", "#a", "a b", "a-b", "\u{301}a"] {
            assert_eq!(tag(other), None, "{other:?}");
        }
    }

    #[test]
    fn spellings_of_a_tag_that_differ_in_case_alone_are_one() {
        for (one, other) in
            [("Straße", "STRASSE"), ("ΕΛΛΆΣ", "ελλάς"), ("ſoft", "SOFT"), ("µm", "ΜM"), ("ϐήτα", "ΒΉΤΑ"), ("Ꭰa", "ꭰA")]
        {
            assert_eq!(tag(one), tag(other), "{one} {other}");
            assert!(tag(one).is_some(), "{one}");
        }
        assert_ne!(tag("sı"), tag("si"), "another letter");
    }

    #[test]
    fn a_mention_ends_before_punctuation() {
        for text in [
            "@bob",
            "@bob.",
            "(@bob)",
            "hey @bob, you",
            "@bob!",
            "@bob: hi",
            "“@bob”",
            "\n@bob\n",
            "@bob-x",
            "@bobさん",
            "@BOB @bob",
        ] {
            assert_eq!(mentions(text), [handle("bob")], "{text:?}");
        }
        assert_eq!(mentions("@bob_x and @_ and @b@c @2"), [handle("bob_x"), handle("_"), handle("2")]);
    }

    #[test]
    fn what_is_part_of_something_longer_is_no_mention() {
        let long = format!("@{}", "a".repeat(31));
        for text in [
            "a@bob.com",
            "a@bob",
            "é@bob",
            "a_@bob",
            "a+@bob",
            "@bob@example.org",
            "@ @@ @@bob",
            "@bobé",
            "@bob\u{301}",
            "https://example.org/@bob",
            &long,
        ] {
            assert_eq!(mentions(text), [], "{text:?}");
        }
        assert_eq!(mentions(&long[..31]), [handle(&"a".repeat(30))]);
    }

    #[test]
    fn tags_and_mentions_of_one_text_are_bounded() {
        let text: String = (0..200).flat_map(|n| [format!("#t{n} "), format!("@u{n} ")]).collect();
        assert_eq!(tags(&text).len(), TAGS_MOST);
        assert_eq!(mentions(&text).len(), MENTIONS_MOST);
    }

    fn handle(text: &str) -> Handle {
        Handle::from_stored(text.to_owned())
    }

    proptest! {
        // Long texts in an unoptimised build: fewer of them.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn normalising_twice_is_normalising_once(text in any::<String>()) {
            for (field, _) in FIELDS {
                if let Ok(once) = field(&text) {
                    prop_assert_eq!(field(&once), Ok(once));
                }
            }
        }

        #[test]
        fn folding_twice_is_folding_once(text in any::<String>()) {
            let once = searched(&text);
            prop_assert!(once.chars().count() <= SEARCHED_MOST);
            prop_assert_eq!(searched(&once), once);
        }

        #[test]
        fn what_begins_a_name_begins_its_fold(name in "([a-zA-Zß-žΑ-ώа-яА-Я漢か゛ㅎ한]|e\u{301}|\u{1f468}|[ '._-]){0,60}", at in 0usize..60) {
            let start: String = name.graphemes(true).take(at).collect();
            prop_assert!(searched(&name).starts_with(&searched(&start)));
            prop_assert_eq!(searched(&name.to_lowercase()), searched(&name));
            prop_assert_eq!(searched(&name.nfd().collect::<String>()), searched(&name.nfc().collect::<String>()));
        }

        #[test]
        fn nothing_over_the_limits_is_stored(text in "(a|é|\u{1f1e9}|\u{200d}|\u{301}|\u{1f468}|[ \n]){0,1200}") {
            for (field, most) in FIELDS {
                if let Ok(stored) = field(&text) {
                    prop_assert!(stored.graphemes(true).count() <= most && stored.len() <= most * BYTES_PER_GRAPHEME);
                    prop_assert_eq!(stored.trim(), &stored);
                }
            }
        }

        #[test]
        fn a_tag_found_is_a_tag_and_folding_it_again_changes_nothing(text in "[#@a-zßİΣ漢_.\u{301}\u{fe0f} 0-9]{0,80}") {
            for found in tags(&text) {
                prop_assert_eq!(tag(&found), Some(found));
            }
        }

        #[test]
        fn a_tag_is_found_in_any_case_and_form(name in "[\\p{L}\\p{M}\\p{Nd}_]{1,12}") {
            if let Some(folded) = tag(&name) {
                prop_assert_eq!(tag(&folded), Some(folded.clone()));
                let other: String = name.nfd().collect();
                prop_assert_eq!(tag(&other), Some(folded.clone()));
                let text = format!("(#{name}), and #{other}.");
                prop_assert_eq!(tags(&text), [folded]);
            }
        }

        #[test]
        fn a_mention_ends_where_the_handle_does(name in "[a-zA-Z0-9_]{1,30}", end in "[.,;:!?)'\"» \n]|", start in "[ (\n«\"]|") {
            // In two cases it is one.
            let text = format!("{start}@{name}{end} @{}", name.to_ascii_uppercase());
            prop_assert_eq!(mentions(&text), [handle(&name.to_ascii_lowercase())]);
            for no_mention in [format!("x@{name}{end}"), format!("@{name}@example.org"), format!("@{name}é")] {
                prop_assert_eq!(mentions(&no_mention), []);
            }
        }

        #[test]
        fn whatever_is_stored_has_something_visible_and_no_controls(text in "[\\PC\\pC]{0,40}") {
            for (field, _) in FIELDS {
                if let Ok(stored) = field(&text) {
                    prop_assert!(stored.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
                    let seen = stored.chars().any(|c| !c.is_whitespace() && !is_invisible(c));
                    prop_assert!(seen || stored.is_empty());
                    prop_assert!(stored.nfc().eq(stored.chars()));
                }
            }
        }

        #[test]
        fn every_mention_stands_in_the_text(text in any::<String>()) {
            for found in mentions(&text) {
                let sign = format!("@{found}");
                prop_assert!(text.to_ascii_lowercase().contains(&sign));
            }
            let _ = tags(&text);
        }
    }
}
