//! Properties of a process: a name, and random keys.

/// A key that nobody can guess.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_key() -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let filled = provider.secure_random.fill(&mut key);
    filled.map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(key)
}

/// The name of the process, for people: that of the host, which in a Pod is the Pod's.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
