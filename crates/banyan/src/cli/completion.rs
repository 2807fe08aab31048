//! `banyan completion bash|zsh|fish`

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::failure::Result;
use crate::output::data;

const AFTER_HELP: &str = "\
Examples:
  source <(banyan completion bash)
  banyan completion zsh > \"${fpath[1]}/_banyan\"
  banyan completion fish > ~/.config/fish/completions/banyan.fish";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Shell to complete for.
    #[arg(value_enum)]
    shell: Kind,
}

pub fn run(args: Arguments) -> Result<()> {
    let shell = match args.shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "banyan", &mut script);
    data(&String::from_utf8_lossy(&script))
}
