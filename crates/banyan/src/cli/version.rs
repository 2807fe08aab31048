//! `banyan version`

use crate::failure::Result;
use crate::output::{self, Format};

#[derive(serde::Serialize)]
struct Version {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
}

pub fn run(format: Format) -> Result<()> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
    };
    match format {
        Format::Table | Format::Wide => {
            output::data(&format!("banyan {} ({} {})\n", version.version, version.os, version.arch))
        }
        format => output::item(format, &version, version.version, |_, _| Vec::new()),
    }
}
