//! Configuration: every variable, its unit and its default, in one table.
//!
//! [`VARIABLES`] is that table. `--help`, the flags and the lookup are made from it, so that none of them can name a variable that
//! another does not know. [`Config::from_vars`] reads them through a lookup that `main` gives it: nothing else in the program looks at
//! the environment, and a test configures by a map.

use std::{
    fmt, fs,
    io::{self, Write as _},
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use rookery_domain::fanout::FeedModel;
use rookery_storage::Settings;
use secrecy::{ExposeSecret as _, SecretString};

/// One variable of the configuration.
#[derive(Debug)]
pub struct Variable {
    /// Its name in the environment.
    pub name: &'static str,
    /// The flag that overrides it; none for secrets, which a flag would show to everybody who lists processes.
    pub flag: Option<&'static str>,
    /// The form of its value.
    pub value: &'static str,
    /// What holds where it is not set; none where that is a state of its own, which the help describes.
    pub default: Option<&'static str>,
    /// What it means, with its unit.
    pub help: &'static str,
}

/// The whole configuration. A variable that is set to nothing counts as not set.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "ROOKERY_LISTEN",
        flag: Some("listen"),
        value: "HOST:PORT",
        default: Some("127.0.0.1:8080"),
        help: "Where to listen; port 0 picks a free one and prints it",
    },
    Variable {
        name: "ROOKERY_DATA_DIR",
        flag: Some("data-dir"),
        value: "DIR",
        default: Some("./data"),
        help: "Where the embedded database and the signing key live",
    },
    Variable {
        name: "ROOKERY_MONGODB_URI",
        flag: None,
        value: "URI",
        default: None,
        help: "The MongoDB to use (a replica set or a sharded cluster); without it the embedded database is started in the data folder",
    },
    Variable {
        name: "ROOKERY_DATABASE",
        flag: Some("database"),
        value: "NAME",
        default: Some("rookery"),
        help: "The name of the database",
    },
    Variable {
        name: "ROOKERY_CELEBRITY_THRESHOLD",
        flag: Some("celebrity-threshold"),
        value: "FOLLOWERS",
        default: Some("10000"),
        help: "Followers at which an account becomes a celebrity (an outlier); the same in every process",
    },
    Variable {
        name: "ROOKERY_FOLLOW_LIMIT",
        flag: Some("follow-limit"),
        value: "ACCOUNTS",
        default: Some("7500"),
        help: "How many accounts one may follow",
    },
    Variable {
        name: "ROOKERY_PASSWORD_HASH_COST",
        flag: Some("password-hash-cost"),
        value: "default|test",
        default: Some("default"),
        help: "What a password hash costs; `test` is cheap and refused unless the service listens on loopback",
    },
    Variable {
        name: "ROOKERY_RATE_LIMIT",
        flag: Some("rate-limit"),
        value: "on|off",
        default: Some("on"),
        help: "Whether callers beyond their limit are refused (600 at once and 100 a second per user, 1500 and 300 per anonymous address)",
    },
    Variable {
        name: "ROOKERY_BENCH",
        flag: Some("bench"),
        value: "on|off",
        default: Some("off"),
        help: "Whether `GET /bench/find-one` is there, which load tests compare with; refused unless the service listens on loopback",
    },
    Variable {
        name: "ROOKERY_FEED_MODEL",
        flag: Some("feed-model"),
        value: "hybrid|push|pull",
        default: Some("hybrid"),
        help: "How new posts are delivered; may differ between processes",
    },
    Variable {
        name: "ROOKERY_CORS_ORIGINS",
        flag: Some("cors-origins"),
        value: "ORIGIN,...",
        default: None,
        help: "Origins whose pages may call the service, `*` for all; without it none",
    },
    Variable {
        name: "ROOKERY_TRUSTED_PROXIES",
        flag: Some("trusted-proxies"),
        value: "ADDRESS[/BITS],...",
        default: None,
        help: "Proxies whose X-Forwarded-For is believed; without it nobody's is",
    },
    Variable {
        name: "ROOKERY_LOG",
        flag: Some("log"),
        value: "FILTER",
        default: Some("info,mongodb=warn,actix_server=warn"),
        help: "What is logged, as level or target=level, separated by commas; `rookery_api=debug` logs every request",
    },
    Variable {
        name: "ROOKERY_LOG_FORMAT",
        flag: Some("log-format"),
        value: "json|text",
        default: Some("json"),
        help: "The form of the log, which goes to standard error",
    },
    Variable {
        name: "ROOKERY_SIGNING_KEY",
        flag: None,
        value: "KEY",
        default: None,
        help: "The Ed25519 key that signs tokens: PKCS#8 in PEM, or a seed of 32 bytes in base64; must be set with ROOKERY_MONGODB_URI, \
               otherwise one is made and kept in the data folder",
    },
];

/// What a password hash costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordHashCost {
    /// What is recommended against guessing.
    Default,
    /// As little as possible, for tests.
    Test,
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For reading.
    Text,
}

/// Which origins' pages may call the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsOrigins {
    /// Every origin.
    Any,
    /// These; none where there are none.
    Only(Vec<String>),
}

/// The configuration, checked. Its `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct Config {
    /// The addresses of `ROOKERY_LISTEN`: a host name may have several.
    pub listen: Vec<SocketAddr>,
    /// `ROOKERY_DATA_DIR`.
    pub data_dir: PathBuf,
    /// `ROOKERY_MONGODB_URI`; none for the embedded database.
    pub mongodb_uri: Option<SecretString>,
    /// `ROOKERY_DATABASE`.
    pub database: String,
    /// What the store decides by.
    pub settings: Settings,
    /// `ROOKERY_PASSWORD_HASH_COST`.
    pub password_hash_cost: PasswordHashCost,
    /// `ROOKERY_RATE_LIMIT`: whether callers beyond their limit are refused.
    pub rate_limit: bool,
    /// `ROOKERY_BENCH`: whether the route that load tests compare with is there.
    pub bench: bool,
    /// `ROOKERY_CORS_ORIGINS`.
    pub cors_origins: CorsOrigins,
    /// `ROOKERY_TRUSTED_PROXIES`.
    pub trusted_proxies: Vec<Network>,
    /// `ROOKERY_LOG`.
    pub log: String,
    /// `ROOKERY_LOG_FORMAT`.
    pub log_format: LogFormat,
    /// `ROOKERY_SIGNING_KEY`, read but not yet made: see [`Config::signing_key`].
    signing_key: Option<SigningKey>,
}

/// A variable that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: {problem}")]
pub struct ConfigError {
    variable: &'static str,
    problem: String,
}

fn refuse(variable: &'static str, problem: impl fmt::Display) -> ConfigError {
    ConfigError { variable, problem: problem.to_string() }
}

impl Config {
    /// Reads the configuration; `lookup` gives the value of a variable of [`VARIABLES`], if it is set.
    ///
    /// # Errors
    /// The first variable that cannot be used, and why. Values of secrets are never in the text.
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let get = |name: &'static str| {
            let default = VARIABLES.iter().find(|variable| variable.name == name).and_then(|variable| variable.default);
            set(name).or_else(|| default.map(str::to_owned)).unwrap_or_default()
        };

        let listen: Vec<_> = get("ROOKERY_LISTEN")
            .to_socket_addrs()
            .map_err(|error| refuse("ROOKERY_LISTEN", format!("not a host and a port: {error}")))?
            .collect();
        let password_hash_cost = choose(
            "ROOKERY_PASSWORD_HASH_COST",
            &get("ROOKERY_PASSWORD_HASH_COST"),
            &[("default", PasswordHashCost::Default), ("test", PasswordHashCost::Test)],
        )?;
        let bench = choose("ROOKERY_BENCH", &get("ROOKERY_BENCH"), &[("on", true), ("off", false)])?;
        if bench && !listen.iter().all(|address| address.ip().is_loopback()) {
            return Err(refuse("ROOKERY_BENCH", "`on` is only for a service that listens on loopback"));
        }
        if password_hash_cost == PasswordHashCost::Test && !listen.iter().all(|address| address.ip().is_loopback()) {
            return Err(refuse("ROOKERY_PASSWORD_HASH_COST", "`test` is only for a service that listens on loopback"));
        }
        let mongodb_uri = set("ROOKERY_MONGODB_URI").map(SecretString::from);
        let signing_key = set("ROOKERY_SIGNING_KEY")
            .map(|text| SigningKey::parse(&SecretString::from(text)))
            .transpose()
            .map_err(|error| refuse("ROOKERY_SIGNING_KEY", error))?;
        if mongodb_uri.is_some() && signing_key.is_none() {
            // Processes that share a database must share the key, or each refuses the other's tokens.
            return Err(refuse(
                "ROOKERY_SIGNING_KEY",
                "must be set where ROOKERY_MONGODB_URI is; `openssl rand -base64 32` makes one",
            ));
        }
        let origins = list(&get("ROOKERY_CORS_ORIGINS"));
        Ok(Self {
            listen,
            data_dir: PathBuf::from(get("ROOKERY_DATA_DIR")),
            mongodb_uri,
            database: get("ROOKERY_DATABASE"),
            settings: Settings {
                celebrity_threshold: positive("ROOKERY_CELEBRITY_THRESHOLD", &get("ROOKERY_CELEBRITY_THRESHOLD"))?,
                follow_limit: positive("ROOKERY_FOLLOW_LIMIT", &get("ROOKERY_FOLLOW_LIMIT"))?,
                feed_model: choose(
                    "ROOKERY_FEED_MODEL",
                    &get("ROOKERY_FEED_MODEL"),
                    &[FeedModel::Hybrid, FeedModel::Push, FeedModel::Pull].map(|model| (model.as_str(), model)),
                )?,
            },
            password_hash_cost,
            rate_limit: choose("ROOKERY_RATE_LIMIT", &get("ROOKERY_RATE_LIMIT"), &[("on", true), ("off", false)])?,
            bench,
            cors_origins: if origins.iter().any(|origin| origin == "*") { CorsOrigins::Any } else { CorsOrigins::Only(origins) },
            trusted_proxies: list(&get("ROOKERY_TRUSTED_PROXIES"))
                .iter()
                .map(|text| text.parse().map_err(|error| refuse("ROOKERY_TRUSTED_PROXIES", error)))
                .collect::<Result<_, _>>()?,
            log: get("ROOKERY_LOG"),
            log_format: choose(
                "ROOKERY_LOG_FORMAT",
                &get("ROOKERY_LOG_FORMAT"),
                &[("json", LogFormat::Json), ("text", LogFormat::Text)],
            )?,
            signing_key,
        })
    }

    /// The key that signs tokens: the one configured, else the one in the data folder, which is made at the first start.
    ///
    /// # Errors
    /// The data folder cannot be written, or the key in it is damaged or readable by others.
    pub fn signing_key(&self) -> anyhow::Result<SigningKey> {
        match &self.signing_key {
            Some(key) => Ok(key.clone()),
            None => SigningKey::kept_in(&self.data_dir),
        }
    }
}

fn choose<T: Copy>(variable: &'static str, value: &str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        refuse(variable, format!("`{value}` is none of {}", names.join(", ")))
    })
}

fn positive(variable: &'static str, value: &str) -> Result<i64, ConfigError> {
    value
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| refuse(variable, format!("`{value}` is not a whole number above zero")))
}

fn list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether the address lies in the range.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let differ = |a: u128, b: u128, width: u32| (a ^ b).checked_shr(width - self.bits).unwrap_or(0) != 0;
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => !differ(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => !differ(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an address or a range of addresses (192.0.2.0/24)");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if bits <= width { Ok(Self { address, bits }) } else { Err(wrong()) }
    }
}

/// An Ed25519 key.
#[derive(Clone)]
pub struct SigningKey(Arc<Ed25519KeyPair>);

/// The name of the key in the data folder.
const KEY_FILE: &str = "signing-key";

impl SigningKey {
    /// Reads PKCS#8 in PEM, or 32 bytes in base64.
    ///
    /// # Errors
    /// A text that is neither; it says nothing of the text itself.
    pub fn parse(text: &SecretString) -> Result<Self, &'static str> {
        let text = text.expose_secret().trim();
        let pair = if let Some(body) = text.strip_prefix("-----BEGIN PRIVATE KEY-----") {
            let body: String =
                body.strip_suffix("-----END PRIVATE KEY-----").ok_or("a PEM without its end")?.split_whitespace().collect();
            let der = STANDARD.decode(body).map_err(|_| "a PEM that is not base64")?;
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| "not an Ed25519 key in PKCS#8")?
        } else {
            let seed = STANDARD.decode(text).map_err(|_| "neither PEM nor base64")?;
            match seed.len() {
                32 => Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| "not an Ed25519 seed")?,
                0..32 => return Err("shorter than 32 bytes"),
                _ => return Err("longer than 32 bytes"),
            }
        };
        Ok(Self(Arc::new(pair)))
    }

    /// The key of a data folder, made at the first call and readable by its owner alone.
    fn kept_in(data_dir: &Path) -> anyhow::Result<Self> {
        use anyhow::Context as _;

        let path = data_dir.join(KEY_FILE);
        let shown = path.display();
        match fs::metadata(&path) {
            Ok(meta) => {
                anyhow::ensure!(meta.mode() & 0o777 == 0o600, "{shown} must be for its owner alone: `chmod 600 {shown}`");
                let text = SecretString::from(fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?);
                Self::parse(&text).map_err(|why| anyhow::anyhow!("{shown} is damaged: {why}"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut seed = [0; 32];
                aws_lc_rs::rand::fill(&mut seed).context("no randomness")?;
                let text = SecretString::from(STANDARD.encode(seed));
                fs::create_dir_all(data_dir).with_context(|| format!("cannot make {}", data_dir.display()))?;
                let mut file = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)
                    .with_context(|| format!("cannot make {shown}"))?;
                writeln!(file, "{}", text.expose_secret())?;
                file.sync_all()?;
                Self::parse(&text).map_err(anyhow::Error::msg)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {shown}")),
        }
    }

    /// The private key in PKCS#8 (DER).
    ///
    /// # Errors
    /// The crypto library cannot encode it.
    pub fn to_pkcs8(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.0.to_pkcs8v1()?.as_ref().to_vec())
    }

    /// The public key: 32 bytes.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// The flags that override the environment: one for every variable that has one.
#[derive(Debug, Clone, Default)]
pub struct Flags(Vec<(&'static str, String)>);

impl Flags {
    /// The value of the flag for this variable, if it was given.
    #[must_use]
    pub fn get(&self, variable: &str) -> Option<String> {
        self.0.iter().find(|(name, _)| *name == variable).map(|(_, value)| value.clone())
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |variable: &Variable| Some((variable.name, matches.get_one::<String>(variable.flag?)?.clone()));
        Ok(Self(VARIABLES.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading("Configuration (a flag wins over its variable)");
        VARIABLES.iter().fold(command, |command, variable| match variable.flag {
            Some(flag) => {
                let default = variable.default.map_or(String::new(), |default| format!(" [default: {default}]"));
                let help = format!("{} [env: {}]{default}", variable.help, variable.name);
                command.arg(Arg::new(flag).long(flag).value_name(variable.value).help(help).global(true))
            }
            None => command,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The part of the help that tells of the variables without a flag.
#[must_use]
pub fn help_on_secrets() -> String {
    let line = |variable: &Variable| format!("  {:<22} {}\n", variable.name, variable.help);
    let lines: String = VARIABLES.iter().filter(|variable| variable.flag.is_none()).map(line).collect();
    format!("Secrets (environment only):\n{lines}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use super::*;

    fn config(vars: &[(&str, &str)]) -> Result<Config, String> {
        Config::from_vars(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_set_gives_the_documented_defaults() {
        let config = config(&[]).unwrap();
        assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(config.data_dir, Path::new("./data"));
        assert_eq!(config.settings.celebrity_threshold, 10_000);
        assert_eq!(config.settings.follow_limit, 7_500);
        assert!(config.rate_limit && config.mongodb_uri.is_none());
        assert_eq!(config.cors_origins, CorsOrigins::Only(vec![]));
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_its_variable() {
        for (name, value) in [
            ("ROOKERY_LISTEN", "8080"),
            ("ROOKERY_CELEBRITY_THRESHOLD", "0"),
            ("ROOKERY_FOLLOW_LIMIT", "many"),
            ("ROOKERY_FEED_MODEL", "Hybrid"),
            ("ROOKERY_RATE_LIMIT", "no"),
            ("ROOKERY_TRUSTED_PROXIES", "10.0.0.0/33"),
            ("ROOKERY_LOG_FORMAT", "xml"),
            ("ROOKERY_SIGNING_KEY", "c2hvcnQ="),
        ] {
            let error = config(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn cheap_hashes_are_for_loopback_alone() {
        let cost = ("ROOKERY_PASSWORD_HASH_COST", "test");
        assert!(config(&[cost]).is_ok());
        assert!(config(&[cost, ("ROOKERY_LISTEN", "0.0.0.0:8080")]).unwrap_err().contains("loopback"));
    }

    #[test]
    fn a_shared_database_needs_a_shared_key() {
        let uri = ("ROOKERY_MONGODB_URI", "mongodb://db.example/?password=hunter2");
        assert!(config(&[uri]).unwrap_err().contains("ROOKERY_SIGNING_KEY"));
        let config = config(&[uri, ("ROOKERY_SIGNING_KEY", &STANDARD.encode([7; 32]))]).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = SigningKey::kept_in(dir.path()).unwrap();
        assert_eq!(SigningKey::kept_in(dir.path()).unwrap().public(), first.public());
        let path = dir.path().join(KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(SigningKey::kept_in(dir.path()).unwrap_err().to_string().contains("chmod"));
    }

    #[test]
    fn a_key_in_pem_is_the_key() {
        let key = SigningKey::parse(&SecretString::from(STANDARD.encode([7; 32]))).unwrap();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(key.to_pkcs8().unwrap()));
        assert_eq!(SigningKey::parse(&SecretString::from(pem)).unwrap().public(), key.public());
    }

    #[test]
    fn a_range_contains_its_addresses_alone() {
        let range: Network = "10.1.0.0/16".parse().unwrap();
        assert!(range.contains("10.1.255.9".parse().unwrap()));
        assert!(range.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!range.contains("10.2.0.1".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("192.0.2.1".parse().unwrap()));
        assert!(!"::1".parse::<Network>().unwrap().contains("::2".parse().unwrap()));
    }
}
