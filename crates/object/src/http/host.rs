//! Which bucket a host name means.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The base domains of the store. A host under none of them is path style.
pub struct Hosts {
    domains: Vec<String>,
}

impl Hosts {
    pub fn new(domains: &[String]) -> Self {
        Self { domains: domains.iter().map(|domain| domain.to_ascii_lowercase()).collect() }
    }

    /// The domain and the bucket before it.
    pub fn bucket<'a>(&self, host: &'a str) -> Option<&'a str> {
        let name = without_port(host);
        self.domains.iter().find_map(|domain| {
            let at = name.len().checked_sub(domain.len() + 1)?;
            let tail = name.get(at..)?.strip_prefix('.')?;
            (at > 0 && tail.eq_ignore_ascii_case(domain)).then(|| &name[..at])
        })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

impl S3Host for Hosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let parsed = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => parsed.with_bucket(bucket.to_ascii_lowercase()),
            None => parsed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_stand_before_a_base_domain() {
        let hosts = Hosts::new(&["s3.Example.org".into()]);
        assert_eq!(hosts.bucket("photos.s3.example.org:7701"), Some("photos"));
        assert_eq!(hosts.bucket("a.b.S3.EXAMPLE.ORG"), Some("a.b"));
        assert_eq!(hosts.bucket("s3.example.org"), None);
        assert_eq!(hosts.bucket(".s3.example.org"), None);
        assert_eq!(hosts.bucket("photoss3.example.org"), None);
        assert_eq!(hosts.bucket("localhost:7701"), None);
        assert_eq!(hosts.bucket("[::1]:7701"), None);
    }
}
