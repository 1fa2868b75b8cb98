//! Encrypted connections, with certificates that the user has.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use anyhow::Context as _;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use crate::{
    cli::TlsArgs,
    client::{certificates, provider},
    server::http::{Secure, Stream},
};

/// Encrypts, if files for that were given.
pub(super) fn secure(args: &TlsArgs) -> anyhow::Result<Option<Box<Secure>>> {
    let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read a private key from {}", key.display()))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .context("no version of TLS")?;
    let builder = match &args.tls_client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for it in certificates(path)? {
                roots.add(it).with_context(|| format!("a certificate in {}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let verifier = verifier.build().with_context(|| format!("{}", path.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(cert)?, private)
        .with_context(|| format!("{} and {} do not go together", cert.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    Ok(Some(Box::new(move |socket: TcpStream| {
        let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        Ok(Box::new(Encrypted(StreamOwned::new(connection, socket))))
    })))
}

struct Encrypted(StreamOwned<ServerConnection, TcpStream>);

impl Read for Encrypted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Encrypted {
    fn finish(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
    }
}
