//! `banyan enroll zone|node|provisioner`: a one-time token, for operators.

use api::EnrolRole;
use clap::{Args, ValueEnum};

use crate::failure::Result;
use crate::output::{self, Format, data, note};
use crate::session::Session;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Zone,
    Node,
    Provisioner,
}

#[derive(Args)]
pub struct Arguments {
    /// What will join.
    #[arg(value_enum)]
    role: Role,
    /// Zone that a node joins; may be left out where there is only one.
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let role = match args.role {
        Role::Zone => EnrolRole::Zone,
        Role::Node => EnrolRole::Node,
        Role::Provisioner => EnrolRole::Provisioner,
    };
    let enrolment = session.client.enrolment_create(role, args.zone.as_deref()).await?;
    note(format!("good once, until {}", enrolment.expires_at));
    match session.format {
        Format::Json | Format::Yaml => output::item(session.format, &enrolment, "", |_, _| Vec::new()),
        _ => data(&format!("{}\n", enrolment.token)),
    }
}
