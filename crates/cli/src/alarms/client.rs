//! Sends alarms by HTTP. It trusts the certificates that this machine trusts.

use std::{env, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use rustls::{
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject as _},
};
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig},
};

/// Where distributions keep the certificates that they trust; the variable is the one that OpenSSL reads.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
const TRUSTED_FILE: &str = "SSL_CERT_FILE";

/// One that asks at `url`, and waits for an answer no longer than `patience`.
pub(crate) fn of(url: &str, patience: Duration) -> anyhow::Result<Agent> {
    let is_secure = url.starts_with("https://");
    anyhow::ensure!(
        is_secure || url.starts_with("http://"),
        "cannot send to {}: expected an address such as https://hooks.example.org/alarms",
        host(url)
    );
    let mut config = Agent::config_builder().timeout_global(Some(patience));
    if is_secure {
        let named = env::var_os(TRUSTED_FILE).map(Into::into);
        let known = || TRUSTED.iter().map(Path::new).find(|it| it.exists()).map(Path::to_path_buf);
        let path = named
            .or_else(known)
            .context("found no file of trusted certificates: name one with SSL_CERT_FILE")?;
        let trusted = certificates(&path)?;
        let trusted: Vec<_> =
            trusted.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
        let secure = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&trusted))
            .unversioned_rustls_crypto_provider(provider());
        config = config.tls_config(secure.build());
    }
    Ok(Agent::new_with_config(config.build()))
}

/// An address without what may be a secret: its path, and who asks.
pub(crate) fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |it| it.1);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    rest[..end].rsplit('@').next().unwrap_or_default()
}

/// Why an address was not reached, without the address.
pub(crate) fn said(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) => "it is not a URL".to_owned(),
        other => other.to_string(),
    }
}

/// What does the computing.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates in a file, which has to have one.
fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let name = path.display();
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().with_context(|| format!("cannot read certificates from {name}"))?;
    anyhow::ensure!(
        !found.is_empty(),
        "{name} has no certificate: expected -----BEGIN CERTIFICATE-----"
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn an_address_is_told_without_its_secrets() {
        assert_eq!(host("https://hooks.example.org/services/T0/secret?key=1"), "hooks.example.org");
        assert_eq!(host("http://anna:secret@127.0.0.1:4318"), "127.0.0.1:4318");
        assert_eq!(host("hooks.example.org/secret"), "hooks.example.org");
    }
}
