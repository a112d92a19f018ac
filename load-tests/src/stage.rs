//! A database with a graph in it and one service or more on it, made for one run and ended with it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::{
    client::Api,
    edges::{self, Edge},
    loops::Stop,
    service::{self, DatabaseServer, PASSWORD, Service},
};

/// What a run has started for itself.
#[derive(Debug)]
pub(crate) struct Stage {
    rookery: PathBuf,
    environment: Vec<(&'static str, String)>,
    pub(crate) database: DatabaseServer,
    pub(crate) service: Service,
    /// Beside the first.
    others: Vec<Service>,
    data_dir: PathBuf,
    /// Removed with this value.
    _temporary: TempDir,
}

impl Stage {
    /// Starts a database with its data in `data_dir` (a temporary folder without one), loads the graph and starts a service. Every account
    /// of the graph has the one password of load tests.
    ///
    /// # Errors
    /// A folder that is not empty, a program that does not start, or an interruption.
    pub(crate) async fn set(
        rookery: Option<&Path>,
        data_dir: Option<&Path>,
        threshold: u64,
        graph: impl IntoIterator<Item = Edge>,
        stop: &Stop,
    ) -> Result<Self> {
        let rookery = service::find_rookery(rookery)?;
        let temporary = tempfile::Builder::new().prefix("rookery-load-").tempdir()?;
        let data_dir = data_dir.unwrap_or(temporary.path());
        ensure_empty(data_dir)?;
        let database = DatabaseServer::start(data_dir).await?;
        let environment = service::environment(data_dir, &database, threshold);
        let edges = temporary.path().join("edges.csv");
        edges::write(&edges, graph)?;
        tokio::select! {
            imported = service::import(&rookery, &environment, &edges, false, Some(PASSWORD)) => imported?,
            () = stop.wait() => bail!("interrupted while the graph was loaded"),
        }
        let service = Service::start(&rookery, &environment, data_dir).await?;
        let data_dir = data_dir.to_owned();
        Ok(Self { rookery, environment, database, service, others: Vec::new(), data_dir, _temporary: temporary })
    }

    /// Starts one more service on the same database.
    pub(crate) async fn start_another(&mut self) -> Result<Api> {
        let logs = self.data_dir.join(format!("service-{}", self.others.len() + 2));
        std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let service = Service::start(&self.rookery, &self.environment, &logs).await?;
        let api = Api::new(service.base_url())?;
        self.others.push(service);
        Ok(api)
    }

    /// The service over HTTP.
    pub(crate) fn api(&self) -> Result<Api> {
        Api::new(self.service.base_url())
    }

    /// Ends everything, after `rookery verify` where that is asked for and the run was not interrupted. False: it found drift.
    pub(crate) async fn strike(self, verify: bool, stop: &Stop) -> Result<bool> {
        self.service.stop().await?;
        for service in self.others {
            service.stop().await?;
        }
        let clean = !verify || stop.is_set() || service::verify(&self.rookery, &self.environment, stop).await?;
        self.database.stop().await?;
        Ok(clean)
    }
}

/// A run's own database starts empty: what an earlier one left would be measured with it.
fn ensure_empty(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    ensure!(entries.next().is_none(), "{} is not empty: a run starts with an empty data folder", folder.display());
    Ok(())
}
