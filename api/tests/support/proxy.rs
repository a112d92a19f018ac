//! A proxy before the database that can be cut: a database that is gone, for exactly as long as a test wants it.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

pub(crate) struct Proxy {
    address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy before the server of this connection string.
    pub(crate) async fn before(uri: &str) -> Self {
        let host = uri.trim_start_matches("mongodb://").split(['/', '?']).next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, seen) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (host, mut seen) = (host.clone(), seen.clone());
                if *seen.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(&host).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = seen.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { address, cut }
    }

    /// A connection string through the proxy. Direct, or the driver would ask the server for its address and go there.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Ends every connection and takes no new one.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn restore(&self) {
        self.cut.send_replace(false);
    }
}
