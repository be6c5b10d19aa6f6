//! The address of a Service, which leads to its endpoints: what kube-proxy and load balancers do
//! in clusters that have them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes on what comes to one port; it ends when dropped.
pub(super) struct Balancer {
    targets: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Balancer {
    /// Listens there.
    ///
    /// # Panics
    /// Where the port is taken.
    pub(super) async fn start(address: SocketAddr) -> Balancer {
        let listener = TcpListener::bind(address).await;
        let listener = listener.expect("a port of the balancer");
        let targets = Arc::new(Mutex::default());
        Balancer {
            task: tokio::spawn(accept(listener, Arc::clone(&targets))),
            targets,
        }
    }

    /// Leads new connections to the first of these, if there is one.
    pub(super) fn lead_to(&self, targets: Vec<SocketAddr>) {
        *self.targets.lock().unwrap_or_else(PoisonError::into_inner) = targets;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, targets: Arc<Mutex<Vec<SocketAddr>>>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let target = {
            let targets = targets.lock().unwrap_or_else(PoisonError::into_inner);
            targets.first().copied()
        };
        // Nobody is there, so the connection ends.
        let Some(target) = target else { continue };
        tokio::spawn(async move {
            let mut server = TcpStream::connect(target).await?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await
        });
    }
}
